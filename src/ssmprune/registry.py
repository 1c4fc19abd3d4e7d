"""Extension points: criteria, methods, adapters, tasks, recipes and approaches are all found in the same way.

Some members of a kind are shipped with ssmprune. An installed package brings others by an entry point of the group
`ssmprune.adapters` (`.tasks`, ...), which names a member or a module. A Python file brings others when `add_module`
runs it, which on the command line is `--module FILE.py`. In a module and in a file, members stand under the name of
their kind in capitals: `ADAPTER = ...`, or `ADAPTERS = [...]` if there are several. In Python, functions also take a
member as an object.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from .errors import InputError
from .files import existing

Member = TypeVar("Member")

PLURALS = {
    "criterion": "criteria",
    "method": "methods",
    "adapter": "adapters",
    "task": "tasks",
    "recipe": "recipes",
    "approach": "approaches",
}
_files: dict[Path, ModuleType] = {}  # what `add_module` has run
_registries: list[Registry[Any]] = []  # of the rooms that are imported so far


def add_module(path: Path) -> None:
    """Run a Python file, and let the members that it exports be found in this process."""
    module = _run(existing(path))
    known = [registry.members_of(module, str(path)) for registry in _registries]
    capitals = {name.upper() for names in PLURALS.items() for name in names}
    if not any(known) and not capitals & vars(module).keys():
        raise InputError(
            f"{path} has no task and nothing else to add: it should end with TASK = ..., an object of a class derived "
            "from Task, or with CRITERION, METHOD, ADAPTER, RECIPES or APPROACH = ..."
        )
    _files[path.resolve()] = module


def added_files() -> list[Path]:
    """Return the files that `add_module` has run, for other processes to run them as well."""
    return list(_files)


@dataclass(eq=False)
class Registry(Generic[Member]):
    """The members of one kind by name: those that are shipped, and those that other packages and files bring."""

    kind: str  # "criterion", "method", ... as in `PLURALS`
    base: Any  # the class of which members are objects
    described: str  # what a member is, for the error about an object that is none
    shipped: Mapping[str, Member] | Iterable[Member]
    check: Callable[[Member, str], None] = lambda member, origin: None  # raises an InputError if something is missing
    needs_capitals: bool = True  # False if an object of the class is a member whatever the name it stands under

    def __post_init__(self) -> None:
        """Let `add_module` know this registry."""
        _registries.append(self)

    def found(self) -> dict[str, Member]:
        """Return every member by name."""
        members = dict(self.installed)
        for path, module in _files.items():
            members |= self.members_of(module, str(path))
        return members

    @cached_property
    def installed(self) -> dict[str, Member]:
        """The shipped members and those of installed packages, whose entry points are read once."""
        members = self._by_name(self.shipped, "ssmprune")
        for entry in entry_points(group=f"ssmprune.{PLURALS[self.kind]}"):
            origin = f"{entry.name} ({entry.value})"
            try:
                exported = entry.load()
            except Exception as error:  # another package may raise anything
                raise InputError(f"The {self.kind} {origin} does not load: {error}") from error
            collect = self._exports if isinstance(exported, ModuleType) else self._by_name
            more = collect(exported, origin)
            if not more:
                raise InputError(f"The {self.kind} {origin} does not load: the module has no {self.kind.upper()}.")
            self._refuse_taken(more, members, "An installed package")
            members |= more
        return members

    def members_of(self, module: ModuleType, path: str) -> dict[str, Member]:
        """Return what the module of a file exports, by name."""
        members = self._exports(module, path)
        self._refuse_taken(members, self.installed, path)
        return members

    def checked(self, member: Any, origin: str) -> Member:
        """Return a member; an object that is none is an error that says what it should have been."""
        if isinstance(member, type) or not isinstance(member, self.base):
            kind = f"the class {member.__name__} itself" if isinstance(member, type) else f"of {type(member).__name__}"
            raise InputError(f"{self._a_member.capitalize()} is {self.described}; {origin} is {kind}.")
        self.check(member, origin)
        valid: Member = member
        return valid

    @property
    def _a_member(self) -> str:
        return f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"

    def _exports(self, module: ModuleType, origin: str) -> dict[str, Member]:
        values = [] if self.needs_capitals else list(vars(module).values())
        members = self._by_name([value for value in values if isinstance(value, self.base)], origin)
        for name in (self.kind.upper(), PLURALS[self.kind].upper()):
            members |= self._by_name(getattr(module, name, ()), origin)
        return members

    def _by_name(self, exported: Any, origin: str) -> dict[str, Member]:
        """Return the members in what was exported: one of them, several, or a mapping that gives them names."""
        if isinstance(exported, Mapping):
            pairs = list(exported.items())
        else:
            several = exported if isinstance(exported, (list, tuple)) else [exported]
            pairs = [(getattr(it, "name", getattr(it, "__name__", None)), it) for it in several]
        for name, member in pairs:
            self.checked(member, origin)
            if not isinstance(name, str) or not name.isprintable() or not name:
                raise InputError(f"{origin}: {self._a_member} needs a name, a string; got {name!r:.40}.")
        return dict(pairs)

    def _refuse_taken(self, members: dict[str, Member], taken: dict[str, Member], origin: str) -> None:
        for name, member in members.items():
            if taken.get(name, member) is not member:
                raise InputError(
                    f"{origin} has {self._a_member} {name!r}, and there is one of that name already; give it another."
                )


def _run(path: Path) -> ModuleType:
    """Run a Python file as a module."""
    name = f"ssmprune_module_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file (.py), so nothing can be loaded from it.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for the names in their annotations
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's file may raise anything
        del sys.modules[name]
        raise InputError(f"{path} does not load: {_error_with_line(error, spec.origin)}.") from error
    return module


def _error_with_line(error: Exception, path: str | None) -> str:
    """Return an error's type and message, and the line of the file that raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    message = error.msg if isinstance(error, SyntaxError) else str(error).partition("\n")[0]
    return f"{type(error).__name__}: {message}" + (f" (line {line})" if line else "")
