"""A torch model's answers to labelled batches, beside the right ones, and how many of them are right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from .data import Sequences, take
from .record import answer, evaluating


def is_labelled(batch: Any) -> bool:
    """Say whether a batch is (x, labels) or (Sequences(x, lengths), labels)."""
    return isinstance(batch, tuple | list) and not isinstance(batch, Sequences) and len(batch) > 1


def logits_and_labels(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Return logits (answers, classes) and the right classes (answers,), on the same device.

    A model answers for each sequence, or at each step; steps that are padding do not count.
    """
    if not is_labelled(batch):
        kind = type(batch).__name__
        raise InputError(f"A labelled batch is (x, labels) or (ssmprune.Sequences(x, lengths), labels); got {kind}.")
    x, labels, *_ = batch
    [sequences] = take([x if isinstance(x, Sequences) else [x]], None)
    logits = answer(model, sequences)
    if logits is None:
        raise InputError(f"Right answers cannot be counted: {type(model).__name__} answers with no tensor of logits.")
    right = torch.as_tensor(labels).to(logits.device)
    steps = sequences.x.shape[:2]
    if sequences.lengths is not None and right.shape == steps and logits.ndim == 2:  # an answer at each step
        right = right[torch.arange(steps[1], device=right.device) < sequences.lengths.to(right.device)[:, None]]
    if logits.shape[:-1] != right.shape:
        raise InputError(
            f"Right answers cannot be counted: labels of shape {tuple(right.shape)} do not go with answers of shape "
            f"{tuple(logits.shape[:-1])}; give one class for each answer."
        )
    return logits.flatten(0, -2), right.flatten()


@dataclass(frozen=True, eq=False)
class Accuracy:
    """The share of right answers to labelled batches (x, labels) or (Sequences(x, lengths), labels)."""

    batches: list[Any]

    def __post_init__(self) -> None:
        """Refuse what has no labels."""
        if not all(map(is_labelled, self.batches)):
            raise InputError("max_loss counts right answers: give batches (x, labels), or a function of a model.")
        if not self.examples:
            raise InputError("max_loss counts right answers; there are no examples.")

    @property
    def examples(self) -> int:
        """On how many examples answers are counted."""
        return sum(len(batch[1]) for batch in self.batches)

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> float:
        """Return a model's, from 0 to 1; an answer is a sequence's, or a step's that is no padding."""
        right = total = 0
        with evaluating(model):
            for batch in self.batches:
                if len(batch[1]):
                    logits, wanted = logits_and_labels(model, batch)
                    right, total = right + int((logits.argmax(-1) == wanted).sum()), total + len(wanted)
        return right / total
