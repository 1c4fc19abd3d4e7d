"""The command line: one verb is one function. Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from .. import __version__, adapters, criteria, tasks
from ..errors import InputError
from ..methods import named
from . import exporting, importing, measuring, pruning, sweeping, training
from .common import Json, app, show, table

__all__ = ["app", "exporting", "importing", "main", "measuring", "pruning", "sweeping", "training"]


def main() -> None:
    """Run the command line; what the user can mend is one line on stderr and exit code 2."""
    try:
        app()
    except InputError as error:
        if "--debug" in sys.argv:
            raise
        Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False)
        sys.exit(2)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    """Options of every command."""
    if version:
        print(__version__)
        raise typer.Exit


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
