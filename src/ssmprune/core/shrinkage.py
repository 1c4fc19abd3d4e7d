"""How much of a fit to believe: as much as pays on data that it has not seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Mask, Real
from .least_squares import RIDGE, Residual, fit_residual
from .moments import Moments

RIDGES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, RIDGE)  # from a little of what the data say to all of it
DOUBT = 2.0  # the share by which errors on one sequence may differ by chance; less on several, with their square

ENOUGH = 20  # sequences, on which errors that differ by half a percent are no different


@dataclass(frozen=True, eq=False)
class Sample:
    """The moments of a layer's regressors and of what its output lacks, on some data."""

    moments: Moments
    residual: Residual
    error: float  # mean square of what the output lacks, all outputs together
    sequences: int


@dataclass(frozen=True, eq=False)
class Change:
    """What to add to the weights (channels, slots, parts, outputs) of a layer, and to its D (channels, outputs)."""

    weights: Real
    D: Real

    def __add__(self, other: Change) -> Change:
        """Make both changes."""
        return Change(self.weights + other.weights, self.D + other.D)


def no_change(sample: Sample) -> Change:
    """Leave a layer as it is."""
    return Change(np.zeros_like(sample.residual.cross), np.zeros_like(sample.residual.input))


def what_is_left(change: Change, sample: Sample) -> Sample:
    """Return what a layer's output lacks after a change, on the same data.

    E|r - ΔWᵀz - δu|² = E|r|² - ΔW·(E[zr] + E[zr']) - δ·(E[ur] + E[ur']), where r' is what is left of r.
    """
    moments, old = sample.moments, sample.residual
    cross = np.einsum("gsatb,gtbq->gsaq", moments.gram, change.weights, optimize=True)
    cross += moments.cross * change.D[:, None, None]
    input = np.einsum("gsaq,gsaq->gq", moments.cross, change.weights) + moments.power * change.D
    new = Residual(old.cross - cross, old.input - input)
    saved = np.sum(change.weights * (old.cross + new.cross)) + np.sum(change.D * (old.input + new.input))
    return replace(sample, residual=new, error=sample.error - float(saved))


def fit(sample: Sample, refittable: Mask, ridge: float = RIDGE) -> Change:
    """Return the least squares fit of what a layer's output lacks; see `fit_residual`."""
    return Change(*fit_residual(sample.moments, sample.residual, refittable, ridge))


def fit_shrunk(seen: Sample, held_out: Sample, refittable: Mask, start: Change, every: Sample | None = None) -> Change:
    """Return the fit on what was seen, shrunk towards `start` as far as what was held out asks for.

    Of several ridges, and of no fit at all, it is the most cautious that does nearly as well there as any.
    every: what was seen and what was held out, where there is plenty of both. The fit is then on all of it, and of
        ridges that differ little there the least is taken.
    """
    rest = what_is_left(start, seen)
    changes = [start, *(start + fit(rest, refittable, ridge) for ridge in RIDGES)]
    errors = [what_is_left(change, held_out).error for change in changes]
    if every is None:
        return changes[most_cautious(errors, held_out.sequences)]
    chosen = boldest(errors)
    return start + fit(what_is_left(start, every), refittable, RIDGES[chosen - 1]) if chosen else start


def boldest(errors: Sequence[float]) -> int:
    """Return the last of several errors that hardly differs from the least of them.

    >>> boldest([9.0, 5.1, 5.0, 5.001]), boldest([9.0, 5.0, 5.1])
    (3, 1)
    """
    return len(errors) - 1 - most_cautious(errors[::-1], ENOUGH)


def most_cautious(errors: Sequence[float], sequences: int) -> int:
    """Return the first of several errors, on so many sequences, that cannot be told from the least of them.

    Errors are differences of sums: one that is next to nothing may have been rounded to below it.

    >>> most_cautious([9.0, 5.1, 5.0], sequences=2), most_cautious([9.0, 5.1, 5.0], sequences=20)
    (1, 2)
    >>> most_cautious([9.0, -1e-18], sequences=6)
    1
    """
    least = max(0.0, min(filter(math.isfinite, errors), default=math.inf)) * (1 + DOUBT / sequences**2)
    return next((place for place, error in enumerate(errors) if error <= least), 0)
