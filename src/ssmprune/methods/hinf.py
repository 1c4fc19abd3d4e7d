"""H-infinity scores: the largest energy gain of a state over all frequencies (the paper's criterion)."""

from __future__ import annotations

import numpy as np

from ..arrays import Real
from ..core.system import DiagonalSystem
from .criterion import Evidence, log_gain, log_squares


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


def _loss(system: DiagonalSystem) -> Real:
    """Return 1 - |pole|, exact for slow poles."""
    loss: Real = np.abs(np.expm1(system.log_poles.real))
    return loss
