"""How well a model does on a split, and the statistics that its batch norms use there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..deploy.compute import forward
from ..errors import InputError
from ..models.classifier import Classifier
from ..tasks.task import Batch, Split, Task

Tick = Callable[[int], object]  # is told how many more examples are done


@dataclass(frozen=True)
class Score:
    """Mean loss and share of right answers (of amounts: of variance explained) over `examples` examples."""

    loss: float
    accuracy: float
    examples: int


def at_rate(task: Task, every: int) -> Task:
    """Return the task with only every n-th sample kept."""
    return task if every == 1 else task.replace(every=every * task.parameters().get("every", 1))


def tensors(batch: Batch, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return inputs, labels and lengths (None when nothing is padded) of a numpy batch on `device`."""
    lengths = None if batch.lengths is None else torch.from_numpy(batch.lengths).to(device)
    return torch.from_numpy(batch.x).to(device), torch.from_numpy(batch.y).to(device), lengths


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the losses (batch,): cross-entropies, or mean squared errors where labels are amounts."""
    if labels.is_floating_point():
        return (logits - labels).square().mean(-1)
    return cross_entropy(logits, labels, reduction="none")


def tally(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the sums of loss, right answers and examples, (3,) float64, which add up over batches and processes.

    For amounts, which have unit variance, the right answers are the share of that variance which is explained.
    """
    losses = loss_of(logits.double(), labels)
    right = 1 - losses if labels.is_floating_point() else (logits.argmax(-1) == labels).double()
    return torch.stack([losses.sum(), right.sum(), torch.full_like(right.sum(), len(labels))])


def score(sums: Tensor) -> Score:
    """Return the means of a `tally`.

    >>> score(torch.tensor([1.0, 3.0, 4.0]))
    Score(loss=0.25, accuracy=0.75, examples=4)
    """
    loss, right, examples = sums.tolist()
    return Score(loss / examples, right / examples, int(examples))


def check_fits(model: Classifier, split: Split) -> None:
    """Refuse data that are not of the model's kind."""
    config = model.config
    sizes = {"inputs": (config.inputs, split.inputs), "outputs": (config.outputs, split.outputs)}
    for what, (has, needed) in sizes.items():
        if has != needed:
            raise InputError(f"The model has {has} {what}, the task {needed}; is it a model for this task?")


def check_has_classes(split: Split) -> None:
    """Refuse examples that have no right answers to be counted."""
    if split.asks_for_amounts:
        raise InputError(
            "Points of accuracy are for tasks with classes; this one asks for amounts. `ssmprune evaluate` takes both."
        )


@torch.no_grad()
def tally_split(
    model: nn.Module,
    split: Split,
    batch: int,
    indices: NDArray[np.int64],
    engine: str = "torch",
    tick: Tick = lambda count: None,
) -> Tensor:
    """Return the `tally` of `model` on the examples `indices` of `split`, in evaluation mode."""
    device = next(model.parameters()).device
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    with forward(model, engine) as logits_of:
        for start in range(0, len(indices), batch):
            x, labels, lengths = tensors(split.batch(indices[start : start + batch]), device)
            sums += tally(logits_of(x, lengths), labels)
            tick(len(labels))
    return sums


def evaluate(
    model: Classifier, split: Split, batch: int = 50, engine: str = "torch", tick: Tick = lambda count: None
) -> Score:
    """Return loss and accuracy of `model` on the whole of `split`, computed by torch or one of `deploy.compute`."""
    check_fits(model, split)
    return score(tally_split(model, split, batch, np.arange(len(split)), engine, tick))


@torch.no_grad()
def answers(
    model: Classifier, split: Split, batch: int = 50, engine: str = "torch"
) -> Iterator[tuple[float, NDArray[np.bool_]]]:
    """Yield, batch by batch, the sum of the cross-entropies and which examples are answered rightly (batch,)."""
    check_fits(model, split)
    device = next(model.parameters()).device
    with forward(model, engine) as logits_of:
        for start in range(0, len(split), batch):
            x, labels, lengths = tensors(split.batch(np.arange(start, min(start + batch, len(split)))), device)
            logits = logits_of(x, lengths)
            yield tally(logits, labels)[0].item(), (logits.argmax(-1) == labels).numpy(force=True)
