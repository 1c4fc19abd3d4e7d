"""H-infinity scores: the largest energy gain of a state over all frequencies (the paper's), and two variants."""

from __future__ import annotations

import numpy as np

from ..arrays import Real
from ..core import norms
from ..core.system import DiagonalSystem
from .log_scores import log_gain, log_squares
from .method import Evidence


def hinf(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return log |C_i|²|B̄_i|² / (1 - |λ̄_i|)², the squared H-infinity norm of each state alone (equation 6).

    >>> system = DiagonalSystem.from_discrete(poles=[0.5, 0.9], B=[[1], [1]], C=[[1, 0]])
    >>> hinf(system, Evidence.without_data(system)) / np.log(2)
    array([  2., -inf])
    """
    return log_gain(system, _loss(system), 2)


def hinf_unit_B(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return the H-infinity score with |B̄_i| = 1, the paper's shortcut for layers whose B is not trained.

    The discretised B̄ of a fixed B = 1 varies a hundredfold over states, so `hinf` ranks more truly.
    """
    readout = log_squares(system.C, "dqi->i") - np.log(system.directions)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(readout > -np.inf, readout - 2 * np.log(_loss(system)), -np.inf)


def pair_hinf(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return log ‖G_i‖²_∞ with G_i the real response of state i, its conjugate and both directions included.

    `hinf` takes the complex state for it, which for slow poles near the real axis is off by a factor of up to 2 either
    way. An unstable state has no such norm and scores as in `hinf`.

    >>> system = DiagonalSystem.from_discrete(poles=[0.5, 0.5], B=[[1], [1]], C=[[1, 1j]], gain=2)
    >>> pair_hinf(system, Evidence.without_data(system)) / np.log(2)
    array([  4., -inf])
    """
    scores, stable = hinf(system, evidence), ~system.unstable_states
    unit, exponents = norms.of_unit_size(system.select(stable))
    with np.errstate(divide="ignore"):
        scores[stable] = 2 * (np.log(norms.pair_hinf(unit)) + exponents * np.log(2))
    return scores


def _loss(system: DiagonalSystem) -> Real:
    """Return 1 - |pole|, exact for slow poles."""
    loss: Real = np.abs(np.expm1(system.log_poles.real))
    return loss
