"""A cell of a sweep: a model pruned in one way, and the accuracy of what is left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from ..models.checkpoint import parameters
from ..models.classifier import Classifier
from ..planning.plan import Plan
from ..tasks.task import Split, fewer
from ..training.evaluation import answer_split, tally
from .approaches import Subject
from .store import Cell, Key, Outcome, Right, pack

STEPS_AT_ONCE = 40_000  # of a batch, over all its sequences: about 50 of sMNIST


@dataclass(frozen=True)
class Job:
    """A cell to run."""

    key: Key
    plan: Plan | None = None  # where an earlier cell has made it already
    engine: str = "torch"  # what evaluates: torch or compiled
    least: int = 0  # right answers; a model that cannot reach them is not evaluated to the end


Done = tuple[Key, Outcome, Plan | None]


def batch_size(split: Split) -> int:
    """Return how many examples to evaluate at once."""
    return max(1, STEPS_AT_ONCE // split.length)


def run(subject: Subject, job: Job) -> Done:
    """Run a cell, and return its outcome with the plan, if its approach makes plans; a refusal is an outcome, too."""
    key, model = job.key, subject.model
    try:
        small, plan = subject.prune(key, job.plan)
    except InputError as error:
        return key, str(error), None
    split = fewer(subject.splits[key.split], key.examples)
    loss, right = _answer(small.at_rate(subject.every), split, job)
    if len(right) < len(split):
        return key, 1 - int((~right).sum()) / len(split), None
    cell = Cell(
        **key._asdict(),
        task=subject.task,
        accuracy=int(right.sum()) / len(right),
        loss=float(f"{loss / len(right):.6g}"),  # digits that do not depend on how many threads added them up
        states=small.layer_states,
        states_before=model.layer_states,
        parameters=parameters(small),
        parameters_before=parameters(model),
        right=pack(right) if key.split == "test" else None,
    )
    return key, cell, plan


def _answer(model: Classifier, split: Split, job: Job) -> tuple[float, Right]:
    """Return the sum of the losses and the right answers, fewer than there are examples if `job.least` is missed."""
    loss, right = 0.0, np.zeros(0, bool)
    for logits, labels in answer_split(model, split, batch_size(split), engine=job.engine):
        loss += tally(logits, labels)[0].item()
        right = np.concatenate([right, (logits.argmax(-1) == labels).numpy(force=True)])
        if len(split) - int((~right).sum()) < job.least:
            break
    return loss, right
