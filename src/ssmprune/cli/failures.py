"""How a command fails: one message on stderr that names what is wrong, an exit code, no traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from ..errors import InputError, visible

command_of = cache(typer.main.get_command)  # the commands of an app, put together once in a process

WRONG, INTERRUPTED, UNEXPECTED = 2, 130, 1  # exit codes: the user can fix it, Ctrl-C, our fault


def run(app: typer.Typer, arguments: Sequence[str]) -> NoReturn:
    """Run the command line and leave the process; `--debug`, wherever it stands, lets tracebacks through.

    It is taken off the line here: typer would accept it before the command's name alone, and whoever needs it adds it
    to the end of the line that failed.
    """
    debug = "--debug" in arguments
    arguments = with_minutes([argument for argument in arguments if argument != "--debug"])
    try:
        code = command_of(app).main(arguments, prog_name="ssmprune", standalone_mode=False)
        if sys.stdout is not None:  # as after `>&-`
            sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except (BrokenPipeError, SystemExit) as leave:  # typer and rich leave when nobody reads on, as after `| head`
        if not isinstance(leave if isinstance(leave, BrokenPipeError) else leave.__context__, BrokenPipeError):
            raise
        code = _leave_pipe()  # files are written before anything is printed
    except Exception as error:
        if debug:
            raise
        message, code = explain(error, arguments)
        line = Text.assemble(("Error:", "bold red"), " ", visible(message))
        Console(stderr=True, soft_wrap=True).print(line, highlight=False)
    if code == INTERRUPTED:
        Console(stderr=True).print("Interrupted. Every file that was written is whole.")
    sys.exit(code if isinstance(code, int) else 0)


def with_minutes(arguments: Sequence[str]) -> list[str]:
    """Give `--recover` its usual five minutes where no number follows: typer knows no options that may lack a value.

    >>> with_minutes(["prune", "--recover", "--json"]), with_minutes(["prune", "--recover", "2"])
    (['prune', '--recover', '5', '--json'], ['prune', '--recover', '2'])
    """
    given: list[str] = []
    for argument, following in pairwise([*arguments, "--"]):
        given.append(argument)
        if argument == "--recover" and not _is_number(following):
            given.append("5")
    return given


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _leave_pipe() -> int:
    """Give stdout another end, so that Python does not complain when it flushes it on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def explain(error: Exception, arguments: Sequence[str]) -> tuple[str, int]:
    """Say what happened, and what to do where it is the user's turn."""
    if isinstance(error, InputError):
        return str(error), WRONG
    if hasattr(error, "format_message"):  # typer's own, about the words of the command line
        return _usage(error, arguments), WRONG
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}. Check the path, its permissions and the space on its disk.", WRONG
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"Not enough memory ({_first_line(error)}). Use a smaller batch, length or model.", WRONG
    return f"Unexpected {type(error).__name__}: {_first_line(error)}. Add --debug for the traceback.", UNEXPECTED


def _usage(error: Any, arguments: Sequence[str]) -> str:
    """Return what typer says, with the word it is about, and where to read more."""
    message = str(error.format_message()) or "A command is missing."  # typer has printed the help
    names = getattr(getattr(error, "param", None), "opts", [])
    given = [word for name in names for word in _given(name, arguments)]
    if given and not any(repr(word) in message for word in given):
        message = f"{message.rstrip('.')}; got {', '.join(map(repr, given))}"
    command = getattr(getattr(error, "ctx", None), "command_path", "ssmprune")
    return f"{message.removesuffix('.')}{'' if message.endswith('?') else '.'} Try `{command} --help`."


def _given(name: str, arguments: Sequence[str]) -> list[str]:
    """Return the values that an option has on the command line, as `--name value`, `--name=value` or `-nvalue`."""
    after = [value for word, value in pairwise(arguments) if word == name]
    short = not name.startswith("--")
    joined = [
        word[len(name) :].removeprefix("=") for word in arguments if word.startswith(name if short else f"{name}=")
    ]
    return [value for value in (*after, *joined) if value]


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
