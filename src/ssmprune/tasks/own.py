"""Tasks of the user's own: from a Python file that is named, or from an installed package."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

from .. import registry as _registry
from ..arrays import is_count
from ..errors import InputError
from ..files import existing
from .task import Task


def tasks_in(path: Path) -> list[Task]:
    """Run a Python file and return the tasks in it: every object of a class derived from Task at its top level."""
    path = existing(path)
    name = f"ssmprune_tasks_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file (.py), so no tasks can be loaded from it.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for the names in their annotations
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever somebody's file may raise
        del sys.modules[name]
        raise InputError(f"{path} does not load: {_told(error, spec.origin)}.") from error
    found = [value for value in vars(module).values() if isinstance(value, Task)]
    if not found:
        raise InputError(f"{path} has no task: it should end with TASK = ..., an object of a class derived from Task.")
    return [checked(task, str(path)) for task in found]


def plugged_in() -> list[Task]:
    """Load the tasks of other packages: an entry point names a task, or a module that exports `TASK`."""
    return [checked(*found) for found in _registry.plugged_in("task")]


def checked(task: Any, origin: str) -> Task:
    """Refuse what is no task, or one that does not say its sizes."""
    if not isinstance(task, Task):
        kind = f"the class {task.__name__} itself" if isinstance(task, type) else f"of {type(task).__name__}"
        raise InputError(f"A task is an object of a class derived from ssmprune.tasks.Task; {origin} is {kind}.")
    if not isinstance(getattr(task, "name", None), str) or not task.name.isprintable() or not task.name:
        raise InputError(f"{origin}: a task needs a name, a string; got {getattr(task, 'name', None)!r:.40}.")
    for size in ("inputs", "outputs", "length"):
        value = getattr(task, size, None)
        if not is_count(value) or not value:
            raise InputError(f"{origin}: task {task.name!r} needs {size}, a whole number above 0; got {value!r:.40}.")
    return task


def _told(error: Exception, origin: str | None) -> str:
    """Return what went wrong, and in which line of the file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == origin]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    message = error.msg if isinstance(error, SyntaxError) else str(error).partition("\n")[0]
    return f"{type(error).__name__}: {message}" + (f" (line {line})" if line else "")
