"""A sweep: all checkpoints pruned by all approaches at all ratios and evaluated, killed and resumed at will."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ..budgets import GRID
from ..calibration.refit import FEW
from ..errors import InputError
from ..files import check_writable
from ..models import load
from ..models.classifier import Classifier
from ..tasks.cards import read_card, task_of
from ..tasks.task import Task
from ..training.calibration_inputs import unlabelled_batches
from ..training.evaluation import at_rate, check_fits
from . import approaches
from .approaches import Subject
from .runners import Job, Runner, local
from .store import FORMAT, FULL, NAME, VERSION, Cell, Key, Outcome, Results, Writer, open_results
from .timing import machine

CALIBRATION = 200  # unlabelled training sequences
# A re-fit takes as long as its sequences have steps, so of long ones fewer are used, but never so few that the re-fit
# has to be cautious.
CALIBRATION_STEPS = 320_000


@dataclass(frozen=True)
class Sweep:
    """What to compare, and on how many test examples."""

    methods: Sequence[str] = field(default_factory=approaches.default)
    ratios: Sequence[float] = GRID
    seeds: Sequence[int] = (0,)  # for the approaches that are random
    examples: int = 2000

    def __post_init__(self) -> None:
        for name in self.methods:
            approaches.get(name)
        if not self.methods or not self.ratios or not self.seeds:
            raise InputError("A sweep needs at least one method, one ratio and one seed.")
        if wrong := [ratio for ratio in self.ratios if not 0 < ratio <= 1]:
            raise InputError(f"Ratios must lie above 0 and up to 1 (0 is the full model, always there); got {wrong}.")

    def keys(self, checkpoint: str) -> list[Key]:
        """Return the cells of a checkpoint, the full model first."""
        full = Key(checkpoint, FULL, 0.0, 0, "test", self.examples, rate=1.0)
        tries = [(method, seed) for method in self.methods for seed in self.seeds_of(method)]
        pruned = [full._replace(method=name, seed=seed, ratio=ratio) for name, seed in tries for ratio in self.ratios]
        return [full, *pruned]

    def seeds_of(self, method: str) -> Sequence[int]:
        """Return the seeds of a method: only 0 unless it is random."""
        return self.seeds if approaches.get(method).random else (0,)

    @property
    def calibration(self) -> int:
        """Return how many unlabelled training sequences the methods need."""
        return CALIBRATION if any(approaches.get(name).calibrated for name in self.methods) else 0


@dataclass(frozen=True)
class Entry:
    """A checkpoint to sweep."""

    name: str
    file: Path
    task: Task
    card: dict[str, Any]

    @cached_property
    def model(self) -> Classifier:
        """Load the model, once."""
        return load(self.file)

    def about(self) -> dict[str, Any]:
        """Return what sweep.json says of the checkpoint."""
        config = self.model.config
        return {
            "name": self.name,
            "file": str(self.file),
            "sha256": hashlib.sha256(self.file.read_bytes()).hexdigest(),
            "family": config.kind,
            "stored_states": sum(config.states),
            "task": self.task.name,
            "task_parameters": self.task.parameters(),
            "card": self.card,
        }


@dataclass(frozen=True)
class Session:
    """Where a sweep finds its data, where and how its cells run, the command that was typed, and a progress bar."""

    root: Path | None = None
    runner: Runner = local
    engine: str = "torch"  # what evaluates: torch or compiled
    command: str = ""
    watch: Callable[[int, str, int], object] = lambda finished, last, cells: None  # called after each cell


def entries(files: Iterable[Path], task: str | None = None) -> list[Entry]:
    """Return the checkpoints at these paths, with the tasks their cards name unless `task` says otherwise."""
    files = list(files)
    for file in files:
        if not file.is_file():
            raise InputError(f"There is no checkpoint at {file}.")
    for name in (names := _different_names(files)):
        if not NAME.fits(name):
            raise InputError(f"A sweep names folders after checkpoints, by {NAME.expected}; rename {name!r}.")
    return [Entry(name, file, task_of(file, task), read_card(file)) for name, file in zip(names, files, strict=True)]


def _different_names(files: Sequence[Path]) -> list[str]:
    """Return the names of files, with as many of their folders as it takes to tell all files apart.

    >>> _different_names([Path("runs/a/best.safetensors"), Path("runs/b/best.safetensors"), Path("c/last.safetensors")])
    ['a-best', 'b-best', 'last']
    """
    whole = [Path(os.path.abspath(file)) for file in files]
    if twice := {str(file) for file in whole if whole.count(file) > 1}:
        raise InputError(f"A sweep takes every checkpoint once; given twice: {', '.join(sorted(twice))}.")
    names = [file.stem for file in whole]
    for depth in range(1, max(len(file.parts) for file in whole)):
        longer = ["-".join([*file.parts[-1 - depth : -1], file.stem]) for file in whole]
        names = [more if names.count(name) > 1 else name for name, more in zip(names, longer, strict=True)]
    return names


def load_subject(
    entry: Entry, calibration: int = 0, root: Path | None = None, splits: Sequence[str] = ("test",), every: int = 1
) -> Subject:
    """Return a checkpoint with the data that its cells need.

    calibration: how many unlabelled training sequences to prune with. every: keep each n-th sample of the `splits`,
    another sampling rate than in training.
    """
    loaded = {split: at_rate(entry.task, every).load(split, root) for split in splits}
    for split in loaded.values():
        check_fits(entry.model, split)
    inputs = []
    if calibration:
        train = entry.task.load("train", root)
        inputs = unlabelled_batches(train, min(calibration, max(FEW, CALIBRATION_STEPS // train.length)))
    return Subject(entry.name, entry.task.name, entry.model, loaded, inputs, every)


def sweep(checkpoints: Sequence[Entry], plan: Sweep, out: Path, session: Session | None = None) -> Results:
    """Run the cells that the folder `out` does not have yet."""
    check_writable(out / "sweep.json")
    session = session or Session()
    about = describe(checkpoints, plan, session.command)
    subjects = (load_subject(entry, plan.calibration, session.root) for entry in checkpoints)
    first = next(subjects)  # before anything is written, because its task may not fit
    with open_results(out, about) as writer:
        keys = [key for entry in checkpoints for key in plan.keys(entry.name)]
        fill(writer, itertools.chain([first], subjects), keys, session)
    return Results.read(out)


def describe(checkpoints: Iterable[Entry], plan: Sweep, command: str) -> dict[str, Any]:
    """Return the sweep.json of a sweep."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "checkpoints": [entry.about() for entry in checkpoints],
        "methods": list(plan.methods),
        "ratios": list(plan.ratios),
        "seeds": list(plan.seeds),
        "examples": plan.examples,
        "split": "test",
        "machine": machine(),
        "commands": [command],
        "date": datetime.now(UTC).date().isoformat(),
    }


def fill(
    writer: Writer, subjects: Iterable[Subject], keys: Sequence[Key], session: Session, least: int = 0
) -> list[Cell | None]:
    """Return the cells with these keys, subject by subject, None where an approach refuses; missing ones are run now.

    least: None also for a model with fewer right answers, which are not counted to the end.
    """
    filled: list[Key] = []
    finished = 0
    for subject in subjects:
        sizes = {name: len(split) for name, split in subject.splits.items()}
        own = [key for key in keys if key.checkpoint == subject.name]
        wanted = [key._replace(examples=min(key.examples, sizes[key.split])) for key in own]
        missing = [key for key in dict.fromkeys(wanted) if not _is_known(writer.results.outcomes.get(key), key, least)]
        finished += len(wanted) - len(missing)
        session.watch(finished, "", len(keys))
        jobs = [Job(key, writer.plan(key), session.engine, least) for key in missing]
        for key, outcome, plan in session.runner(subject, jobs):
            writer.write(key, outcome, plan)
            finished += 1
            session.watch(finished, f"{key.checkpoint} {key.method} {key.ratio:.0%}", len(keys))
        filled += wanted
    outcomes = [writer.results.outcomes[key] for key in filled]
    return [outcome if isinstance(outcome, Cell) else None for outcome in outcomes]


def _is_known(outcome: Outcome | None, key: Key, least: int) -> bool:
    """Tell whether a cell need not be run: a bound of its accuracy is enough if that shows fewer right than `least`."""
    if isinstance(outcome, float):
        return round(outcome * key.examples) < least
    return outcome is not None
