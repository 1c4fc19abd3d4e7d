"""Counting a torch model's right answers to labelled batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..calibration.batches import Padded, take
from ..calibration.recording import Sequences, answer
from ..errors import InputError


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and then every part of it into the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@torch.no_grad()
def right_answers(model: nn.Module, batches: Iterable[Any]) -> float:
    """Return the share of right answers, from 0 to 1; an answer is a sequence's, or a step's that is no padding."""
    right = total = 0
    with evaluating(model):
        for x, labels, *_ in batches:
            if len(labels):
                given, wanted = _answers(model, x, labels)
                right, total = right + int((given == wanted).sum()), total + wanted.numel()
    return right / total


def _answers(model: nn.Module, x: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Return the classes that a model finds most probable, and those that are right."""
    [batch] = take([x if isinstance(x, Padded) else [x]], None)
    sequences = Sequences(*batch) if isinstance(batch, Padded) else Sequences(batch)
    logits, wanted = answer(model, sequences), torch.as_tensor(labels).cpu()
    if logits is None:
        raise InputError(f"max_loss counts right answers; {type(model).__name__} answers with no tensor of logits.")
    given = logits.argmax(-1).cpu()
    steps = sequences.x.shape[:2]
    if sequences.lengths is not None and wanted.shape == steps and given.ndim == 1:  # one answer for every step
        wanted = wanted[torch.arange(steps[1]) < sequences.lengths.cpu()[:, None]]
    if given.shape != wanted.shape:
        raise InputError(
            f"max_loss counts right answers: labels of shape {tuple(wanted.shape)} do not go with answers of shape "
            f"{tuple(given.shape)}; give one class for each answer."
        )
    return given, wanted
