"""LAST [Gwak2024] and AIRE-Prune [AIRE2026] as their released codes compute them, which is not what their papers say.

Both codes work in single precision and add 1e-8 to the denominator, which caps the score of slow states. Both halve the
two directions of a bidirectional layer by `(|C_f| + |C_b|)/2 **2`, where the power binds more tightly: the score is
linear in C, (|C_f| + |C_b|)/4, where the papers have (|C_f|² + |C_b|²)/2. Published figures of bidirectional models
belong to these scores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ssmprune.arrays import Real
from ssmprune.core import DiagonalSystem
from ssmprune.methods import Evidence, Method, layer_adaptive

Single = NDArray[np.float32]
EPSILON = np.float32(1e-8)


def last_as_released(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return the logarithm of what LAST's code computes: `hinf`, single precision, 1e-8, linear in two Cs."""
    return _score(system, np.square(1 - _radius(system)))


def aire_as_released(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return the logarithm of what AIRE-Prune's code computes: `h2`, single precision, 1e-8, linear in two Cs.

    >>> system = DiagonalSystem.from_discrete(poles=[0.6], B=[[1]], C=[[[3]], [[5]]])
    >>> np.exp(aire_as_released(system, Evidence.without_data(system))).round(4)  # 2 instead of 17, over 0.64
    array([3.125])
    """
    return _score(system, 1 - np.square(_radius(system)))


def _score(system: DiagonalSystem, loss: Single) -> Real:
    B, C = (np.linalg.norm(values.astype(np.complex64), axis=1) for values in (system.B, system.C))
    readout = np.square(C[0]) if system.directions == 1 else (C[0] + C[1]) / np.float32(4)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gain = readout * np.square(B) / (loss + EPSILON)
        return np.log(np.asarray(gain, np.float64))


def _radius(system: DiagonalSystem) -> Single:
    radius: Single = np.abs(system.poles.astype(np.complex64))
    return radius


LAST_AS_RELEASED = Method("last-as-released", last_as_released, layer_adaptive)
AIRE_AS_RELEASED = Method("aire-as-released", aire_as_released, layer_adaptive)
