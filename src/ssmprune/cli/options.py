"""Options that several commands share, as types and as dataclasses; the docstring below a field is its help.

Annotations are evaluated here, not postponed: cyclopts looks for their names where a dataclass is inherited.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter, Token
from cyclopts.validators import Number

from .. import tasks
from ..calibration.data import count
from ..errors import need_torch
from ..files import existing
from ..tasks import cards
from .output import say

if TYPE_CHECKING:
    from ..calibration.data import Sequences
    from ..integers.calibrate import Raw

ARGUMENTS = Group.create_ordered("Arguments", sort_key=0)
OPTIONS = Group.create_ordered("Options", sort_key=0)
MORE = Group.create_ordered("More options", sort_key=0)
EVERYWHERE = Group.create_ordered("Options of every command", sort_key=1)  # last


def parse_whole_number(_: Any, tokens: Sequence[Token]) -> int:
    """Read a whole number; cyclopts alone would round 1.5."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"expected a whole number; got {tokens[0].value!r}.") from None


def at_least(least: int, most: int | None = None) -> Parameter:
    """Return the rule for a whole number between two others."""
    return Parameter(converter=parse_whole_number, validator=Number(gte=least, lte=most))


Checkpoint = Annotated[Path, Parameter(help="A model saved by ssmprune (.safetensors).")]
Out = Annotated[Path, Parameter(alias="-o", help="Where to write the result.")]
Count = Annotated[int, at_least(1)]
Seed = Annotated[int, at_least(0, 2**63 - 1)]
Engine = Annotated[
    str, Parameter(help="What computes: torch, compiled (C), or auto: compiled if there is a compiler.", group=MORE)
]
Threads = Annotated[Count | None, Parameter(help="Number of threads torch may use.", group=MORE)]
Unstable = Annotated[
    Literal["refuse", "keep"], Parameter(help="What to do with poles on or outside the unit circle.", group=MORE)
]
DataFolder = Annotated[
    Path | None, Parameter(help="Folder with the data sets; by default $SSMPRUNE_DATA or a cache.", group=MORE)
]


@Parameter(name="*")
class Options:
    """What a command takes: dataclasses derived from this put their fields on the command line without a prefix."""


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions(Options):
    """Unlabelled inputs to look at."""

    calibrate: str | None = None
    """A task, or a .npy file of inputs; labels are not needed."""
    sequences: Annotated[Count, Parameter(group=MORE)] = 200
    """How many sequences to calibrate on, always the same random ones."""
    data: DataFolder = None

    def load(self, checkpoint: Path) -> "list[Sequences] | None":
        """Return batches of a task, as the checkpoint was trained on it, or of a file; None where none is named."""
        if self.calibrate is None:
            return None
        from ..training.calibration_inputs import load_unlabelled

        parameters = cards.task_parameters(checkpoint, self.calibrate)
        batches = load_unlabelled(self.calibrate, self.sequences, self.data, parameters)
        say(f"Looking at {count(batches):,} sequences of {self.calibrate}.")
        return batches

    def raw(self, checkpoint: Path) -> "Raw | None":
        """Return what the samples of a task stand for: scale and offset; None of a file, of tokens and of floats."""
        known = self.calibrate in tasks.found()
        return cards.task_of(checkpoint, self.calibrate).load("train", self.data).raw if known else None


def flag(name: str) -> str:
    """Return how an option is written on the command line."""
    return f"--{name.replace('_', '-')}"


def prepare(*checkpoints: Path, threads: int | None = None) -> None:
    """Set the switches that belong to a whole process, which the library never touches."""
    for file in checkpoints:
        existing(file)  # told before torch is imported, which takes seconds
    need_torch()
    import torch

    torch.set_flush_denormal(True)  # before any other thread exists: they inherit it
    if threads:
        torch.set_num_threads(threads)
