"""The ten tasks of the paper: each plain module here exports its TASK and is found without being registered.

Pictures: `smnist`, `psmnist`, `scifar`, `image`, `pathfinder`, `pathx`. Texts: `text`, `retrieval`, `listops`. Sound:
`speech`. `_task` says what a task and its splits are; `_data` finds, fetches, unpacks and keeps files, `_formats` reads
them. Shared by some tasks: `_cifar`, `_contours` (Pathfinder's pictures), `_lra_pictures` (the published ones),
`_listops_trees`, `_padding` (texts of different lengths). `_sample` is the MNIST inside the package.
"""

from __future__ import annotations

from functools import cache

from .._registry import members
from ..errors import one_of
from ._task import Batch, Split, Task

__all__ = ["Batch", "Split", "Task", "found", "get"]


@cache
def found() -> dict[str, Task]:
    """Return every task by its name.

    >>> "smnist" in found()
    True
    """
    tasks = [module.TASK for module in members(__name__, __path__)]
    return {task.name: task for task in tasks}


def get(name: str) -> Task:
    """Return the task called `name`."""
    return one_of("task", name, found())
