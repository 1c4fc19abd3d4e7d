"""The readout of a layer as the weights of a regression on its states, and back."""

from __future__ import annotations

import numpy as np

from ..arrays import Complex, Real
from .layout import ChannelLayout
from .system import DiagonalSystem


def weights(system: DiagonalSystem) -> Real:
    """Return W (channels, slots, parts, outputs of a channel): the layer's output is Wᵀz."""
    C = system.gain * system.C.transpose(2, 0, 1)  # (n, directions, outputs)
    return ChannelLayout.of(system).spread(np.stack([C.real, -C.imag], axis=2).reshape(system.n, -1, C.shape[2]))


def readout(system: DiagonalSystem, weights: Real) -> Complex:
    """Return the C (directions, outputs, n) that gives the states of `system` these weights.

    >>> system = DiagonalSystem.from_discrete([0.5], [[1]], [[1 + 2j]], gain=2)
    >>> weights(system).ravel(), readout(system, weights(system)).ravel()
    (array([ 2., -4.]), array([1.+2.j]))
    """
    parts = ChannelLayout.of(system).gather(weights).reshape(system.n, system.directions, 2, -1) / system.gain
    return np.ascontiguousarray((parts[:, :, 0] - 1j * parts[:, :, 1]).transpose(1, 2, 0))
