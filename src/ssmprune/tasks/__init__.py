"""The ten tasks of the paper: each plain module here exports its TASK and is found without being registered.

Pictures: `smnist`, `psmnist`, `scifar`, `image`, `pathfinder`, `pathx`. Texts: `text`, `retrieval`, `listops`. Sound:
`speech`. `_task` says what a task and its splits are; `_data` finds, fetches, unpacks and keeps files, `_formats` reads
them. Shared by some tasks, or too long for one: `_cifar`, `_contours` (Pathfinder's pictures), `_lra_pictures` (the
published ones), `_listops_trees`, `_padding` (texts of different lengths), `_topics` (of words, for Retrieval to begin
with). `_sample` is the MNIST inside the package. `_own` loads tasks of the user's; docs/extending.md follows one from
its data to a report.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ..errors import InputError, one_of
from . import smnist
from .formats import read_idx
from .own import plugged_in, tasks_in
from .task import Batch, Split, Task, features, split_published

__all__ = ["Batch", "Split", "Task", "add_module", "features", "found", "get", "read_idx", "split_published"]

_added: dict[str, Task] = {}


@cache
def shipped() -> dict[str, Task]:
    """Return the tasks of this folder by name."""
    return {smnist.TASK.name: smnist.TASK}


def found() -> dict[str, Task]:
    """Return every task by its name: those of this folder, of installed packages, and of modules that were added.

    >>> "smnist" in found()
    True
    """
    return shipped() | _plugged_in() | _added


def get(name: str) -> Task:
    """Return the task called `name`."""
    try:
        return one_of("task", name, found())
    except InputError as error:
        raise InputError(f"{error} For a task of your own, give --task-module FILE.py.") from error


def add_module(path: Path) -> None:
    """Let the tasks in a Python file, which is run, be found in this process; they may not have the name of another."""
    for task in tasks_in(path):
        _refuse_taken(task, f"{path}", shipped() | _plugged_in())
        _added[task.name] = task


@cache
def _plugged_in() -> dict[str, Task]:
    tasks = plugged_in()
    for task in tasks:
        _refuse_taken(task, "An installed package", shipped())
    return {task.name: task for task in tasks}


def _refuse_taken(task: Task, origin: str, taken: dict[str, Task]) -> None:
    if taken.get(task.name, task) is not task:
        raise InputError(f"{origin} has a task {task.name!r}, and there is one of that name already; give it another.")
