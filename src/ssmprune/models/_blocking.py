"""How much of a batch is worked on at a time, so that an operation finds what the last one wrote in the cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch

NUMBERS_AT_ONCE = 1 << 21  # in an activation: 8 MB in single precision


def steps_at_once(width: int) -> int:
    """Return the longest part of a sequence (length, width) that is worked on at a time."""
    return max(1, NUMBERS_AT_ONCE // width)


def groups(batch: int, length: int, width: int) -> Iterator[slice]:
    """Yield the rows of a batch (batch, length, width) that go together.

    >>> list(groups(5, 8000, 128))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = max(1, NUMBERS_AT_ONCE // (length * width))
    return (slice(start, min(start + size, batch)) for start in range(0, batch, size))


def keep_freed_memory() -> None:
    """Let the C library keep the memory that a layer frees for the next.

    glibc returns large freed blocks to the system, which then has to clear every page again: a third of the time of
    an evaluation. It stops for blocks up to the largest one, of at most 32 MB, that it has seen come and go.
    """
    torch.empty(31 << 20, dtype=torch.uint8)  # never touched, so it costs microseconds
