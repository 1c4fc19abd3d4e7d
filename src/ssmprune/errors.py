"""The one exception a user is meant to meet, the mistakes that every room has to report, and text safe to show."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

Member = TypeVar("Member")


class InputError(ValueError):
    """Something handed to ssmprune cannot be used; the message says what was expected, what came, what to do.

    The command line prints the message alone and exits with code 2.
    """


def one_of(kind: str, name: object, known: Mapping[str, Member]) -> Member:
    """Return the member called `name`; an unknown name is an error that lists the names there are.

    >>> one_of("fruit", "apple", {"apple": 1, "pear": 2})
    1
    >>> one_of("fruit", "plum", {"apple": 1, "pear": 2})
    Traceback (most recent call last):
    ssmprune.errors.InputError: There is no fruit 'plum'; there are apple, pear.
    """
    if not isinstance(name, str) or name not in known:
        raise InputError(f"There is no {kind} {name!r}; there are {', '.join(known) or 'none'}.")
    return known[name]


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
    ssmprune.errors.InputError: Pathfinder pictures need Pillow; install it with `pip install 'ssmprune[data]'`.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{purpose}; install it with `pip install 'ssmprune[{extra}]'`.") from error


def need_torch() -> None:
    """Raise a clear error where torch is not installed."""
    need("torch", "torch", "Models need PyTorch")
