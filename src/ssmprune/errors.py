"""The one exception a user is meant to meet, the mistakes that every room has to report, and text safe to show."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar

Member = TypeVar("Member")


class InputError(ValueError):
    """Something handed to ssmprune cannot be used; the message says what was expected, what came, what to do.

    The command line prints the message alone and exits with code 2.

    >>> import ssmprune as sp
    >>> sp.Limits(caps=2)
    Traceback (most recent call last):
    ssmprune.errors.InputError: A cap is the largest share to prune from a layer, from 0 to 1; got 2 for 'caps'.
    """


def one_of(kind: str, name: object, known: Mapping[str, Member]) -> Member:
    """Return the member called `name`; an unknown name is an error that lists the names there are.

    >>> one_of("fruit", "apple", {"apple": 1, "pear": 2})
    1
    >>> one_of("fruit", "plum", {"apple": 1, "pear": 2})
    Traceback (most recent call last):
    ssmprune.errors.InputError: There is no fruit 'plum'; there are apple, pear.
    >>> one_of("fruit", "appel", {"apple": 1, "pear": 2})
    Traceback (most recent call last):
    ssmprune.errors.InputError: There is no fruit 'appel'; there are apple, pear. Did you mean apple?
    """
    if not isinstance(name, str) or name not in known:
        names = ", ".join(known) or "none"
        raise InputError(f"There is no {kind} {name!r}; there are {names}.{suggestion(name, known)}")
    return known[name]


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return " Did you mean NAME?" with the known name that is closest to a mistyped name, or nothing."""
    close = get_close_matches(name, list(known), n=1) if isinstance(name, str) else []
    return f" Did you mean {close[0]}?" if close else ""


@contextmanager
def naming(subject: object) -> Iterator[None]:
    """Let errors begin with what they are about, such as a file or a layer."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{subject}: {error}") from error


def visible(text: str) -> str:
    r"""Return a text whose control characters are written out: names from files cannot move a cursor or fake a line.

    >>> print(visible("model\x1b[31m\nError: none"))
    model\x1b[31m\nError: none
    """
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def need(module: str, extra: str, purpose: str) -> Any:
    """Import and return an optional package; where it is missing, say what needs it and how to install it.

    >>> need("no_such_package", "data", "Pathfinder pictures need Pillow")
    Traceback (most recent call last):
    ssmprune.errors.InputError: Pathfinder pictures need Pillow; run `pip install '.[data]'` in a clone of ssmprune.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{purpose}; run `pip install '.[{extra}]'` in a clone of ssmprune.") from error


def need_torch() -> None:
    """Raise a clear error where torch is not installed."""
    need("torch", "torch", "Models need PyTorch")


def names_that_need_torch(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package that imports torch, and names from their modules, when they are needed."""

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        need_torch()
        return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    return find
