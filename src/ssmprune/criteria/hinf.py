"""H-infinity scores: the largest energy gain of a state over all frequencies (the paper's criterion)."""

from __future__ import annotations

import numpy as np

from ..arrays import Real
from ..system import DiagonalSystem
from . import Evidence, squared_norms


def hinf(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return log |C_i|²|B̄_i|² / (1 - |λ̄_i|)², the squared H-infinity norm of each state alone (equation 6).

    >>> system = DiagonalSystem.from_discrete(poles=[0.5, 0.9], B=[[1], [1]], C=[[1, 0]])
    >>> hinf(system, Evidence.without_data(system)) / np.log(2)
    array([  2., -inf])
    """
    b, c = squared_norms(system)
    return _log_gain(system, b * c)


def hinf_unit_B(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return the H-infinity score with |B̄_i| = 1, the paper's shortcut for layers whose B is not trained.

    The discretised B̄ of a fixed B = 1 varies a hundredfold over states, so `hinf` ranks more truly.
    """
    return _log_gain(system, squared_norms(system)[1])


def _log_gain(system: DiagonalSystem, numerator: Real) -> Real:
    gain = np.expm1(system.log_poles.real)  # -(1 - |pole|), exact for slow poles
    gain *= gain
    with np.errstate(divide="ignore", invalid="ignore"):  # a state without gain scores -inf, a pole on the circle +inf
        np.log(np.divide(numerator, gain, out=gain), out=gain)
    if not numerator.all():
        gain[numerator == 0] = -np.inf  # even on the circle
    return gain
