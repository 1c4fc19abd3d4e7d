"""How a command fails: one message on stderr that names what is wrong, an exit code, no traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from cyclopts import CycloptsError, UnusedCliTokensError
from rich.console import Console
from rich.text import Text

from ..errors import InputError, visible

WRONG, INTERRUPTED, UNEXPECTED = 2, 130, 1  # exit codes: the user can fix it, Ctrl-C, our fault


def leave_with(launch: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> NoReturn:
    """Run a command line and leave the process with its exit code; --debug lets tracebacks through."""
    try:
        code = launch(arguments)
        if sys.stdout is not None:  # as after `>&-`
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except (BrokenPipeError, SystemExit) as leave:  # rich leaves when nobody reads on, as after `| head`
        if not isinstance(leave if isinstance(leave, BrokenPipeError) else leave.__context__, BrokenPipeError):
            raise
        code = 0  # files are written before anything is printed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it flushes at exit
    except Exception as error:
        if "--debug" in arguments:
            raise
        message, code = explain(error)
        line = Text.assemble(("Error:", "bold red"), " ", visible(message))
        Console(stderr=True, soft_wrap=True).print(line, highlight=False)
    if code == INTERRUPTED:
        Console(stderr=True).print("Interrupted. Every file that was written is whole.")
    sys.exit(code)


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
