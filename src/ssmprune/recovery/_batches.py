"""Unlabelled inputs in batches of a size to learn from, and those cut to what the memory allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import torch

from ..calibration.data import Sequences, count, take
from ..errors import InputError

BATCH = 32  # sequences of a step
FEWEST = 8  # sequences of a step if they are long: steps of 32 would be too few in some minutes to learn anything
STEPS_PER_PASS = 2**15  # of all sequences of a backward pass together: bounds the memory
SEQUENCES = 8000  # more than a few minutes of learning can see


def batches(data: Iterable[Any]) -> list[Sequences]:
    """Cut data as `collect` takes them into batches of at most 32 sequences, 8 if long, and at least eight batches."""
    joined = _join(take(data, SEQUENCES))
    size = max(2, min(BATCH, count(joined) // 8 // 2 * 2))
    cut = [batch for long in joined for batch in _slices(long, min(size, max(FEWEST, sequences_per_pass(long))))]
    if len(cut) < 2:
        raise InputError("Recovery needs at least four sequences: some to learn from, some held out.")
    return cut


def micro_batches(batch: Sequences) -> list[Sequences]:
    """Cut a batch into what the memory allows in a backward pass."""
    return list(_slices(batch, sequences_per_pass(batch)))


def sequences_per_pass(sequences: Sequences) -> int:
    """Return how many sequences of this length the memory allows in a backward pass."""
    return max(2, STEPS_PER_PASS // sequences.x.shape[1] // 2 * 2)


def _join(given: list[Sequences]) -> list[Sequences]:
    """Join batches of equally long sequences that follow each other, so that all slices but the last are full."""
    joined = []
    for _, group in groupby(given, key=lambda batch: (batch.x.shape[1:], batch.lengths is None)):
        xs, lengths = zip(*group, strict=True)
        joined.append(Sequences(torch.cat(xs), None if lengths[0] is None else torch.cat(lengths)))
    return joined


def _slices(sequences: Sequences, size: int) -> Iterator[Sequences]:
    """Yield slices of `size` sequences; a last slice of one is dropped, since models of pairs cannot take it."""
    x = sequences.x
    for start in range(0, len(x), size):
        rows = slice(start, start + size)
        if len(x[rows]) > 1 or len(x) == 1:
            yield sequences.rows(rows)
