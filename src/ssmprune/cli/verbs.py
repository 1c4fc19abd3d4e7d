"""The app: its verbs under headings for newcomers, the options of all commands, and how a command ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

from cyclopts import App, Group, Parameter
from rich.console import Console
from rich.text import Text

from .. import __version__
from ..errors import InputError, one_of, visible
from ..registry import add_module
from .deploying import deploy, export, quantize, verify
from .importing import import_, list_
from .options import ARGUMENTS, EVERYWHERE, OPTIONS
from .output import INTERRUPTED, Report, explain
from .pruning import inspect, prune, recover
from .sweeping import demo, report, sweep
from .training import evaluate, train

VERBS: dict[str, dict[str, Callable[..., Report | None]]] = {
    "Start here": {"demo": demo, "inspect": inspect, "prune": prune, "evaluate": evaluate, "list": list_},
    "Make it smaller still": {"recover": recover, "quantize": quantize},
    "Take models in and out": {"import": import_, "export": export, "verify": verify, "deploy": deploy},
    "Train and compare": {"train": train, "sweep": sweep, "report": report},
}

app = App(
    name="ssmprune",
    help="Make trained state space models (S5, S4D and their cousins) smaller and faster, without retraining.",
    help_format="markdown",
    help_flags=["--help", "-h"],
    version=__version__,
    version_flags=["--version"],
    default_parameter=Parameter(negative=(), show_default=lambda value: value or None),
    group_arguments=ARGUMENTS,
    group_parameters=OPTIONS,
    group_commands=EVERYWHERE,
)
for heading, verbs in VERBS.items():
    group = Group.create_ordered(heading, sort_key=0)
    for place, (verb, function) in enumerate(verbs.items()):
        app.command(function, name=verb, group=group, sort_key=place)
app.meta.suppress_keyboard_interrupt = False  # `run` reports it
app.meta.help_flags = ()  # `launch` first looks whether there is such a command


@app.meta.default
def launch(
    *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    module: Annotated[
        list[Path] | None,
        Parameter(
            group=EVERYWHERE,
            metavar="FILE.py",
            help="A Python file that brings your own criteria, methods, adapters or tasks; it is executed.",
        ),
    ] = None,
    json: Annotated[bool, Parameter(group=EVERYWHERE, help="Print JSON instead of a table.")] = False,
    debug: Annotated[bool, Parameter(group=EVERYWHERE, help="Show the traceback of an error.")] = False,
) -> int:
    """Run a command and return its exit code; `run` looks for --debug."""
    if not words:
        app.help_print()
        raise InputError("A command is missing. Try `ssmprune --help`.")
    if not words[0].startswith("-"):
        one_of("command", words[0], {name: verb for verbs in VERBS.values() for name, verb in verbs.items()})
    command, bound, _ = app.parse_args(words, print_error=False, exit_on_error=False)
    for path in module or []:
        add_module(path)
    result: Any = command(*bound.args, **bound.kwargs)
    if not isinstance(result, Report):  # --help and --version have printed what there is to say; so has process 0
        return 0
    try:
        result.show(json)
    except BrokenPipeError:
        raise
    except OSError as error:
        _leave_stdout()
        told = f"Standard output: {error.strerror}. The result is not shown; files were written before, whole."
        raise InputError(told) from error
    return result.exit_code


def run(arguments: Sequence[str]) -> NoReturn:
    """Run a command line and leave the process; what the user can fix is one line on stderr and exit code 2."""
    try:
        code = app.meta(arguments, print_error=False, exit_on_error=False, result_action="return_value") or 0
        if sys.stdout is not None:  # as after `>&-`
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except (BrokenPipeError, SystemExit) as leave:  # rich leaves when nobody reads on, as after `| head`
        if not isinstance(leave if isinstance(leave, BrokenPipeError) else leave.__context__, BrokenPipeError):
            raise
        code = 0  # files are written before anything is printed
        _leave_stdout()
    except Exception as error:
        if "--debug" in arguments:
            raise
        message, code = explain(error)
        line = Text.assemble(("Error:", "bold red"), " ", visible(message))
        with suppress(OSError):  # where nothing can be printed, the exit code still tells
            Console(stderr=True, soft_wrap=True).print(line, highlight=False)
    if code == INTERRUPTED:
        Console(stderr=True).print("Interrupted. Every file that was written is whole.")
    sys.exit(code)


def _leave_stdout() -> None:
    """Print no more: what could not be printed would fail again when Python flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> NoReturn:
    """Run the command line of this process."""
    run(sys.argv[1:])
