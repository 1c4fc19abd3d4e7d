"""Where the cells of a sweep are done: in this process, or on the workers of a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from ..errors import InputError, need, one_of
from .approaches import Subject
from .cells import Done, Job, run


class Runner(Protocol):
    """Does jobs on a subject; results come in any order."""

    def run(self, subject: Subject, jobs: Sequence[Job]) -> Iterator[Done]:
        """Do all jobs."""
        ...


@contextmanager
def start(name: str, address: str | None = None, workers: int | None = None, threads: int = 1) -> Iterator[Runner]:
    """Start the runner "local" or "ray" and end it again; the other arguments are those of `Ray`."""
    kind = one_of("runner", name, {"local": Local, "ray": Ray})
    if kind is Local:
        yield Local()
        return
    runner = Ray(address, workers, threads)
    try:
        yield runner
    finally:
        runner.close()


class Local:
    """One cell after the other in this process."""

    def run(self, subject: Subject, jobs: Sequence[Job]) -> Iterator[Done]:
        """Do all jobs in their order."""
        return (run(subject, job) for job in jobs)


class Ray:
    """Cells on the workers of a Ray cluster; a model and its data go to each worker once."""

    def __init__(self, address: str | None = None, workers: int | None = None, threads: int = 1) -> None:
        """Join the cluster at `address`, or start one on this machine; a worker for every `threads` CPUs."""
        self._ray = ray = need("ray", "ray", "The runner ray needs Ray")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would tell its makers
        try:
            ray.init(address=address, include_dashboard=False if address is None else None, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"No Ray cluster answers at {address}: {error}") from error
        count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        remote = ray.remote(num_cpus=threads)(_Worker)
        self._workers = [remote.remote(threads) for _ in range(count)]
        self._sent: Subject | None = None

    def run(self, subject: Subject, jobs: Sequence[Job]) -> Iterator[Done]:
        """Do all jobs, each on the worker that is free next."""
        if jobs and self._sent is not subject:
            shared = self._ray.put(subject)
            self._ray.get([worker.take.remote(shared) for worker in self._workers])
            self._sent = subject
        pool = self._ray.util.ActorPool(self._workers)
        yield from pool.map_unordered(lambda worker, job: worker.do.remote(job), jobs)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()


class _Worker:
    """Holds one subject and does jobs on it."""

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_flush_denormal(True)
        torch.set_num_threads(threads)
        self._subject: Any = None

    def take(self, subject: Subject) -> None:
        self._subject = subject

    def do(self, job: Job) -> Done:
        return run(self._subject, job)
