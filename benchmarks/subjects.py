"""What can be measured: a checkpoint, or an untrained model of a size of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ssmprune import tasks
from ssmprune.errors import InputError
from ssmprune.models import checkpoint
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.tasks.cards import read_card, task_of
from ssmprune.training import recipes

AT_ONCE = 40_000  # steps of a pass, over all sequences, unless told otherwise: about sMNIST's batch of 50
UNKNOWN_LENGTH = 1024  # of the sequences of a checkpoint whose card names no task


@dataclass(frozen=True)
class Size:
    """A model's architecture and the batches it is trained on."""

    config: Config
    batch: int  # examples; an example of retrieval is two documents
    length: int


@dataclass(frozen=True)
class MeasuredModel:
    """A model to be measured, and on what."""

    name: str
    weights: str  # where they come from
    model: Classifier
    batch: int
    length: int

    def inputs(self) -> Tensor:
        """Return random sequences of the kind the model takes."""
        return inputs(self.model.config, self.batch, self.length)


def found() -> dict[str, Size]:
    """Return the size of every recipe of the paper, by a name like "smnist-s5".

    >>> size = found()["smnist-s5"]
    >>> size.config.width, size.config.states, size.batch, size.length
    (96, (64, 64, 64, 64), 50, 784)
    """
    sizes = {}
    for (name, family, kind), recipe in recipes.found().items():
        if kind == "paper":
            task = tasks.get(name).replace(**recipe.task)
            config = recipe.config(task, task.inputs, task.outputs)
            sizes[f"{name}-{family}"] = Size(config, recipe.batch, task.length)
    return sizes


def subject(name: str, batch: int | None = None, length: int | None = None) -> MeasuredModel:
    """Return the checkpoint at the path `name`, or an untrained model of the size called `name`, in float32.

    Unless told otherwise, sequences are as long as the task's (1,024 steps for a checkpoint without a card) and the
    batch is the recipe's, cut to about 40,000 steps.
    """
    if Path(name).is_file():
        model, weights = checkpoint.load(name).float(), "trained"
        usual = Size(model.config, AT_ONCE, length_of(Path(name)))
    elif name in found():
        usual = found()[name]
        model, weights = untrained(usual.config), "untrained, random"
    else:
        raise InputError(f"{name!r} is neither a file nor a size; the sizes are {', '.join(found())}.")
    length = usual.length if length is None else length
    if batch is None:
        fitting = AT_ONCE // (max(1, length) * _documents(usual.config))
        batch = max(1, min(usual.batch, fitting))
    if batch < 1 or length < 1:
        raise InputError(f"A batch needs at least one sequence of one step, not {batch} of {length}.")
    return MeasuredModel(name, weights, model, batch, length)


def untrained(config: Config) -> Classifier:
    """Return a model with random weights, the same ones each time, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Classifier(config).eval()


def inputs(config: Config, batch: int, length: int) -> Tensor:
    """Return random sequences for `batch` examples: (batch, length, inputs) numbers or (batch, length) tokens."""
    sequences = batch * _documents(config)
    if config.tokens:
        return torch.randint(config.inputs, (sequences, length))
    return torch.randn(sequences, length, config.inputs)


def length_of(file: Path) -> int:
    """Return the length of the sequences that a checkpoint was trained on, as far as its card tells."""
    return task_of(file).length if read_card(file).get("task") else UNKNOWN_LENGTH


def _documents(config: Config) -> int:
    return 2 if config.retrieval else 1
