"""Folders of members: one file is one member, found without being registered; helpers start with an underscore."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from .errors import InputError

PLURALS = {"adapter": "adapters", "approach": "approaches", "task": "tasks"}


def members(package: str, path: Iterable[str]) -> list[ModuleType]:
    """Import and return the plain modules of a package, given its `__name__` and `__path__`.

    >>> from ssmprune import adapters
    >>> [module.__name__ for module in members(adapters.__name__, adapters.__path__)][:2]
    ['ssmprune.adapters.annotated_s4d', 'ssmprune.adapters.flax_s5']
    """
    names = (entry.name for entry in pkgutil.iter_modules(path))
    return [importlib.import_module(f"{package}.{name}") for name in names if not name.startswith("_")]


def plugged_in(kind: str) -> Iterator[tuple[Any, str]]:
    """Yield what other packages bring, and where it is from: entry points of the group `ssmprune.KINDs`.

    Each names a member, or a module that exports it by its kind in capitals.
    """
    for entry in entry_points(group=f"ssmprune.{PLURALS[kind]}"):
        origin = f"{entry.name} ({entry.value})"
        try:
            named = entry.load()
            member = getattr(named, kind.upper()) if isinstance(named, ModuleType) else named
        except Exception as error:  # whatever another package's module may raise
            raise InputError(f"The {kind} {origin} does not load: {error}") from error
        yield member, origin
