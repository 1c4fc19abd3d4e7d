"""What commands share: the app, the options that recur, how a process is prepared, how results are shown."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ..errors import need_torch, one_of, visible
from ..methods import Method, named
from ..registry import add_module

if TYPE_CHECKING:
    from ..models.classifier import Classifier


class Floors(StrEnum):
    """Where at least one state stays."""

    layer = "layer"
    channel = "channel"


class UnstablePoles(StrEnum):
    """What becomes of a model with poles on or outside the unit circle."""

    refuse = "refuse"
    keep = "keep"


app = typer.Typer(
    help="Make trained diagonal state space models smaller and faster, without retraining.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)

Checkpoint = Annotated[Path, typer.Argument(help="A model saved by ssmprune (.safetensors).")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Where to write the result.")]
Data = Annotated[
    Path | None, typer.Option("--data", help="Folder with the data sets; by default $SSMPRUNE_DATA or a cache.")
]
Module = Annotated[
    Path | None,
    typer.Option(
        "--module",
        metavar="FILE.py",
        is_eager=True,  # its members have names that other options take
        callback=lambda path: add_module(path) if path else None,
        help="Python file that brings your own criteria, methods, adapters or tasks; it is executed.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Ratio = Annotated[float, typer.Option("--ratio", "-r", help="Share of all states to prune, from 0 to 1.")]
MethodName = Annotated[str, typer.Option("--method", "-m", help="A method from `ssmprune list`.")]
Exclude = Annotated[list[str], typer.Option("--exclude", help="A layer to leave whole; can be given more than once.")]
Cap = Annotated[float, typer.Option("--cap", help="Largest share to prune of any one layer.")]
RoundTo = Annotated[
    int, typer.Option("--round-to", help="Round the states kept in each layer up to a multiple of this.")
]
Floor = Annotated[Floors, typer.Option("--floor", help="Keep at least one state in every layer or every channel.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed for the random method.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Number of threads torch may use.")]
Engine = Annotated[
    str,
    typer.Option("--engine", help="What computes: torch, compiled (C), or auto: compiled if there is a compiler."),
]
Unstable = Annotated[
    UnstablePoles, typer.Option("--unstable", help="What to do with poles on or outside the unit circle.")
]


def method_named(name: str) -> Method:
    """Return a method by name; an unknown name is an error that lists them all."""
    return one_of("method", name, named())


def prepare(threads: int | None = None) -> None:
    """Set the switches that belong to a whole process, which the library never touches."""
    need_torch()
    import torch

    torch.set_flush_denormal(True)  # before any other thread exists: they inherit it
    if threads:
        torch.set_num_threads(threads)


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


def say_if_floats_again(before: Classifier, after: Classifier) -> None:
    """Warn that a quantised model is one no longer, so that its file grows."""
    if before.grid is not None and after.grid is None:
        say(
            f"The model had weights of {before.grid.bits} bits; they are floats again, so its file is larger. "
            "Prune and recover first, then quantise."
        )


def show(data: Any, as_json: bool, readable: RenderableType) -> None:
    """Print a result to stdout, as JSON or for people."""
    if sys.stdout is None:  # closed by the caller, as by `>&-`
        return
    if as_json:
        print(json.dumps(data, indent=2))
    else:
        Console().print(readable)
