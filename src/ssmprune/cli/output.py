"""What commands print: results to stdout, as JSON or for people, and progress to stderr."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ..errors import visible


@dataclass(frozen=True)
class Report:
    """The result of a command: facts for --json, the same readable on a terminal, and the exit code."""

    facts: dict[str, Any]
    readable: RenderableType
    exit_code: int = 0

    def show(self, as_json: bool) -> None:
        """Print it to stdout."""
        if sys.stdout is None:  # closed by the caller, as by `>&-`
            return
        if as_json:
            print(json.dumps(self.facts, indent=2))
        else:
            Console().print(self.readable)


def table(title: str, rows: list[dict[str, Any]], caption: str = "") -> Table:
    """Lay out records of the same keys as a table; names in them are shown letter by letter, whatever they hold.

    On a narrow terminal texts continue on another line, never cut off.
    """
    layout = Table(title=literal(title), title_justify="left", caption_justify="left")
    layout.caption = Text("\n").join(map(literal, caption.splitlines())) if caption else None
    for name in rows[0]:
        layout.add_column(literal(name), overflow="fold")
    for row in rows:
        layout.add_row(*map(literal, row.values()))
    return layout


def literal(value: object) -> Text:
    """Return what a value looks like, as text without markup or control characters; thousands are set apart."""
    return Text(visible(f"{value:,}" if type(value) is int else str(value)))


def say(line: str) -> None:
    """Print a line for people to standard error, at once."""
    Console(stderr=True, soft_wrap=True).print(literal(line), highlight=False)
