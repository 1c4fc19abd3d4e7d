"""Least squares on second moments: what the states that stay can take over from those that go.

`take_over` believes the moments it is given. `fit_shrunk` believes a fit as far as it pays on data that the fit has
not seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Complex, Mask, Real
from .moments import Moments, readout, weights
from .system import DiagonalSystem

RIDGE = 1e-6  # the share of each regressor's energy that counts as noise, so that no weight rests on rounding
RIDGES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, RIDGE)  # from a little of what the data say to all of it
FLOOR = 1e-8  # the share of a state's energy below which its real or imaginary part counts as zero
STATE_FLOOR = 1e-24  # the share of the strongest state's energy below which a state counts as silent
DOUBT = 2.0  # errors on k held-out sequences count as equal if they differ by less than the share DOUBT / k²
ENOUGH = 20  # sequences: errors within 0.5 % of each other count as equal


@dataclass(frozen=True, eq=False)
class Residual:
    """Second moments of what a layer's output lacks, r, with its regressors z and its input u."""

    cross: Real  # (channels, slots, parts, outputs): E[z r]
    input: Real  # (channels, outputs): E[u r]


@dataclass(frozen=True, eq=False)
class WeightChange:
    """What to add to the weights (channels, slots, parts, outputs) of a layer, and to its D (channels, outputs)."""

    weights: Real
    D: Real

    def __add__(self, other: WeightChange) -> WeightChange:
        """Make both changes."""
        return WeightChange(self.weights + other.weights, self.D + other.D)


@dataclass(frozen=True, eq=False)
class Sample:
    """The moments of a layer's regressors and of what its output lacks, on some data."""

    moments: Moments
    residual: Residual
    error: float  # mean square of what the output lacks, all outputs together
    sequences: int

    @property
    def no_change(self) -> WeightChange:
        """The change that leaves the layer as it is."""
        return WeightChange(np.zeros_like(self.residual.cross), np.zeros_like(self.residual.input))

    def after(self, change: WeightChange) -> Sample:
        """Return what the layer's output lacks after a change, on the same data.

        E|r - ΔWᵀz - δu|² = E|r|² - ΔW·(E[zr] + E[zr']) - δ·(E[ur] + E[ur']), where r' is what is left of r.
        """
        moments, old = self.moments, self.residual
        cross = np.einsum("gsatb,gtbq->gsaq", moments.gram, change.weights, optimize=True)
        cross += moments.cross * change.D[:, None, None]
        input = np.einsum("gsaq,gsaq->gq", moments.cross, change.weights) + moments.power * change.D
        new = Residual(old.cross - cross, old.input - input)
        saved = np.sum(change.weights * (old.cross + new.cross)) + np.sum(change.D * (old.input + new.input))
        return replace(self, residual=new, error=self.error - float(saved))

    def fit(self, refittable: Mask, ridge: float = RIDGE) -> WeightChange:
        """Return the least squares fit of what the layer's output lacks; see `fit_residual`."""
        return fit_residual(self.moments, self.residual, refittable, ridge)


def take_over(system: DiagonalSystem, keep: Mask, moments: Moments, ridge: float) -> tuple[Complex, Real]:
    """Return the C (directions, outputs, kept) and the change of D (outputs,) that replace the pruned states best."""
    layout, W = system.layout, weights(system)
    kept, refittable = layout.spread(keep), layout.spread(keep & ~system.unstable_states)
    lost = W * ~kept[..., None, None]
    cross = np.einsum("gsatb,gtbq->gsaq", moments.gram, lost, optimize=True)
    residual = Residual(cross, np.einsum("gsaq,gsaq->gq", moments.cross, lost))
    change = fit_residual(moments, residual, refittable, ridge)
    return readout(system, W + change.weights)[:, :, keep], change.D.ravel()


def fit_residual(moments: Moments, residual: Residual, refittable: Mask, ridge: float = RIDGE) -> WeightChange:
    """Return the change of the weights and of D that makes up best for what the output lacks.

    For every output the least squares fit of the residual on the regressors z of the `refittable` states (channels,
    slots) and on the input u that D leads to it. The outputs share G = E[z zᵀ], so D comes from its Schur complement:
    δ = (E[ur] - cᵀG⁻¹a) / (E[u²] - cᵀG⁻¹c) and ΔW = G⁻¹(a - cδ), with a = E[zr], c = E[zu].
    """
    channels, _, _, outputs = residual.cross.shape
    chosen = moments.gram * refittable[:, :, None, None, None] * refittable[:, None, None, :, None]
    gram, scale = correlations(chosen, ridge)
    shrunk = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)[..., None]
    a, c = ((shrunk * cross).reshape(channels, -1, outputs) for cross in (residual.cross, moments.cross))
    solved = np.linalg.solve(gram.reshape(channels, a.shape[1], -1), np.concatenate([a, c], axis=2))
    a_solved, c_solved = solved[..., :outputs], solved[..., outputs:]
    left = moments.power * (1 + ridge) - (c * c_solved).sum(axis=1)
    D = np.divide(residual.input - (c * a_solved).sum(axis=1), left, out=np.zeros_like(left), where=left > 0)
    return WeightChange(shrunk * (a_solved - c_solved * D[:, None]).reshape(residual.cross.shape), D)


def fit_shrunk(
    seen: Sample, held_out: Sample, refittable: Mask, start: WeightChange, all_data: Sample | None = None
) -> WeightChange:
    """Return the fit on what was seen, shrunk towards `start` as far as what was held out asks for.

    Of several ridges, and of no fit at all, it is the most cautious that does nearly as well there as any.
    all_data: what was seen and what was held out, where there is plenty of both. The fit is then on all of it, and of
        ridges that differ little there the least is taken.
    """
    rest = seen.after(start)
    changes = [start, *(start + rest.fit(refittable, ridge) for ridge in RIDGES)]
    errors = [held_out.after(change).error for change in changes]
    if all_data is None:
        return changes[most_cautious(errors, held_out.sequences)]
    chosen = len(errors) - 1 - most_cautious(errors[::-1], ENOUGH)  # the boldest that hardly differs from the least
    return start + all_data.after(start).fit(refittable, RIDGES[chosen - 1]) if chosen else start


def most_cautious(errors: Sequence[float], sequences: int) -> int:
    """Return the first of several errors, on so many sequences, that cannot be told from the least of them.

    Errors are differences of sums, so that an error next to zero may have been rounded to below zero.

    >>> most_cautious([9.0, 5.1, 5.0], sequences=2), most_cautious([9.0, 5.1, 5.0], sequences=20)
    (1, 2)
    >>> most_cautious([9.0, -1e-18], sequences=6)
    1
    """
    least = max(0.0, min(filter(math.isfinite, errors), default=math.inf)) * (1 + DOUBT / sequences**2)
    return next((place for place, error in enumerate(errors) if error <= least), 0)


def correlations(gram: Real, ridge: float = RIDGE) -> tuple[Real, Real]:
    """Scale every regressor to unit energy and add the ridge; return that and the scales (channels, slots, parts).

    A regressor without energy has scale 0 and is uncorrelated to all others. So does Im x where pole and B are real to
    rounding, and a state that has died out in training: a fit would give it weights beyond the layer's precision.
    """
    energy = np.einsum("gsasa->gsa", gram)
    state = energy.sum(axis=2, keepdims=True)
    floor = np.maximum(FLOOR * state, STATE_FLOOR * state.max(axis=1, keepdims=True, initial=0))
    scale = np.sqrt(np.where(energy > floor, energy, 0))
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    gram = gram * inverse[..., None, None] * inverse[:, None, None]
    np.einsum("gsasa->gsa", gram)[...] = 1 + ridge
    return gram, scale
