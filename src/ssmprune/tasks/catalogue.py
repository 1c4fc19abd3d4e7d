"""The tasks there are: the one that ships, and those of other packages and files (see `registry`)."""

from __future__ import annotations

from ..arrays import is_count
from ..errors import InputError, one_of
from ..registry import Registry
from .smnist import TASK
from .task import Task

# For the message about a task that is not installed.
OF_THE_PAPER = ("psmnist", "scifar", "listops", "text", "retrieval", "image", "pathfinder", "pathx", "speech")


def found() -> dict[str, Task]:
    """Return every task by its name.

    >>> "smnist" in found()
    True
    """
    return _TASKS.found()


def get(name: str) -> Task:
    """Return the task called `name`.

    >>> get("smnist").length
    784
    """
    if name in OF_THE_PAPER and name not in found():
        raise InputError(
            f"The task {name!r} comes with the package ssmprune-paper: `pip install ./paper` in a clone of ssmprune."
        )
    try:
        return one_of("task", name, found())
    except InputError as error:
        raise InputError(f"{error} For a task of your own, give --module FILE.py.") from error


def _refuse_without_sizes(task: Task, origin: str) -> None:
    for size in ("inputs", "outputs", "length"):
        value = getattr(task, size, None)
        if not is_count(value) or not value:
            raise InputError(f"{origin}: task {task.name!r} needs {size}, a whole number above 0; got {value!r:.40}.")


_TASKS: Registry[Task] = Registry(
    "task",
    Task,
    "an object of a class derived from ssmprune.tasks.Task",
    shipped=[TASK],
    check=_refuse_without_sizes,
    needs_capitals=False,
)
