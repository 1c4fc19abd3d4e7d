"""The loss and accuracy of a model on labelled data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..arrays import Real
from ..calibration.data import Sequences
from ..calibration.record import answer_batches
from ..deploy.compiled import Forward, forward
from ..errors import InputError
from ..models.classifier import Classifier
from ..tasks.task import Batch, Split, Task

WORTH_COMPILING = 1000  # examples
Tick = Callable[[int], object]  # takes the number of examples that were just evaluated


@dataclass(frozen=True)
class Score:
    """Mean loss and share of right answers over `examples` examples."""

    loss: float
    accuracy: float
    examples: int


def at_rate(task: Task, every: int) -> Task:
    """Return the task with only every n-th sample kept."""
    return task if every == 1 else task.replace(every=every * task.parameters().get("every", 1))


def tensors(batch: Batch, device: torch.device) -> tuple[Sequences, Tensor]:
    """Return the sequences and the labels of a numpy batch on `device`."""
    lengths = None if batch.lengths is None else torch.from_numpy(batch.lengths).to(device)
    return Sequences(torch.from_numpy(batch.x).to(device), lengths), torch.from_numpy(batch.y).to(device)


def tally(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the sums of loss, right answers and examples, (3,) float64, which add up over batches and processes."""
    loss = cross_entropy(logits.double(), labels, reduction="none").sum()
    right = (logits.argmax(-1) == labels).double().sum()
    return torch.stack([loss, right, torch.full_like(right, len(labels))])


def score(sums: Tensor) -> Score:
    """Return the means of a `tally`.

    >>> score(torch.tensor([1.0, 3.0, 4.0]))
    Score(loss=0.25, accuracy=0.75, examples=4)
    """
    loss, right, examples = sums.tolist()
    return Score(loss / examples, right / examples, int(examples))


def check_fits(model: nn.Module, split: Split) -> None:
    """Refuse data that are not of the model's kind."""
    if not isinstance(model, Classifier):
        kind = type(model).__name__
        raise InputError(f"A split is for our own classifiers; to evaluate {kind}, give batches (x, labels).")
    config = model.config
    sizes = {"inputs": (config.inputs, split.inputs), "outputs": (config.outputs, split.outputs)}
    for what, (has, needed) in sizes.items():
        if has != needed:
            raise InputError(f"The model has {has} {what}, the task {needed}; is it a model for this task?")


def evaluate(
    model: nn.Module,
    data: Split | Iterable[Any],
    batch: int = 50,
    engine: str | Forward = "torch",
    tick: Tick = lambda count: None,
) -> Score:
    """Return the loss and accuracy of a classifier on labelled data.

    model: one of ours; with labelled batches, any torch model that gives logits, for each sequence or each step.
    data: a split of a task, or batches (x, labels) or (Sequences(x, lengths), labels), such as a DataLoader gives.
    batch: how many examples of a split are evaluated at once.
    engine: what computes a split, "torch", "compiled" or "auto", which compiles where there is a C compiler.
    tick: called with the number of examples that were evaluated.

    >>> model = nn.Linear(2, 3)
    >>> evaluate(model, [(torch.randn(5, 7, 2), torch.zeros(5, 7, dtype=torch.long))]).examples
    35
    """
    if isinstance(data, Split):
        answers = answer_split(model, data, batch, engine=engine)
    else:
        answers = answer_batches(model, data)
    sums = torch.zeros(3, dtype=torch.float64)
    for logits, labels in answers:
        sums += tally(logits, labels).cpu()
        tick(len(labels))
    if not sums[2]:
        raise InputError("There is nothing to evaluate: no batches came.")
    return score(sums)


def right_answers(model: nn.Module, split: Split) -> Real:
    """Return which answers to a split are right, (examples,), 1 or 0; compiled where that is worth it."""
    answers = answer_split(model, split, 50, engine="auto" if len(split) >= WORTH_COMPILING else "torch")
    return np.concatenate([(logits.argmax(-1) == labels).double().cpu().numpy() for logits, labels in answers])


@torch.no_grad()
def answer_split(
    model: nn.Module, split: Split, batch: int, rows: NDArray[np.int64] | None = None, engine: str | Forward = "torch"
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield logits and labels of a split, or of its examples `rows`, batch by batch, in evaluation mode."""
    check_fits(model, split)
    rows = np.arange(len(split)) if rows is None else rows
    device = next(model.parameters()).device
    with forward(model, engine) as logits_of:
        for start in range(0, len(rows), batch):
            sequences, labels = tensors(split.batch(rows[start : start + batch]), device)
            yield logits_of(*sequences), labels
