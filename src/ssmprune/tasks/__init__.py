"""The tasks: every module here that exports TASK is one, found by looking."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from ..errors import InputError
from .task import Batch, Split, Task

__all__ = ["Batch", "Split", "Task", "found", "get"]


@cache
def found() -> dict[str, Task]:
    """Every task by its name.

    >>> "smnist" in found()
    True
    """
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    tasks = [module.TASK for module in modules if hasattr(module, "TASK")]
    return {task.name: task for task in tasks}


def get(name: str) -> Task:
    """The task called `name`."""
    tasks = found()
    if name not in tasks:
        raise InputError(f"Unknown task {name!r}; there are {', '.join(sorted(tasks))}.")
    return tasks[name]
