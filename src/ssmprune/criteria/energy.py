"""Energy scores: how much of the layer's output a state makes alone, on the inputs that the layer meets."""

from __future__ import annotations

import numpy as np

from ..arrays import Real
from ..layout import ChannelLayout
from ..regression.weights import weights
from ..system import DiagonalSystem
from . import Evidence


def energy(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return log tr(w_iᵀ G_ii w_i), the energy of what each state alone adds to the output (see `regression`).

    >>> system = DiagonalSystem.from_discrete([0.0, 0.6], [[1], [1]], [[1, 1]])
    >>> np.exp(energy(system, Evidence.without_data(system)))
    array([1.    , 1.5625])
    """
    W, own = weights(system), np.einsum("gsasb->gsab", evidence.moments.gram)
    with np.errstate(divide="ignore"):
        score: Real = np.log(ChannelLayout.of(system).gather(np.einsum("gsaq,gsab,gsbq->gs", W, own, W)))
    return score
