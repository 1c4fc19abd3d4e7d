"""A sweep: every checkpoint pruned by every approach at every ratio and evaluated, killed and resumed at will."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ..bisection import GRID
from ..deploy.timing import machine
from ..errors import InputError
from ..models import load
from ..models.classifier import Classifier
from ..tasks.cards import read_card, task_of
from ..tasks.task import Task
from . import approaches
from .approaches import Subject
from .cells import CALIBRATION, Job, load_subject
from .runners import Runner, local
from .search import keys_to_report, largest_ratios
from .store import FORMAT, FULL, VERSION, Cell, Key, Results, Writer, open_results

ALL = 10**9  # more examples than any split has


@dataclass(frozen=True)
class Sweep:
    """What to compare, and on how many examples."""

    methods: Sequence[str] = field(default_factory=approaches.default)
    ratios: Sequence[float] = GRID
    seeds: Sequence[int] = (0,)  # for the approaches that are random
    examples: int = 2000
    every: int = 1  # keep each n-th sample: another sampling rate than in training
    speed: bool = False
    max_loss: float | None = None  # points: also find the largest ratio that costs no more on validation data
    searched: Sequence[str] | None = None  # the methods whose largest ratios are found; else all
    final_examples: int = ALL  # of the test set, at the ratios found within `max_loss`

    def __post_init__(self) -> None:
        """Refuse what cannot be swept before anything is loaded."""
        for name in (*self.methods, *(self.searched or ())):
            approaches.get(name)
        if not self.methods or not self.ratios or not self.seeds:
            raise InputError("A sweep needs at least one method, one ratio and one seed.")
        if wrong := [ratio for ratio in self.ratios if not 0 < ratio <= 1]:
            raise InputError(f"Ratios must lie above 0 and up to 1 (0 is the full model, always there); got {wrong}.")

    def keys(self, name: str) -> Iterator[Key]:
        """Yield the cells of a checkpoint on the test set, the full model first."""
        yield self.key(name, FULL, 0.0, 0)
        for method in self.methods:
            for seed in self.seeds_of(method):
                yield from (self.key(name, method, ratio, seed) for ratio in self.ratios)

    def load(self, entry: Entry, root: Path | None) -> Subject:
        """Return a checkpoint with the data that its cells need."""
        calibrated = any(approaches.get(name).calibrated for name in self.methods)
        splits = ["test"] if self.max_loss is None else ["test", "val"]
        calibration = CALIBRATION if calibrated else 0
        return load_subject(entry.name, entry.model, entry.task, splits, self.every, calibration, root)

    def key(self, name: str, method: str, ratio: float, seed: int, split: str = "test") -> Key:
        """Return the key of a cell at the rate and number of examples of the sweep."""
        return Key(name, method, ratio, seed, split, self.examples, 1 / self.every)

    def seeds_of(self, method: str) -> Sequence[int]:
        """Return the seeds of a method, a single one unless it is random."""
        return self.seeds if approaches.get(method).random else (0,)


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
    watch: Callable[[str, int, int], object] = lambda last, finished, cells: None  # called after each cell


def entries(files: Iterable[Path], task: str | None = None) -> list[Entry]:
    """Return the checkpoints at these paths, with the tasks their cards name unless `task` says otherwise."""
    files = list(files)
    for file in files:
        if not file.is_file():
            raise InputError(f"There is no checkpoint at {file}.")
    return [
        Entry(name, file, task_of(file, task), read_card(file))
        for name, file in zip(_different_names(files), files, strict=True)
    ]


def _different_names(files: Sequence[Path]) -> list[str]:
    """Return the names of files, with as many of their folders as it takes to tell all files apart.

    >>> _different_names([Path("runs/a/best.safetensors"), Path("runs/b/best.safetensors"), Path("c/last.safetensors")])
    ['a-best', 'b-best', 'last']
    """
    whole = [Path(os.path.abspath(file)) for file in files]
    if twice := {str(file) for file in whole if whole.count(file) > 1}:
        raise InputError(f"A sweep takes every checkpoint once; given twice: {', '.join(sorted(twice))}.")
    names = [[file.stem] for file in whole]
    for depth in range(1, max(len(file.parts) for file in whole)):
        same = [names.count(name) > 1 for name in names]
        names = [
            [*file.parts[-1 - depth : -1], file.stem] if clash else name
            for file, name, clash in zip(whole, names, same, strict=True)
        ]
    return ["-".join(name) for name in names]


def sweep(checkpoints: Sequence[Entry], plan: Sweep, out: Path, session: Session | None = None) -> Results:
    """Run every cell that the folder `out` does not have yet."""
    session = session or Session()
    about = {
        "format": FORMAT,
        "version": VERSION,
        "checkpoints": [entry.about() for entry in checkpoints],
        "methods": list(plan.methods),
        "ratios": list(plan.ratios),
        "seeds": list(plan.seeds),
        "examples": plan.examples,
        "split": "test",
        "every": plan.every,
        "max_loss": plan.max_loss,
        "machine": machine(),
        "commands": [session.command],
        "date": datetime.now(UTC).date().isoformat(),
    }
    if out.exists() and not out.is_dir():
        raise InputError(f"Cannot write to {out}: it is a file; give a folder.")
    subjects = (plan.load(entry, session.root) for entry in checkpoints)
    first = next(subjects)  # before anything is written, because its task may not fit
    with open_results(out, about) as writer:
        ledger = Ledger(writer, session, sum(len(list(plan.keys(entry.name))) for entry in checkpoints))
        for subject in itertools.chain([first], subjects):
            ledger.fill(subject, plan.keys(subject.name), timed=plan.speed)
            if plan.max_loss is not None:
                _fill_largest(ledger, subject, plan, plan.max_loss)
    return Results.read(out)


def _fill_largest(ledger: Ledger, subject: Subject, plan: Sweep, budget: float) -> None:
    """Search the largest ratios on validation data, and evaluate what tables report there on the test set."""
    full = plan.key(subject.name, FULL, 0.0, 0)
    keys = [full._replace(method=method, seed=seed) for method in plan.methods for seed in plan.seeds_of(method)]
    searched = [key for key in keys if plan.searched is None or key.method in plan.searched]
    if not searched:
        return

    def fill(keys: Sequence[Key], least: int = 0) -> list[Cell | None]:
        ledger.expected += len(keys)  # beyond the announced total
        return ledger.fill(subject, keys, least)

    (unpruned,) = fill([full._replace(split="val")])
    assert unpruned is not None
    stored = sum(subject.model.config.states)
    largest = largest_ratios(fill, unpruned, searched, budget, plan.ratios, stored)
    fill([key._replace(examples=plan.final_examples) for key in [full, *keys_to_report(keys, largest)]])


class Ledger:
    """Hands the cells that a folder of results lacks to the runner, and writes down what comes back."""

    def __init__(self, writer: Writer, session: Session, expected: int) -> None:
        """Go on from what an earlier sweep has left; `expected` cells are to come, for the progress bar."""
        self._writer, self._session = writer, session
        self._finished, self.expected = 0, expected

    def fill(self, subject: Subject, keys: Iterable[Key], least: int = 0, *, timed: bool = False) -> list[Cell | None]:
        """Return the cells with these keys, None where an approach refuses; missing ones are run now.

        least: None also for a model with fewer right answers, which are not counted to the end.
        timed: a cell whose speed was not measured counts as missing.
        """
        wanted = [_with_true_count(key, subject) for key in keys]
        missing = [key for key in dict.fromkeys(wanted) if not self._has(key, least, timed)]
        self._advance(len(wanted) - len(missing), "")
        jobs = [self._job(key, least, timed) for key in missing]
        for key, outcome, plan in self._session.runner(subject, jobs):
            self._writer.write(key, outcome, plan if isinstance(outcome, Cell) else None)
            self._advance(1, f"{key.checkpoint} {key.method} {key.ratio:.0%}")
        return [self._cell(key) for key in wanted]

    def _cell(self, key: Key) -> Cell | None:
        outcome = self._writer.outcomes.get(key)
        return outcome if isinstance(outcome, Cell) else None

    def _has(self, key: Key, least: int, timed: bool) -> bool:
        outcome = self._writer.outcomes.get(key)
        if isinstance(outcome, Cell):
            return self._has_plan(key) and not (timed and outcome.speed is None)
        if isinstance(outcome, float):
            return round(outcome * key.examples) < least
        return outcome is not None

    def _has_plan(self, key: Key) -> bool:
        """Tell whether the plan of a cell is there, if it makes one; nobody looks at plans of validation cells."""
        wanted = key.split == "test" and key.method != FULL and approaches.get(key.method).plans
        return not wanted or self._writer.before.plan_path(key).is_file()

    def _job(self, key: Key, least: int, timed: bool) -> Job:
        """Return a job that has its plan if that was made before, and the cell if only the plan is missing."""
        before, known = self._writer.before, self._cell(key)
        plan = before.plan(key) if before.plan_path(key).is_file() else None
        if known is not None and timed and known.speed is None:
            known = None
        return Job(key, timed, plan, self._session.engine, least, known)

    def _advance(self, count: int, text: str) -> None:
        self._finished += count
        self._session.watch(text, self._finished, self.expected)


def _with_true_count(key: Key, subject: Subject) -> Key:
    """Return the key with the number of examples that the split has, if they are fewer."""
    split = subject.splits[key.split, round(1 / key.rate)]
    return key._replace(examples=min(key.examples, len(split)))
