"""Sweeps: every checkpoint pruned in every way at every ratio and evaluated, killed and resumed at will."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError
from ..models import load
from ..models.cards import read_card
from ..targets import GRID
from . import approaches
from .approaches import Subject
from .cells import prepared, task_of
from .engines import Engine, Local
from .ledger import Book
from .search import largest_ratios, reported
from .store import FORMAT, FULL, VERSION, Key, Results, writing

ALL = 10**9  # more examples than any split has: all of them


@dataclass(frozen=True)
class Sweep:
    """What to compare, and on how many examples."""

    methods: Sequence[str] = field(default_factory=approaches.default)
    ratios: Sequence[float] = GRID
    seeds: Sequence[int] = (0,)  # of the approaches that are random; the others have one cell
    examples: int = 2000
    every: int = 1  # keep each n-th sample: another sampling rate than in training
    speed: bool = False
    max_loss: float | None = None  # points of accuracy: also find the largest ratio within them on validation data
    final_examples: int = ALL  # of the test set, at the ratios that are reported: those found within `max_loss`

    def __post_init__(self) -> None:
        """Refuse what cannot be swept before anything is loaded."""
        for name in self.methods:
            approaches.get(name)
        if not self.methods or not self.ratios or not self.seeds:
            raise InputError("A sweep needs at least one method, one ratio and one seed.")
        if wrong := [ratio for ratio in self.ratios if not 0 < ratio <= 1]:
            raise InputError(f"Ratios must lie above 0 and up to 1 (0 is the full model, always there); got {wrong}.")

    def jobs(self, name: str) -> Iterator[Key]:
        """The cells of a checkpoint on the test set, the full model first."""
        yield self.key(name, FULL, 0.0, 0)
        for method in self.methods:
            for seed in self.seeds_of(method):
                yield from (self.key(name, method, ratio, seed) for ratio in self.ratios)

    def key(self, name: str, method: str, ratio: float, seed: int, split: str = "test") -> Key:
        """A cell at this sweep's rate and number of examples."""
        return Key(name, method, ratio, seed, split, self.examples, 1 / self.every)

    def seeds_of(self, method: str) -> Sequence[int]:
        """The seeds that make a difference."""
        return self.seeds if approaches.get(method).random else (0,)


@dataclass(frozen=True)
class Entry:
    """A checkpoint to sweep."""

    name: str
    file: Path
    task: Any
    card: dict[str, Any]

    def about(self) -> dict[str, Any]:
        """What sweep.json says of it."""
        config = load(self.file).config
        return {
            "name": self.name,
            "file": str(self.file),
            "sha256": hashlib.sha256(self.file.read_bytes()).hexdigest(),
            "family": config.family,
            "stored_states": sum(config.states),
            "task": self.task.name,
            "task_parameters": self.card.get("task_parameters", {}),
            "card": self.card,
        }


def entries(files: Iterable[Path], task: str | None = None) -> list[Entry]:
    """The checkpoints at these paths, with the tasks their cards name unless `task` says otherwise."""
    found = []
    for file in files:
        if not file.is_file():
            raise InputError(f"There is no checkpoint at {file}.")
        card = read_card(file)
        found.append(Entry(file.stem, file, task_of(card, file, task), card))
    names = [entry.name for entry in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"Checkpoints of one sweep need different names; twice there: {', '.join(sorted(twice))}.")
    return found


def sweep(
    checkpoints: Sequence[Entry],
    plan: Sweep,
    out: Path,
    root: Path | None = None,
    engine: Engine | None = None,
    command: str = "",
    watch: Callable[[str, int, int], object] = lambda text, done, total: None,
) -> Results:
    """Do every cell that `out` does not have yet; `watch` hears what is done and how many cells of how many."""
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
        "commands": [command],
        "date": datetime.now(timezone.utc).date().isoformat(),
    }
    if out.exists() and not out.is_dir():
        raise InputError(f"Cannot write to {out}: it is a file; give a folder.")
    first = _subject(checkpoints[0], plan, root)  # before anything is written: its task may be a wrong one
    with writing(out, about) as (writer, before):
        book = Book(writer, before, engine or Local(), watch, sum(len(list(plan.jobs(e.name))) for e in checkpoints))
        for entry in checkpoints:
            book.subject = first if entry is checkpoints[0] else _subject(entry, plan, root)
            book.do(plan.jobs(entry.name), plan.speed)
            if plan.max_loss is not None:
                full = plan.key(entry.name, FULL, 0.0, 0)
                cells = [full._replace(method=m, seed=seed) for m in plan.methods for seed in plan.seeds_of(m)]
                found = largest_ratios(book, full._replace(split="val"), cells, plan.max_loss, plan.ratios)
                book.do([key._replace(examples=plan.final_examples) for key in [full, *reported(found)]], known=False)
    return Results.read(out)


def _subject(entry: Entry, plan: Sweep, root: Path | None) -> Subject:
    parts = [("test", plan.every)] + ([] if plan.max_loss is None else [("val", plan.every)])
    calibrate = any(approaches.get(name).calibrated for name in plan.methods)
    return prepared(entry.file, entry.name, entry.task, root, parts, calibrate)


def machine() -> str:
    """What the figures were made on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores; Python {platform.python_version()}, torch {torch.__version__}"
