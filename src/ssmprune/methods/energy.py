"""Energy scores: how much of the layer's output a state makes alone, on the inputs that the layer meets."""

from __future__ import annotations

import numpy as np

from ..arrays import Real
from ..core.layout import ChannelLayout
from ..core.moments import weights
from ..core.system import DiagonalSystem
from .method import Evidence


def energy(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return log tr(w_iᵀ G_ii w_i), the energy of what each state alone adds to the output (see `core`).

    >>> system = DiagonalSystem.from_discrete([0.0, 0.6], [[1], [1]], [[1, 1]])
    >>> np.exp(energy(system, Evidence.without_data(system)))
    array([1.    , 1.5625])
    """
    W, blocks = weights(system), np.einsum("gsasb->gsab", evidence.moments.gram)
    W_size, block_size = np.abs(W).max(axis=(2, 3), initial=0), np.abs(blocks).max(axis=(2, 3), initial=0)
    exponents = np.frexp(W_size)[1], np.frexp(block_size)[1]  # powers of two, so that no product under- or overflows
    W, blocks = (np.ldexp(values, -size[..., None, None]) for values, size in zip((W, blocks), exponents, strict=True))
    with np.errstate(divide="ignore"):
        score: Real = np.log(np.einsum("gsaq,gsab,gsbq->gs", W, blocks, W))
    score += (2 * exponents[0] + exponents[1]) * np.log(2)
    return ChannelLayout.of(system).gather(score)
