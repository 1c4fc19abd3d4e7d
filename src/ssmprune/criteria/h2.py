"""H2 scores: the energy of a state's impulse response, its energy gain for white noise (AIRE-Prune's criterion)."""

from __future__ import annotations

import numpy as np

from ..arrays import Real
from ..system import DiagonalSystem
from . import Evidence, squared_norms


def h2(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return log |C_i|²|B̄_i|² / (1 - |λ̄_i|²), the squared H2 norm of each state alone.

    >>> system = DiagonalSystem.from_discrete(poles=[0.0, 0.6], B=[[1], [1]], C=[[1, 4]])
    >>> np.exp(h2(system, Evidence.without_data(system)))
    array([ 1., 25.])
    """
    b, c = squared_norms(system)
    decay = np.abs(np.expm1(2 * system.log_poles.real))  # 1 - |pole|², exact for slow poles
    with np.errstate(divide="ignore"):  # a state without gain scores -inf, a pole on the circle +inf
        energy = np.divide(b * c, decay, out=np.zeros(system.n), where=b * c > 0)
        score: Real = np.log(energy)
    return score
