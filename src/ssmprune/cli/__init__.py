"""The command line: one verb is one function. Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .. import __version__, adapters, criteria, tasks
from ..methods import named
from . import drawing, exporting, failures, importing, measuring, pruning, sweeping, training
from .common import Json, app, show, table

__all__ = ["app", "drawing", "exporting", "importing", "main", "measuring", "pruning", "sweeping", "training"]


def main() -> None:
    """Run the command line; what the user can mend is one line on stderr and exit code 2."""
    failures.run(app, sys.argv[1:])


def print_version(asked: bool) -> None:
    """Print the version and leave."""
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Options of every command."""


@app.command("list")
def list_(
    recipes: Annotated[bool, typer.Option("--recipes", help="List how each model is trained instead.")] = False,
    as_json: Json = False,
) -> None:
    """List the methods, criteria, model families and tasks there are, or the recipes."""
    if recipes:
        training.list_recipes(as_json)
        return
    known = {
        "methods": sorted(named()),
        "criteria": sorted(criteria.found()),
        "families": sorted(adapters.found()),
        "tasks": sorted(tasks.found()),
    }
    rows = [{"kind": kind, "names": ", ".join(names)} for kind, names in known.items()]
    show(known, as_json, table("What ssmprune knows", rows))
