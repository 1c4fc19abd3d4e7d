"""Magnitude scores: the size of a state's parameters, as in weight pruning (the paper's appendix D.2)."""

from __future__ import annotations

import numpy as np

from ..arrays import Real
from ..core.system import DiagonalSystem
from .log_scores import log_gain
from .method import Evidence


def magnitude(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return log |λ̄_i|²|B̄_i|²|C_i|². Squared, so that the layer-adaptive allocation of it is LAMP.

    >>> system = DiagonalSystem.from_discrete(poles=[0.5, 0.25], B=[[1], [1]], C=[[1, 1]])
    >>> magnitude(system, Evidence.without_data(system)) / np.log(2)
    array([-2., -4.])
    """
    return log_gain(system, np.ones(system.n), 0) + 2 * system.log_poles.real
