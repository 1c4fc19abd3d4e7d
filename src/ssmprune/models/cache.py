"""How much of a batch is worked on at a time, so that what one operation writes the next one finds in the cache."""

from __future__ import annotations

from collections.abc import Iterator

STEPS_AT_ONCE = 8192  # of all sequences together; 100 to 300 numbers a step fill some megabytes


def sequences_at_once(length: int) -> int:
    """How many sequences of this length go together."""
    return max(1, STEPS_AT_ONCE // length)


def groups(batch: int, length: int) -> Iterator[slice]:
    """The rows of a batch that go together.

    >>> list(groups(5, 4000))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = sequences_at_once(length)
    return (slice(start, min(start + size, batch)) for start in range(0, batch, size))
