"""Calibration data as people have it: what a loader yields, of which a few sequences are enough."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ..arrays import is_count
from ..errors import InputError, need_torch

if TYPE_CHECKING:
    from torch import Tensor

SEQUENCES = 200  # enough for the moments of a layer, see `collect.stride`
STEPS_AT_ONCE = 8192  # over all sequences of a slice: bounds the memory and fits a cache
EXPECTED = (
    "A batch is x (batch, length, ...), or a tuple or list whose first member is x (labels are ignored), "
    "or ssmprune.Sequences(x, lengths)"
)


class Sequences(NamedTuple):
    """Sequences x (batch, length, ...) that end at `lengths` (batch,); what comes after is padding and must not count.

    Without lengths, all of them are as long as x.

    >>> import torch
    >>> Sequences(torch.tensor([[5, 3, 0], [2, 7, 4]]), lengths=torch.tensor([2, 3])).lengths
    tensor([2, 3])
    """

    x: Tensor  # arrays and lists become tensors in `take`
    lengths: Tensor | None = None

    def rows(self, which: Any) -> Sequences:
        """Return some of the sequences, by a slice or a mask."""
        return Sequences(self.x[which], None if self.lengths is None else self.lengths[which])


def take(
    batches: Iterable[Any],
    sequences: int | None = SEQUENCES,
    most_bytes: float = math.inf,
    *,
    pairs: bool = False,
) -> list[Sequences]:
    """Return the inputs alone, as tensors, of the first `sequences` sequences; None takes all.

    No more batches are drawn than needed, and none after `most_bytes` are full.
    pairs: the model compares pairs, and a batch is the first members of all, then the second; then each pair becomes a
        batch of its own, so that whatever is cut, held out or joined later leaves partners together.

    >>> import torch
    >>> loader = ((torch.zeros(30, 784, 1), "labels") for _ in range(1000))
    >>> [len(batch.x) for batch in take(loader, sequences=50)]
    [30, 20]
    """
    if sequences is not None and not is_count(sequences, least=1):
        raise InputError(f"sequences is a number of sequences, at least 1, or None for all; got {sequences!r}.")
    if (shape := getattr(batches, "shape", None)) is not None:
        raise InputError(f"data is a list of batches; got one array of shape {tuple(shape)}: give [data].")
    if not isinstance(batches, Iterable) or isinstance(batches, Mapping | str):
        raise InputError(f"data is a list of batches or a DataLoader; got {type(batches).__name__}.")
    need_torch()
    taken: list[Sequences] = []
    left = sequences
    given = map(_inputs, batches)
    for batch in (pair for both in given for pair in _pairs(both)) if pairs else given:
        inputs = batch.rows(slice(left))
        if len(inputs.x):
            taken.append(inputs)
        most_bytes -= inputs.x.nbytes
        left = None if left is None else left - len(inputs.x)
        if left == 0 or most_bytes <= 0:
            break
    if not taken:
        raise InputError("Calibration needs at least one sequence; the batches were empty.")
    return taken


def count(batches: Iterable[Sequences]) -> int:
    """Return the number of sequences in batches."""
    return sum(len(batch.x) for batch in batches)


def compares_pairs(model: Any) -> bool:
    """Say whether a model is one of ours that compares pairs of sequences."""
    return getattr(getattr(model, "config", None), "retrieval", None) is True


def _pairs(batch: Sequences) -> Iterator[Sequences]:
    half, odd = divmod(len(batch.x), 2)
    if odd:
        raise InputError(f"Expected an even number of documents (pairs to compare), got {len(batch.x)}.")
    for first in range(half):
        yield batch.rows([first, half + first])


def in_slices(batches: Iterable[Sequences], model: Any) -> Iterator[Sequences]:
    """Cut batches for a model into slices of a few sequences; where it compares pairs, join what `take` took apart."""
    pairs = compares_pairs(model)
    for batch in join(pair for both in batches for pair in _pairs(both)) if pairs else batches:
        size = max(2, STEPS_AT_ONCE // batch.x.shape[1]) // 2 * 2
        for start in range(0, len(batch.x), size):
            part = batch.rows(slice(start, start + size))
            yield in_halves(part) if pairs else part


def join(batches: Iterable[Sequences]) -> list[Sequences]:
    """Join batches of equally long sequences that follow each other, so that all slices but the last are full."""
    import torch

    joined = []
    for _, group in groupby(batches, key=lambda batch: (batch.x.shape[1:], batch.lengths is None)):
        xs, lengths = zip(*group, strict=True)
        joined.append(Sequences(torch.cat(xs), None if lengths[0] is None else torch.cat(lengths)))
    return joined


def in_halves(pairs: Sequences) -> Sequences:
    """Return pairs whose members follow each other as a model takes them: the first of all, then the second."""
    import torch

    return pairs.rows(torch.arange(len(pairs.x)).view(-1, 2).T.flatten())


def _inputs(batch: Any) -> Sequences:
    """Return the inputs of a batch as a loader yields it."""
    if isinstance(batch, Mapping):
        raise InputError(
            f"{EXPECTED}; got a mapping with {', '.join(map(repr, batch)) or 'nothing'}: "
            "give the inputs alone, as in data=(batch['x'] for batch in loader)."
        )
    lengths = None
    if isinstance(batch, Sequences):
        batch, lengths = batch
    elif isinstance(batch, tuple | list):
        if not batch:
            raise InputError(f"{EXPECTED}; got an empty {type(batch).__name__}.")
        batch = batch[0]
    x = _tensor(batch)
    if x.ndim < 2:
        raise InputError(f"{EXPECTED}; got x of shape {tuple(x.shape)}.")
    if lengths is not None:
        lengths = _tensor(lengths)
        fits = lengths.shape == x.shape[:1] and not lengths.is_floating_point()
        if not fits or not ((lengths > 0) & (lengths <= x.shape[1])).all():
            raise InputError(
                f"The lengths of padded sequences must be {len(x)} whole numbers from 1 to {x.shape[1]}, "
                f"not {lengths.tolist()}."
            )
    return Sequences(x, lengths)


def _tensor(values: Any) -> Tensor:
    import torch

    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{EXPECTED}; got {type(values).__name__} ({error}).") from error
