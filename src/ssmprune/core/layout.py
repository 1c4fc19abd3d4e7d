"""Where the states of a layer stand when they are laid out by channel.

A multi-SISO layer stores its states in one flat list, each with the channel that owns it, and channels may own any
number of states. Computations want a rectangle: channels side by side, filled up with silent states to the most that
any of them owns. A MIMO layer counts as a single channel with many inputs and outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Index
from .system import DiagonalSystem


@dataclass(frozen=True, eq=False)
class ChannelLayout:
    """The channel of each of n states, and its slot there."""

    channel: Index  # (n,)
    slot: Index  # (n,)
    channels: int
    slots: int  # the most states that a channel owns

    @classmethod
    def of(cls, system: DiagonalSystem) -> ChannelLayout:
        """Lay out the states of a system in their order.

        >>> flat = DiagonalSystem.from_discrete([0.5] * 3, [[1]] * 3, [[1] * 3], channel=[0, 2, 2], channels=4)
        >>> ChannelLayout.of(flat).slot, ChannelLayout.of(flat).slots
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
        """Put the entry of each state, (n, ...), into its place, (channels, slots, ...)."""
        places: NDArray[Any] = np.full((self.channels, self.slots, *values.shape[1:]), fill, values.dtype)
        places[self.channel, self.slot] = values
        return places

    def gather(self, places: NDArray[Any]) -> NDArray[Any]:
        """Take every state's entry, (n, ...), from its place, (channels, slots, ...)."""
        values: NDArray[Any] = places[self.channel, self.slot]
        return values
