"""Calibration data as people have it: what a loader yields, of which a few sequences are enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..arrays import is_count
from ..errors import InputError, need_torch

if TYPE_CHECKING:
    from torch import Tensor

SEQUENCES = 200  # enough for the moments of a layer, see `strided.stride`
EXPECTED = (
    "A batch is x (batch, length, ...), or a tuple or list whose first member is x (labels are ignored), "
    "or ssmprune.Padded(x, lengths)"
)


class Padded(NamedTuple):
    """Sequences x (batch, length, ...) that end at `lengths` (batch,); what comes after is padding and must not count.

    >>> Padded(x=[[5, 3, 0], [2, 7, 4]], lengths=[2, 3]).lengths
    [2, 3]
    """

    x: Any
    lengths: Any


Unlabelled: TypeAlias = "Tensor | Padded"


def take(batches: Iterable[Any], sequences: int | None = SEQUENCES) -> list[Unlabelled]:
    """Return the inputs alone, each batch x or Padded, of the first `sequences` sequences; None takes all.

    No more batches are drawn than needed.

    >>> import torch
    >>> loader = ((torch.zeros(30, 784, 1), "labels") for _ in range(1000))
    >>> [len(batch) for batch in take(loader, sequences=50)]
    [30, 20]
    """
    if sequences is not None and not is_count(sequences, least=1):
        raise InputError(f"sequences is a number of sequences, at least 1, or None for all; got {sequences!r}.")
    if (shape := getattr(batches, "shape", None)) is not None:
        raise InputError(f"data is a list of batches; got one array of shape {tuple(shape)}: give [data].")
    if not isinstance(batches, Iterable) or isinstance(batches, Mapping | str):
        raise InputError(f"data is a list of batches or a DataLoader; got {type(batches).__name__}.")
    need_torch()
    taken: list[Unlabelled] = []
    left = sequences
    for batch in batches:
        x, lengths = _inputs(batch)
        if x.ndim < 2:
            raise InputError(f"{EXPECTED}; got x of shape {tuple(x.shape)}.")
        if lengths is not None:
            _check_lengths(x, lengths)
        x, lengths = x[:left], None if lengths is None else lengths[:left]
        if len(x):
            taken.append(x if lengths is None else Padded(x, lengths))
        if left is not None:
            left -= len(x)
            if not left:
                break
    if not taken:
        raise InputError("Calibration needs at least one sequence; the batches were empty.")
    return taken


def count(batches: Iterable[Unlabelled]) -> int:
    """Return the number of sequences in batches."""
    return sum(len(batch.x if isinstance(batch, Padded) else batch) for batch in batches)


def _inputs(batch: Any) -> tuple[Tensor, Tensor | None]:
    """Return x and, where they are named, the lengths of a batch."""
    if isinstance(batch, Padded):
        return _tensor(batch.x), _tensor(batch.lengths)
    if isinstance(batch, Mapping):
        raise InputError(
            f"{EXPECTED}; got a mapping with {', '.join(map(repr, batch)) or 'nothing'}: "
            "give the inputs alone, as in data=(batch['x'] for batch in loader)."
        )
    if isinstance(batch, tuple | list):
        if not batch:
            raise InputError(f"{EXPECTED}; got an empty {type(batch).__name__}.")
        return _tensor(batch[0]), None
    return _tensor(batch), None


def _tensor(values: Any) -> Tensor:
    import torch

    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{EXPECTED}; got {type(values).__name__} ({error}).") from error
    return tensor


def _check_lengths(x: Tensor, lengths: Tensor) -> None:
    fits = lengths.shape == x.shape[:1] and not lengths.is_floating_point()
    if not fits or not ((lengths > 0) & (lengths <= x.shape[1])).all():
        raise InputError(
            f"The lengths of padded sequences must be {len(x)} whole numbers from 1 to {x.shape[1]}, "
            f"not {lengths.tolist()}."
        )
