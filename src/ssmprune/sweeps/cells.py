"""One cell of a sweep: prune a model in one way, evaluate what is left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from .. import apply
from ..bench.speed import evaluation
from ..bench.subjects import AT_ONCE
from ..calibration.batches import Unlabelled
from ..calibration.refit import FEW
from ..deploy.timing import time_in_turns
from ..errors import InputError
from ..models._size import parameters
from ..models.classifier import Classifier
from ..planning.plan import Plan
from ..tasks.task import Split, Task, fewer
from ..training.calibration_inputs import part_of
from ..training.evaluation import answers, at_rate, check_fits, check_has_classes, tensors
from . import approaches
from .answers import Right, pack
from .approaches import Subject
from .store import FULL, Cell, Key

CALIBRATION = 200  # unlabelled training sequences
# Of long sequences fewer, since a re-fit takes as long as they have steps; but not so few that it must be cautious.
CALIBRATION_STEPS = 320_000
ROUNDS = 3  # of timing


@dataclass(frozen=True)
class Job:
    """A cell to be done; the plan is handed on where an earlier cell has made it already."""

    key: Key
    timed: bool = False
    plan: Plan | None = None
    engine: str = "torch"  # what evaluates
    least: int = 0  # right answers; a model that cannot reach them is not evaluated to the end
    known: Cell | None = None  # what was measured before: then only the plan is wanted

    @property
    def every(self) -> int:
        """Return n where each n-th sample is kept."""
        return round(1 / self.key.rate)


@dataclass(frozen=True)
class Done:
    """A cell and its plan, or the reason why there is no such model, or a bound of its accuracy that is too low."""

    key: Key
    cell: Cell | None = None
    plan: Plan | None = None
    refusal: str = ""
    at_most: float | None = None


class Needs(NamedTuple):
    """What the cells of a checkpoint need of its data: the splits to evaluate, and calibration inputs or none."""

    splits: list[str]
    every: int = 1  # keep each n-th sample
    calibration: int = 0  # unlabelled training sequences


def load_subject(name: str, model: Classifier, task: Task, needs: Needs, root: Path | None) -> Subject:
    """Return a model with the parts of its data that its cells need."""
    splits = {(split, needs.every): at_rate(task, needs.every).load(split, root) for split in needs.splits}
    for split in splits.values():
        check_fits(model, split)
        check_has_classes(split)
    batches = _calibration(task.load("train", root), needs.calibration) if needs.calibration else []
    return Subject(name, task.name, model, splits, batches)


def _calibration(split: Split, sequences: int) -> list[Unlabelled]:
    return part_of(split, min(sequences, max(FEW, CALIBRATION_STEPS // split.length)))


def batch_size(split: Split) -> int:
    """Return how many examples to evaluate at once."""
    return max(1, AT_ONCE // split.length)


def run(subject: Subject, job: Job) -> Done:
    """Do a cell; that an approach refuses it is a result, too."""
    key = job.key
    try:
        small, plan = _prune(subject, job)
    except InputError as error:
        return Done(key, job.known, refusal=str(error))
    if job.known is not None:
        if job.known.states != states(small):
            raise InputError(
                f"{key.method} at {key.ratio:.10g} leaves {key.checkpoint!r} other states than when it was measured; "
                "sweep into a new folder."
            )
        return Done(key, job.known, plan)
    split = fewer(subject.splits[key.split, job.every], key.examples)
    loss, right = _answer(small.at_rate(job.every), split, job)
    if len(right) < len(split):
        return Done(key, plan=plan, at_most=1 - int((~right).sum()) / len(split))
    cell = Cell(
        **key._asdict(),
        task=subject.task,
        accuracy=int(right.sum()) / len(right),
        loss=float(f"{loss / len(right):.6g}"),  # digits that do not depend on how many threads added them up
        states=states(small),
        states_before=states(subject.model),
        parameters=parameters(small),
        parameters_before=parameters(subject.model),
        speed=_speed(subject.model, small, split) if job.timed else None,
        right=pack(right) if key.split == "test" else None,
    )
    return Done(key, cell, plan)


def states(model: Classifier) -> dict[str, int]:
    """Return the states of every layer; a conjugate pair counts as two."""
    return {layer: system.states for layer, system in apply.read(model, unstable="keep").items()}


def _prune(subject: Subject, job: Job) -> tuple[Classifier, Plan | None]:
    if job.key.method == FULL:
        return subject.model, None
    return approaches.get(job.key.method).prune(subject, job.key.ratio, job.key.seed, job.plan)


def _answer(model: Classifier, split: Split, job: Job) -> tuple[float, Right]:
    """Return the sum of the losses and the right answers, fewer than there are examples where `job.least` is lost."""
    loss, right = 0.0, np.zeros(0, bool)
    for batch_loss, batch in answers(model, split, batch_size(split), job.engine):
        loss, right = loss + batch_loss, np.concatenate([right, batch])
        if len(split) - int((~right).sum()) < job.least:
            break
    return loss, right


def _speed(full: Classifier, small: Classifier, split: Split) -> float:
    """Return how many times faster than the unpruned model the pruned one evaluates a batch, timed in turns."""
    x, _, _ = tensors(split.batch(np.arange(min(batch_size(split), len(split)))), torch.device("cpu"))
    seconds = time_in_turns({"full": evaluation(full, x), "small": evaluation(small, x)}, ROUNDS)
    return (seconds["full"] / seconds["small"]).median
