"""One cell of a sweep: prune a model in one way, evaluate what is left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import apply, tasks
from ..bench.speed import evaluation
from ..bench.timing import interleaved
from ..bench.work import parameters
from ..errors import InputError
from ..models import load
from ..models.cards import task_parameters
from ..models.classifier import Classifier
from ..plan import Plan
from ..tasks._task import Split, Task, fewer
from ..training.calibration_inputs import part_of
from ..training.evaluate import check_fits, evaluate, tensors
from . import approaches
from .approaches import Subject
from .store import FULL, Cell, Key

AT_ONCE = 40_000  # steps of an evaluated batch; the model cuts it into what fits its cache
CALIBRATION = 200  # unlabelled training sequences
ROUNDS = 3  # of timing


@dataclass(frozen=True)
class Job:
    """A cell to be done; the plan is handed on where an earlier cell has made it already."""

    key: Key
    speed: bool = False
    plan: Plan | None = None

    @property
    def every(self) -> int:
        """Each how many-th sample is kept."""
        return round(1 / self.key.rate)


@dataclass(frozen=True)
class Done:
    """A cell and its plan, or the reason why there is no such model."""

    key: Key
    cell: Cell | None = None
    plan: Plan | None = None
    refusal: str = ""


def prepared(
    file: Path, name: str, task: Task, root: Path | None, parts: list[tuple[str, int]], calibrate: bool
) -> Subject:
    """Load a checkpoint with the parts of its data, (split, every), that its cells need."""
    model = load(file)
    splits = {(split, every): at_rate(task, every).load(split, root) for split, every in parts}
    for split in splits.values():
        check_fits(model, split)
    batches = part_of(task.load("train", root), CALIBRATION) if calibrate else []
    return Subject(name, task.name, model, splits, batches)


def at_rate(task: Task, every: int) -> Task:
    """The task with only each n-th sample kept."""
    return task if every == 1 else task.replace(every=every * task.parameters().get("every", 1))


def batch_size(split: Split) -> int:
    """Examples to evaluate at once."""
    return max(1, AT_ONCE // split.length)


def run(subject: Subject, job: Job) -> Done:
    """Do a cell. What an approach refuses to do is a result, too."""
    key = job.key
    try:
        small, plan = _pruned(subject, job)
    except InputError as error:
        return Done(key, refusal=str(error))
    whole = subject.splits[key.split, job.every]
    split = fewer(whole, key.examples)
    seen = evaluate(small.at_rate(job.every), split, batch_size(split))
    cell = Cell(
        **key._asdict(),
        task=subject.task,
        accuracy=seen.accuracy,
        loss=seen.loss,
        states=states(small),
        states_before=states(subject.model),
        parameters=parameters(small),
        parameters_before=parameters(subject.model),
        speed=_speed(subject.model, small, split) if job.speed else None,
    )
    return Done(key, cell, plan)


def states(model: Classifier) -> dict[str, int]:
    """The states of every layer; a conjugate pair counts as two."""
    return {layer: system.states for layer, system in apply.read(model, unstable="keep").items()}


def _pruned(subject: Subject, job: Job) -> tuple[Classifier, Plan | None]:
    if job.key.method == FULL:
        return subject.model, None
    return approaches.get(job.key.method).prune(subject, job.key.ratio, job.key.seed, job.plan)


def _speed(full: Classifier, small: Classifier, split: Split) -> float:
    """How many times faster than the unpruned model the pruned one evaluates a batch, timed in turns."""
    x, _, _ = tensors(split.batch(np.arange(min(batch_size(split), len(split)))), torch.device("cpu"))
    seconds = interleaved({"full": evaluation(full, x), "small": evaluation(small, x)}, ROUNDS)
    return (seconds["full"] / seconds["small"]).median


def task_of(card: dict[str, Any], file: Path, name: str | None) -> Task:
    """The task a checkpoint was trained on, with the parameters of its card; `name` if its card tells of none."""
    known = card.get("task")
    if name is None and known is None:
        raise InputError(f"{file} has no card that names its task; say which with --task.")
    task = tasks.get(name or str(known))
    return task.replace(**task_parameters(file, task.name))
