"""Texts of different lengths in one flat array; a batch of them is padded with zeros on the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Documents:
    """Document i is `tokens[starts[i] : starts[i + 1]]`; token 0 is the padding and occurs in none."""

    tokens: NDArray[Any]  # (all tokens,) small unsigned integers
    starts: NDArray[np.int64]  # (documents + 1,)

    @staticmethod
    def join(documents: Sequence[NDArray[Any]]) -> Documents:
        """Lay the documents one after the other."""
        starts = np.cumsum([0, *map(len, documents)])
        return Documents(np.concatenate([np.empty(0, np.uint8), *documents]), starts)

    def padded(self, rows: NDArray[np.int64], length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return documents `rows` as (rows, length) tokens, cut or padded, and their true lengths (at least 1).

        >>> docs = Documents.join([np.array([5, 6, 7]), np.array([8])])
        >>> docs.padded(np.array([1, 0]), 2)
        (array([[8, 0], [5, 6]]), array([1, 2]))
        """
        first = self.starts[rows]
        lengths = np.minimum(self.starts[rows + 1] - first, length)
        steps = np.arange(length)
        inside = steps < lengths[:, None]
        x = np.zeros(inside.shape, np.int64)
        x[inside] = self.tokens[(first[:, None] + steps)[inside]]
        return x, np.maximum(lengths, 1)  # a mean over no step at all would not be a number
