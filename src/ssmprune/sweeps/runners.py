"""How the cells of a sweep run, and where: in this process, or on the workers of a Ray cluster."""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, need
from ..models.checkpoint import parameters
from ..models.classifier import Classifier
from ..planning.plan import Plan
from ..registry import add_module, added_files
from ..tasks.task import Split, fewer
from ..training.evaluation import answer_split, tally
from .approaches import Subject
from .store import Cell, Key, Outcome

STEPS_AT_ONCE = 40_000  # of a batch, over all its sequences: about 50 of sMNIST


@dataclass(frozen=True)
class Job:
    """A cell to run."""

    key: Key
    plan: Plan | None = None  # where an earlier cell has made it already
    engine: str = "torch"  # what evaluates: torch or compiled
    least: int = 0  # right answers; a model that cannot reach them is not evaluated to the end


Done = tuple[Key, Outcome, Plan | None]
Runner = Callable[[Subject, Sequence[Job]], Iterator[Done]]  # runs jobs on a subject, in any order


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


def _answer(model: Classifier, split: Split, job: Job) -> tuple[float, NDArray[np.bool_]]:
    """Return the sum of the losses and which answers are right; it stops early once `job.least` is out of reach."""
    loss, right = 0.0, np.zeros(0, bool)
    for logits, labels in answer_split(model, split, max(1, STEPS_AT_ONCE // split.length), engine=job.engine):
        loss += tally(logits, labels)[0].item()
        right = np.concatenate([right, (logits.argmax(-1) == labels).numpy(force=True)])
        if len(split) - int((~right).sum()) < job.least:
            break
    return loss, right


def pack(right: NDArray[np.bool_]) -> str:
    """Return right answers as a short text: a bit each, compressed."""
    return base64.b64encode(zlib.compress(np.packbits(right).tobytes(), 9)).decode()


def local(subject: Subject, jobs: Sequence[Job]) -> Iterator[Done]:
    """Run jobs one after the other in this process."""
    return (run(subject, job) for job in jobs)


@contextmanager
def start(workers: int | None = None, address: str | None = None, threads: int = 1) -> Iterator[Runner]:
    """Start what runs jobs, and end it again: this process, or so many workers of a Ray cluster, with `threads` each.

    address: of the cluster to join; without it one is started on this machine.
    """
    if workers is None:
        yield local
        return
    ray = need("ray", "ray", "A sweep on several workers needs Ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # opt out of Ray's telemetry
    try:
        ray.init(address=address, include_dashboard=False if address is None else None, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"No Ray cluster answers at {address}: {error}") from error
    try:
        remote = ray.remote(num_cpus=threads)(_Worker)
        yield partial(_run_on, ray, [remote.remote(threads, added_files()) for _ in range(workers)])
    finally:
        ray.shutdown()  # ends a cluster that was started here


def _run_on(ray: Any, workers: list[Any], subject: Subject, jobs: Sequence[Job]) -> Iterator[Done]:
    """Run jobs on the workers of a Ray cluster, which get the subject first."""
    if jobs:
        shared = ray.put(subject)
        ray.get([worker.take.remote(shared) for worker in workers])
    yield from ray.util.ActorPool(workers).map_unordered(lambda worker, job: worker.run.remote(job), jobs)


class _Worker:
    """Holds a subject, with what its approaches have computed for all ratios, and runs jobs on it."""

    def __init__(self, threads: int, modules: Sequence[Path]) -> None:
        import torch

        for path in modules:  # which may bring the methods of the jobs
            add_module(path)
        torch.set_flush_denormal(True)
        torch.set_num_threads(threads)
        self._subject: Any = None

    def take(self, subject: Subject) -> None:
        self._subject = subject

    def run(self, job: Job) -> Done:
        return run(self._subject, job)
