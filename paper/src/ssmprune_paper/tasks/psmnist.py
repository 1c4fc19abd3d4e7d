"""Permuted sequential MNIST: the pixels of a digit in one fixed, scattered order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ssmprune.tasks import SequentialMnist


def bit_reversal(bits: int) -> NDArray[np.int64]:
    """Return each number below 2^bits with its binary digits in reverse order.

    >>> bit_reversal(3).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    order = np.zeros(1, np.int64)
    for _ in range(bits):
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


@dataclass(frozen=True)
class PermutedMnist(SequentialMnist):
    """S5's permutation: the bit reversal of 1,024, entries below 784 kept."""

    name = "psmnist"

    def order(self) -> NDArray[np.int64]:
        """Return the pixel that is read at each step."""
        order = bit_reversal(10)
        return order[order < 784]


TASK = PermutedMnist()
