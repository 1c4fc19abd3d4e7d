"""The command line: one verb is one function. Results go to stdout, progress and errors to stderr.

`pruning` has inspect, plan, mask, shrink and prune, with what they share in `planning` and `gains`; `recovering`
recover; `training` train and evaluate; `measuring` demo; `sweeping` sweep; `drawing` report; `importing` and
`exporting` bring models in and out. `common` has the shared options, `failures` says how a command fails.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .. import __version__, adapters, tasks
from ..methods import criteria, named
from ..sweeps import approaches
from . import drawing, exporting, failures, importing, measuring, pruning, recovering, sweeping, training
from .common import Json, Module, app, show, table

__all__ = [
    "app",
    "drawing",
    "exporting",
    "importing",
    "main",
    "measuring",
    "pruning",
    "recovering",
    "sweeping",
    "training",
]

HELP_ORDER = (  # that in which a newcomer needs them; --help lists any other command after these
    *("demo", "inspect", "prune", "evaluate", "export", "deploy", "quantize", "recover", "import", "list", "train"),
    *("plan", "mask", "shrink", "sweep", "report"),
)


def main() -> None:
    """Run the command line; what the user can fix is one line on stderr and exit code 2."""
    failures.run(app, sys.argv[1:])


def print_version(asked: bool) -> None:
    """Print the version and exit."""
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Declare the options of every command for --help; `failures.run` has taken --debug off the line already."""


@app.command("list")
def list_(
    module: Module = None,
    as_json: Json = False,
) -> None:
    """List methods, what else sweeps can compare, criteria, model families and tasks."""
    names = {
        "methods": sorted(named()),
        "also in sweeps": sorted(approaches.found().keys() - named().keys()),
        "criteria": sorted(criteria()),
        "families": sorted(adapters.found()),
        "tasks": sorted(tasks.found()),
    }
    rows = [{"kind": kind, "names": ", ".join(members)} for kind, members in names.items()]
    show(names, as_json, table("What ssmprune knows", rows))


def _place_in_help(command: typer.models.CommandInfo) -> int:
    name = command.name or getattr(command.callback, "__name__", "")
    return HELP_ORDER.index(name) if name in HELP_ORDER else len(HELP_ORDER)


app.registered_commands.sort(key=_place_in_help)
