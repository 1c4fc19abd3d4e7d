"""Least squares on second moments: what the states that stay can take over from those that go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Complex, Mask, Real
from .layout import ChannelLayout
from .moments import Moments
from .system import DiagonalSystem
from .weights import readout, weights

RIDGE = 1e-6  # the share of each regressor's energy that counts as noise, so that no weight rests on rounding


@dataclass(frozen=True, eq=False)
class Residual:
    """Second moments of what a layer's output lacks, r, with its regressors z and its input u."""

    cross: Real  # (channels, slots, parts, outputs): E[z r]
    input: Real  # (channels, outputs): E[u r]


def refit_layer(system: DiagonalSystem, keep: Mask, moments: Moments, ridge: float = RIDGE) -> tuple[Complex, Real]:
    """Return the C (directions, outputs, kept) and the change of D (outputs,) that replace the pruned states best."""
    layout, W = ChannelLayout.of(system), weights(system)
    kept, refittable = layout.spread(keep), layout.spread(keep & ~system.unstable_states)
    lost = W * ~kept[..., None, None]
    cross = np.einsum("gsatb,gtbq->gsaq", moments.gram, lost, optimize=True)
    residual = Residual(cross, np.einsum("gsaq,gsaq->gq", moments.cross, lost))
    change, D = fit_residual(moments, residual, refittable, ridge)
    return readout(system, W + change)[:, :, keep], D.ravel()


def fit_residual(moments: Moments, residual: Residual, refittable: Mask, ridge: float = RIDGE) -> tuple[Real, Real]:
    """Return what to add to the weights (channels, slots, parts, outputs) and to D (channels, outputs).

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
    return shrunk * (a_solved - c_solved * D[:, None]).reshape(residual.cross.shape), D


def correlations(gram: Real, ridge: float = RIDGE) -> tuple[Real, Real]:
    """Scale every regressor to unit energy and add the ridge; return that and the scales (channels, slots, parts).

    A regressor without energy has scale 0 and is uncorrelated to all others.
    """
    scale = np.sqrt(np.einsum("gsasa->gsa", gram))
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    gram = gram * inverse[..., None, None] * inverse[:, None, None]
    np.einsum("gsasa->gsa", gram)[...] = 1 + ridge
    return gram, scale
