"""A layer's output as a linear regression on its states.

The features of a state are its real and imaginary part in each direction, [Re x, Im x, Re x', Im x']. The layer's
output is Wᵀz with W = gain [Re C, -Im C, Re C', -Im C'], so what a state is worth, and what others can take over from
it, are questions about W and the second moments of z.

A MIMO layer is one regression problem with many outputs; a multi-SISO layer is one problem with one output for every
channel. Problems stand side by side, filled up with silent states: z has the shape (problems, slots, parts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Complex, Index, Real
from .system import DiagonalSystem


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each of n states stands: its problem, and its slot there."""

    problem: Index  # (n,)
    slot: Index  # (n,)
    problems: int
    slots: int

    @classmethod
    def of(cls, system: DiagonalSystem) -> Layout:
        """Lay out the states of a system in their order.

        >>> flat = DiagonalSystem.from_discrete([0.5] * 3, [[1]] * 3, [[1] * 3], channel=[0, 2, 2], channels=4)
        >>> Layout.of(flat).slot, Layout.of(flat).slots
        (array([0, 0, 1]), 2)
        """
        if system.channel is None:
            return cls(np.zeros(system.n, np.int64), np.arange(system.n), 1, system.n)
        order = np.argsort(system.channel, kind="stable")
        counts = np.bincount(system.channel, minlength=system.channels)
        slot = np.empty(system.n, np.int64)
        slot[order] = np.arange(system.n) - np.repeat(np.cumsum(counts) - counts, counts)
        return cls(system.channel, slot, system.channels, int(counts.max(initial=0)))

    def spread(self, values: NDArray[Any], fill: float = 0) -> NDArray[Any]:
        """Put one entry per state, (n, ...), into its place, (problems, slots, ...)."""
        places: NDArray[Any] = np.full((self.problems, self.slots, *values.shape[1:]), fill, values.dtype)
        places[self.problem, self.slot] = values
        return places

    def gather(self, places: NDArray[Any]) -> NDArray[Any]:
        """Take every state's entry, (n, ...), from its place, (problems, slots, ...)."""
        values: NDArray[Any] = places[self.problem, self.slot]
        return values


def weights(system: DiagonalSystem) -> Real:
    """Return W (problems, slots, parts, outputs of a problem): the layer's output is Wᵀz."""
    C = system.gain * system.C.transpose(2, 0, 1)  # (n, directions, outputs)
    return Layout.of(system).spread(np.stack([C.real, -C.imag], axis=2).reshape(system.n, -1, C.shape[2]))


def readout(system: DiagonalSystem, weights: Real) -> Complex:
    """Return the C (directions, outputs, n) that gives the states of `system` these weights.

    >>> system = DiagonalSystem.from_discrete([0.5], [[1]], [[1 + 2j]], gain=2)
    >>> weights(system).ravel(), readout(system, weights(system)).ravel()
    (array([ 2., -4.]), array([1.+2.j]))
    """
    parts = Layout.of(system).gather(weights).reshape(system.n, system.directions, 2, -1) / system.gain
    return np.ascontiguousarray((parts[:, :, 0] - 1j * parts[:, :, 1]).transpose(1, 2, 0))
