"""What a pruned model learns from: unlabelled inputs in small batches, and what the whole model answers to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..calibration import recording
from ..calibration.batches import Padded, take
from ..calibration.recording import Sequences
from ..errors import InputError

BATCH = 32  # sequences of a step
FEWEST = 8  # of long ones: steps of 32 take so long that a few minutes are too short to learn anything
STEPS_AT_ONCE = 2**15  # over all sequences of a backward pass: bounds the memory
SEQUENCES = 8000  # more than a few minutes can see


def lessons(data: Iterable[Any], sequences: int | None = SEQUENCES) -> list[Sequences]:
    """Cut data as `collect` takes them into batches of at most 32 sequences, 8 if long, and at least eight batches."""
    batches = take(data, sequences)
    wholes = join_batches([Sequences(*batch) if isinstance(batch, Padded) else Sequences(batch) for batch in batches])
    size = max(2, min(BATCH, sum(len(whole.x) for whole in wholes) // 8 // 2 * 2))
    cut = [lesson for whole in wholes for lesson in slices(whole, min(size, max(FEWEST, at_once(whole))))]
    if len(cut) < 2:
        raise InputError("Recovery needs at least four sequences: some to learn from, some held out.")
    return cut


def join_batches(batches: list[Sequences]) -> list[Sequences]:
    """Join batches of equally long sequences that follow each other, so that all lessons but the last are full."""
    runs = groupby(batches, key=lambda batch: (batch.x.shape[1:], batch.lengths is None))
    together = []
    for _, alike in runs:
        xs, lengths = zip(*alike, strict=True)
        together.append(Sequences(torch.cat(xs), None if lengths[0] is None else torch.cat(lengths)))
    return together


def slices(whole: Sequences, size: int) -> Iterator[Sequences]:
    """Cut some sequences into slices of `size`; a last slice of one is dropped: models of pairs cannot take it."""
    for start in range(0, len(whole.x), size):
        rows = slice(start, start + size)
        if len(whole.x[rows]) > 1 or len(whole.x) == 1:
            yield Sequences(whole.x[rows], None if whole.lengths is None else whole.lengths[rows])


def in_memory(lesson: Sequences) -> list[Sequences]:
    """Cut a lesson into what one backward pass has the memory for."""
    return list(slices(lesson, at_once(lesson)))


def at_once(sequences: Sequences) -> int:
    """Return how many sequences of this length one backward pass has the memory for."""
    return max(2, STEPS_AT_ONCE // sequences.x.shape[1] // 2 * 2)


def answer(model: nn.Module, part: Sequences) -> Tensor:
    """Return what a model answers, without its answers at steps that are padding."""
    output = recording.answer(model, part)
    if output is None:
        raise InputError(f"Recovery compares output tensors; {type(model).__name__} gives none.")
    return output


def divergence_of_logits(logits: Tensor, expected: Tensor) -> Tensor:
    """Return the mean divergence KL(expected || logits) of Kullback and Leibler over all answers."""
    ours, theirs = (F.log_softmax(x.flatten(0, -2), dim=-1) for x in (logits, expected))
    return F.kl_div(ours, theirs, reduction="batchmean", log_target=True)


def changed_probability(logits: Tensor, expected: Tensor) -> Tensor:
    """Return how much probability moved from class to class, from 0 to 1, the mean over all answers.

    Unlike the divergence it is bounded, so a few answers that are wrong with confidence do not outweigh all others.

    >>> float(changed_probability(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 99.0]])))
    0.5
    """
    return (logits.softmax(-1) - expected.softmax(-1)).abs().sum(-1).mean() / 2


def squared_error(outputs: Tensor, expected: Tensor) -> Tensor:
    """Return the mean squared error."""
    return (outputs - expected).abs().square().mean()


def agreement(logits: Tensor, expected: Tensor) -> float:
    """Return the share of answers on which two models agree.

    >>> agreement(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([[0.0, 2.0], [0.0, 1.0]]))
    0.5
    """
    return float((logits.argmax(-1) == expected.argmax(-1)).double().mean())
