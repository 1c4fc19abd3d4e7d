"""Where the cells of a sweep run: in this process, or on the workers of a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import InputError, need, one_of
from ..registry import add_module, added_files
from .approaches import Subject
from .cells import Done, Job, run

Runner = Callable[[Subject, Sequence[Job]], Iterator[Done]]  # runs jobs on a subject, in any order


def local(subject: Subject, jobs: Sequence[Job]) -> Iterator[Done]:
    """Run jobs one after the other in this process."""
    return (run(subject, job) for job in jobs)


@contextmanager
def start(name: str, address: str | None = None, workers: int | None = None, threads: int = 1) -> Iterator[Runner]:
    """Start the runner "local" or "ray", and end it again.

    address: of the Ray cluster to join; without it one is started on this machine. workers: by default as many as
    there are CPUs for, with `threads` each.
    """
    if one_of("runner", name, {"local": True, "ray": False}):
        yield local
        return
    ray = need("ray", "ray", "The runner ray needs Ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # opt out of Ray's telemetry
    try:
        ray.init(address=address, include_dashboard=False if address is None else None, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"No Ray cluster answers at {address}: {error}") from error
    try:
        count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        remote = ray.remote(num_cpus=threads)(_Worker)
        yield _on_workers(ray, [remote.remote(threads, added_files()) for _ in range(count)])
    finally:
        ray.shutdown()  # ends a cluster that was started here


def _on_workers(ray: Any, workers: list[Any]) -> Runner:
    sent: list[Subject] = []

    def run_remotely(subject: Subject, jobs: Sequence[Job]) -> Iterator[Done]:
        if jobs and sent != [subject]:
            shared = ray.put(subject)
            ray.get([worker.take.remote(shared) for worker in workers])
            sent[:] = [subject]
        yield from ray.util.ActorPool(workers).map_unordered(lambda worker, job: worker.run.remote(job), jobs)

    return run_remotely


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
