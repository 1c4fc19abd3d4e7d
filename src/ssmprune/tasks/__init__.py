"""The tasks: every module here that exports TASK is one, found by looking."""

from __future__ import annotations

from functools import cache

from .._registry import members
from ..errors import InputError
from ._task import Batch, Split, Task

__all__ = ["Batch", "Split", "Task", "found", "get"]


@cache
def found() -> dict[str, Task]:
    """Every task by its name.

    >>> "smnist" in found()
    True
    """
    tasks = [module.TASK for module in members(__name__, __path__)]
    return {task.name: task for task in tasks}


def get(name: str) -> Task:
    """The task called `name`."""
    tasks = found()
    if name not in tasks:
        raise InputError(f"Unknown task {name!r}; there are {', '.join(sorted(tasks))}.")
    return tasks[name]
