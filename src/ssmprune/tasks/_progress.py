"""Progress bars on stderr; silent when nobody watches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def watched(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield `items`, showing on a terminal how many of `total` are done."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return iter(track(items, what, total, console=console, transient=True, disable=not console.is_terminal))
