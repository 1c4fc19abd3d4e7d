"""Exact H-infinity scores: the largest energy gain of what a stored state does in the real layer."""

from __future__ import annotations

import numpy as np

from ..arrays import Real
from ..core import norms
from ..core.system import DiagonalSystem
from .criterion import Evidence
from .hinf import hinf


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
