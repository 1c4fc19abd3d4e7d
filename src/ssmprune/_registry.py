"""Folders of members: one file is one member, found without being registered; helpers start with an underscore."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType


def members(package: str, path: Iterable[str]) -> list[ModuleType]:
    """Import and return the plain modules of a package, given its `__name__` and `__path__`.

    >>> from ssmprune import criteria
    >>> [module.__name__ for module in members(criteria.__name__, criteria.__path__)][:2]
    ['ssmprune.criteria.elimination', 'ssmprune.criteria.energy']
    """
    names = (entry.name for entry in pkgutil.iter_modules(path))
    return [importlib.import_module(f"{package}.{name}") for name in names if not name.startswith("_")]
