"""A cell of a sweep: a model pruned in one way, and the accuracy of what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..calibration.data import Sequences
from ..calibration.refit import FEW
from ..deploy.timing import time_in_turns
from ..errors import InputError
from ..models.checkpoint import parameters
from ..models.classifier import Classifier
from ..planning.plan import Plan
from ..tasks.task import Split, Task, fewer
from ..training.calibration_inputs import unlabelled_batches
from ..training.evaluation import answer_split, at_rate, check_fits, tally, tensors
from . import approaches
from .approaches import Subject
from .store import FULL, Cell, Key, Outcome, Right, pack

CALIBRATION = 200  # unlabelled training sequences
# A re-fit takes as long as its sequences have steps, so of long ones fewer are used, but never so few that the re-fit
# has to be cautious.
CALIBRATION_STEPS = 320_000
STEPS_AT_ONCE = 40_000  # of a batch, over all its sequences: about 50 of sMNIST
ROUNDS = 3  # of timing


@dataclass(frozen=True)
class Job:
    """A cell to run."""

    key: Key
    timed: bool = False
    plan: Plan | None = None  # where an earlier cell has made it already
    engine: str = "torch"  # what evaluates: torch or compiled
    least: int = 0  # right answers; a model that cannot reach them is not evaluated to the end
    known: Cell | None = None  # what was measured before: then only the plan is wanted

    @property
    def every(self) -> int:
        """Return n where each n-th sample is kept."""
        return round(1 / self.key.rate)


Done = tuple[Key, Outcome, Plan | None]


def load_subject(
    name: str,
    model: Classifier,
    task: Task,
    splits: Sequence[str] = ("test",),
    every: int = 1,
    calibration: int = 0,
    root: Path | None = None,
) -> Subject:
    """Return a model with the data that its cells need.

    splits: those to evaluate, of which each `every`-th sample is kept. calibration: how many unlabelled training
    sequences to prune with.
    """
    loaded = {(split, every): at_rate(task, every).load(split, root) for split in splits}
    for split in loaded.values():
        check_fits(model, split)
    batches = _calibration(task.load("train", root), calibration) if calibration else []
    return Subject(name, task.name, model, loaded, batches)


def _calibration(split: Split, sequences: int) -> list[Sequences]:
    return unlabelled_batches(split, min(sequences, max(FEW, CALIBRATION_STEPS // split.length)))


def batch_size(split: Split) -> int:
    """Return how many examples to evaluate at once."""
    return max(1, STEPS_AT_ONCE // split.length)


def run(subject: Subject, job: Job) -> Done:
    """Run a cell, and return its outcome with the plan, if its approach makes plans; a refusal is an outcome, too."""
    key, model = job.key, subject.model
    try:
        small, plan = _prune(subject, job)
    except InputError as error:
        return key, job.known or str(error), None
    if job.known is not None:
        if job.known.states != small.layer_states:
            raise InputError(
                f"{key.method} at {key.ratio:.10g} leaves {key.checkpoint!r} other states than when it was measured; "
                "sweep into a new folder."
            )
        return key, job.known, plan
    split = fewer(subject.splits[key.split, job.every], key.examples)
    loss, right = _answer(small.at_rate(job.every), split, job)
    if len(right) < len(split):
        return key, 1 - int((~right).sum()) / len(split), plan
    cell = Cell(
        **key._asdict(),
        task=subject.task,
        accuracy=int(right.sum()) / len(right),
        loss=float(f"{loss / len(right):.6g}"),  # digits that do not depend on how many threads added them up
        states=small.layer_states,
        states_before=model.layer_states,
        parameters=parameters(small),
        parameters_before=parameters(model),
        speed=_speed(model, small, split) if job.timed else None,
        right=pack(right) if key.split == "test" else None,
    )
    return key, cell, plan


def _prune(subject: Subject, job: Job) -> tuple[Classifier, Plan | None]:
    if job.key.method == FULL:
        return subject.model, None
    return approaches.get(job.key.method).prune(subject, job.key.ratio, job.key.seed, job.plan)


def _answer(model: Classifier, split: Split, job: Job) -> tuple[float, Right]:
    """Return the sum of the losses and the right answers, fewer than there are examples if `job.least` is missed."""
    loss, right = 0.0, np.zeros(0, bool)
    for logits, labels in answer_split(model, split, batch_size(split), engine=job.engine):
        loss += tally(logits, labels)[0].item()
        right = np.concatenate([right, (logits.argmax(-1) == labels).numpy(force=True)])
        if len(split) - int((~right).sum()) < job.least:
            break
    return loss, right


@torch.no_grad()
def _speed(full: Classifier, small: Classifier, split: Split) -> float:
    """Return how many times faster than the unpruned model the pruned one evaluates a batch, timed in turns."""
    (x, _), _ = tensors(split.batch(np.arange(min(batch_size(split), len(split)))), torch.device("cpu"))
    calls: dict[str, Callable[[], object]] = {"full": lambda: full.eval()(x), "small": lambda: small.eval()(x)}
    seconds = time_in_turns(calls, ROUNDS)
    return (seconds["full"] / seconds["small"]).median
