"""What commands print: results to stdout, as JSON or for people; progress and what went wrong to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cyclopts import CycloptsError, UnusedCliTokensError
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..errors import InputError, visible

WRONG, INTERRUPTED, UNEXPECTED = 2, 130, 1  # exit codes: the user can fix it, Ctrl-C, our fault


@dataclass(frozen=True)
class Report:
    """The result of a command: facts for --json, the same readable on a terminal, and the exit code."""

    facts: dict[str, Any]
    readable: RenderableType
    exit_code: int = 0

    def __add__(self, other: Report) -> Report:
        """Return both reports, one below the other."""
        return Report(self.facts | other.facts, Group(self.readable, other.readable))

    def show(self, as_json: bool) -> None:
        """Print it to stdout."""
        if sys.stdout is None:  # closed by the caller, as by `>&-`
            return
        if as_json:
            print(json.dumps(self.facts, indent=2))
        else:
            Console().print(self.readable)
        sys.stdout.flush()


def table(
    title: str, rows: Sequence[Mapping[str, Any]], caption: str = "", columns: Mapping[str, str] | None = None
) -> Table:
    """Lay out records of the same keys as a table; names in them are shown letter by letter, whatever they hold.

    On a narrow terminal texts continue on another line, never cut off.

    columns: the titles of the entries to show, by default all by their names; one without any value is left out.
    """
    titles = columns or {name: name for name in rows[0]}
    shown = [name for name in titles if any(row[name] is not None for row in rows)]
    layout = Table(title=literal(title), title_justify="left", caption_justify="left")
    layout.caption = Text("\n").join(map(literal, caption.splitlines())) if caption else None
    for name in shown:
        layout.add_column(literal(titles[name]), overflow="fold")
    for row in rows:
        layout.add_row(*(literal(row[name]) for name in shown))
    return layout


def literal(value: object) -> Text:
    """Return what a value looks like, as text without markup or control characters.

    Thousands are set apart, and of other numbers a few digits are shown.
    """
    if isinstance(value, list):
        return Text(" ").join(map(literal, value))
    form = {int: ",", float: ".3g"}.get(type(value), "")
    return Text(visible("" if value is None else format(value, form)))


def say(line: str) -> None:
    """Print a line for people to standard error, at once."""
    Console(stderr=True, soft_wrap=True).print(literal(line), highlight=False)


def explain(error: Exception) -> tuple[str, int]:
    """Say what happened, and what to do where it is the user's turn."""
    if isinstance(error, InputError):
        return str(error), WRONG
    if isinstance(error, CycloptsError):
        return _explain_usage(error), WRONG
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}. Check the path, its permissions and the space on its disk.", WRONG
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"Not enough memory ({_first_line(error)}). Use a smaller batch, length or model.", WRONG
    return f"Unexpected {type(error).__name__}: {_first_line(error)}. Add --debug for the traceback.", UNEXPECTED


def _explain_usage(error: CycloptsError) -> str:
    """Return what is wrong with the words of the command line, and where to read more."""
    error.verbose = False  # no signature of the Python function
    message = " ".join(str(error).split())
    if isinstance(error, UnusedCliTokensError):
        message = f"Nothing is expected here; got {', '.join(map(repr, error.unused_tokens or []))}."
    command = " ".join(["ssmprune", *(error.command_chain or [])])
    return f"{message} Try `{command} --help`."


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
