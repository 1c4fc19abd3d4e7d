"""The folder a sweep writes: what was asked for, one line per finished cell, the plans.

    RESULTS/sweep.json     what is compared: checkpoints, methods, ratios, seeds, examples, machine, commands, date
    RESULTS/cells.jsonl    one line per finished cell, on the disk before the next one starts
    RESULTS/plans/CHECKPOINT/METHOD-RATIO-SEED.safetensors    the plan of a cell, written before its line

A line that a kill has torn does not count: its cell is done again. A line may also say that a cell cannot be
(`refused`), or that its accuracy is `at_most` so much, which is all that a search wanted to know.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from ..arrays import is_share
from ..errors import InputError
from ..files import COUNT, COUNTS, FINITE, NUMBER, SHARE, TEXT, Kind, check_entries, list_of, write_atomically
from ..planning.plan import Plan
from .answers import Right, unpack

FORMAT, VERSION = "ssmprune-sweep", 1
FULL = "full"  # the pseudo-method of the unpruned model, at ratio 0
NAME = Kind("a name without slashes", lambda value: isinstance(value, str) and is_name(value))
RATE = Kind("a share of the rate, above 0", lambda value: is_share(value) and value > 1e-6)

# What sweep.json, each of its checkpoints, and each line of cells.jsonl must hold.
ABOUT = {
    "checkpoints": Kind("a list", lambda value: isinstance(value, list)),
    "methods": list_of(TEXT),
    "ratios": list_of(SHARE),
    "seeds": list_of(COUNT),
    "examples": COUNT,
    "split": TEXT,
}
ABOUT_OPTIONAL = {"every": COUNT, "max_loss": FINITE, "machine": TEXT, "commands": list_of(TEXT), "date": TEXT}
ENTRY = {"name": NAME, "file": TEXT, "family": TEXT, "stored_states": COUNT, "task": TEXT}
ENTRY_OPTIONAL = {"sha256": TEXT, "task_parameters": COUNTS}
KEY = {
    **{"checkpoint": NAME, "method": TEXT, "ratio": SHARE, "seed": COUNT},
    **{"split": TEXT, "examples": COUNT, "rate": RATE},
}
MEASURED = {
    **{"task": TEXT, "accuracy": SHARE, "loss": NUMBER, "states": COUNTS, "states_before": COUNTS},
    **{"parameters": COUNT, "parameters_before": COUNT},
}
MEASURED_OPTIONAL = {"speed": FINITE, "right": TEXT}
VERDICTS = {"refused": TEXT, "at_most": SHARE}  # of cells without a measurement


class Key(NamedTuple):
    """What makes a cell: two cells with one key are the same measurement."""

    checkpoint: str
    method: str
    ratio: float
    seed: int
    split: str
    examples: int
    rate: float


@dataclass(frozen=True)
class Cell:
    """One pruned model, evaluated. Accuracies and ratios are shares from 0 to 1; a conjugate pair is two states."""

    checkpoint: str
    task: str
    method: str
    ratio: float
    seed: int
    split: str
    examples: int  # that were evaluated
    rate: float  # of sampling, relative to training: 0.5 when every second sample was left out
    accuracy: float
    loss: float  # cross-entropy
    states: dict[str, int]  # {layer: those kept}
    states_before: dict[str, int]
    parameters: int
    parameters_before: int
    speed: float | None = None  # times faster than the unpruned model, where it was measured
    right: str | None = None  # which examples were answered rightly, as `answers` packs them

    @property
    def answers(self) -> Right | None:
        """Return which examples were answered rightly (examples,), None where that was not kept."""
        if self.right is None:
            return None
        right = unpack(self.right, self.examples)
        if int(right.sum()) != round(self.accuracy * self.examples):
            raise InputError(
                f"The cell {self.method} {self.ratio:g} of {self.checkpoint!r} has {int(right.sum())} right answers "
                f"but an accuracy of {self.accuracy:.4f} on {self.examples} examples; it is damaged, so sweep again."
            )
        return right

    @property
    def key(self) -> Key:
        """Return what identifies the cell."""
        return Key(*(getattr(self, name) for name in Key._fields))

    @property
    def pruned(self) -> float:
        """Return the share of all states that is gone; floors can keep it below `ratio`."""
        return 1 - sum(self.states.values()) / max(1, sum(self.states_before.values()))


@dataclass(frozen=True)
class Results:
    """What a sweep found; `about` is its sweep.json."""

    folder: Path
    about: dict[str, Any]
    cells: list[Cell] = field(default_factory=list)  # without repetition, in the order they were finished
    refused: dict[Key, str] = field(default_factory=dict)  # cells that cannot be, and why
    at_most: dict[Key, float] = field(default_factory=dict)  # accuracies that are too low for anybody to know them

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Results:
        """Read a folder that a sweep has written or is still writing."""
        folder = Path(folder)
        if not (folder / "sweep.json").is_file():
            raise InputError(f"{folder} holds no sweep (no sweep.json); make one with `ssmprune sweep --out {folder}`.")
        return cls(folder, _read_about(folder / "sweep.json"), *_read_cells(folder / "cells.jsonl"))

    @cached_property
    def by_key(self) -> dict[Key, Cell]:
        """Return every cell by what identifies it."""
        return {cell.key: cell for cell in self.cells}

    def entry(self, checkpoint: str) -> dict[str, Any]:
        """Return what sweep.json says of a checkpoint."""
        entries = {entry["name"]: entry for entry in self.about["checkpoints"]}
        if checkpoint not in entries:
            raise InputError(f"{self.folder} has no checkpoint {checkpoint!r}; it has {', '.join(entries)}.")
        return dict(entries[checkpoint])

    def checkpoint_file(self, name: str) -> Path:
        """Return the file of a checkpoint as the sweep was given it; refuse another model that lies there."""
        entry = self.entry(name)
        file = Path(entry["file"])
        if not file.is_file():
            raise InputError(f"{name!r} is not at {file} any more; go where the sweep was started, or put it back.")
        if entry.get("sha256") not in (None, sha256(file.read_bytes()).hexdigest()):
            raise InputError(f"{file} is not the model that was swept; put that one back, or sweep again.")
        return file

    def plan_path(self, cell: Cell | Key) -> Path:
        """Return where the plan of a cell lies, if its method has plans (unstructured random and `full` have none)."""
        return plan_path(self.folder, cell)

    def plan(self, cell: Cell | Key) -> Plan:
        """Return the plan of a cell."""
        return Plan.load(self.plan_path(cell))


class Writer:
    """Adds cells to a folder, each on the disk before `add` returns."""

    def __init__(self, folder: Path, lines: int) -> None:
        """Append to the cells of `folder`; see `open_results`."""
        self._folder, self._lines = folder, lines

    def save_plan(self, key: Key, plan: Plan) -> None:
        """Write the plan of a cell, which comes before its line."""
        plan.save(plan_path(self._folder, key))

    def add(self, cell: Cell) -> None:
        """Write the line that makes a cell count."""
        self._append({name: value for name, value in asdict(cell).items() if value is not None})

    def refuse(self, key: Key, reason: str) -> None:
        """Write down that a cell cannot be."""
        self._append(key._asdict() | {"refused": reason})

    def bound(self, key: Key, at_most: float) -> None:
        """Write down that an accuracy is at most so much."""
        self._append(key._asdict() | {"at_most": at_most})

    def _append(self, line: dict[str, Any]) -> None:
        os.write(self._lines, (json.dumps(line, separators=(",", ":")) + "\n").encode())
        os.fsync(self._lines)


@contextmanager
def open_results(folder: Path, about: dict[str, Any]) -> Iterator[tuple[Writer, Results]]:
    """Open a folder to add cells to it; yield a writer, and what an earlier sweep has left there.

    Checkpoints, methods, ratios and seeds of both are listed in sweep.json. A checkpoint of the same name must be the
    same file. Only one sweep may write at a time.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lines = os.open(folder / "cells.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise InputError(f"Cannot write to {folder}: {error.strerror}; give another folder.") from error
    try:
        _lock(lines, folder)
        path = folder / "sweep.json"
        merged = _merge(_read_about(path), about, folder) if path.is_file() else about
        write_atomically(path, (json.dumps(merged, indent=2) + "\n").encode())
        whole = _whole_lines(folder / "cells.jsonl")
        os.ftruncate(lines, sum(map(len, whole)))  # off with a line that a kill has torn
        yield Writer(folder, lines), Results.read(folder)
    finally:
        os.close(lines)


def plan_path(folder: Path, cell: Cell | Key) -> Path:
    """Return where the plan of a cell lies below a folder of results.

    >>> cell = Cell("smnist-s5", "smnist", "h2/uniform", 0.5, 0, "test", 9, 1.0, 1.0, 0.0, {}, {}, 1, 1)
    >>> plan_path(Path("results"), cell).as_posix()
    'results/plans/smnist-s5/h2_uniform-0.5-0.safetensors'
    """
    method = cell.method.replace("/", "_")
    return folder / "plans" / cell.checkpoint / f"{method}-{cell.ratio:.10g}-{cell.seed}.safetensors"


def is_name(text: str) -> bool:
    """Tell whether a text can name a checkpoint: below a folder of plans it must not lead anywhere else.

    >>> [is_name(text) for text in ("smnist-s5", "..", "a/b", "")]
    [True, False, False, False]
    """
    return text not in ("", ".", "..") and not {"/", "\\", "\0"} & set(text)


def _read_about(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not readable ({error}); it is damaged, so sweep into a new folder.") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise InputError(f"{path} is not the description of a sweep (format {FORMAT!r} expected).")
    if about.get("version") != VERSION:
        raise InputError(f"{path} has version {about.get('version')}, this ssmprune reads {VERSION}; sweep again.")
    check_entries(path, about, ABOUT, ABOUT_OPTIONAL)
    for entry in about["checkpoints"]:
        check_entries(f"{path}, checkpoints", entry, ENTRY, ENTRY_OPTIONAL)
    return about


class _Lines(NamedTuple):
    """What the lines of cells.jsonl say."""

    cells: list[Cell]
    refused: dict[Key, str]
    at_most: dict[Key, float]


def _read_cells(path: Path) -> _Lines:
    cells: dict[Key, Cell] = {}
    refused: dict[Key, str] = {}
    at_most: dict[Key, float] = {}
    for number, line in enumerate(_whole_lines(path), 1):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"Line {number} of {path} is not a cell ({error}); remove that line.") from error
        origin = f"Line {number} of {path}"
        verdict = next((name for name in VERDICTS if isinstance(content, dict) and name in content), None)
        check_entries(origin, content, KEY | ({verdict: VERDICTS[verdict]} if verdict else MEASURED), MEASURED_OPTIONAL)
        key = Key(*(content[name] for name in Key._fields))
        if verdict == "refused":
            refused[key] = content["refused"]
        elif verdict == "at_most":
            at_most[key] = content["at_most"]
        else:  # a cell done again, as to measure its speed, replaces the first
            cells[key] = Cell(**{name: value for name, value in content.items() if name in Cell.__dataclass_fields__})
    return _Lines(list(cells.values()), refused, at_most)


def _whole_lines(path: Path) -> list[bytes]:
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    return [line for line in lines if line.endswith(b"\n")]


def _merge(old: dict[str, Any], new: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the newer description, to which everything that the older lists is added."""
    files = {entry["name"]: entry.get("sha256") for entry in old["checkpoints"]}
    for entry in new["checkpoints"]:
        if files.get(entry["name"], entry.get("sha256")) != entry.get("sha256"):
            raise InputError(
                f"{folder} has results of another checkpoint called {entry['name']!r}; sweep into a new folder."
            )
    merged = old | {name: value for name, value in new.items() if value is not None}
    if new.get("every", 1) > 1:  # a sweep at another sampling rate only adds a column to what is there
        merged["examples"] = old["examples"]
    merged["commands"] = list(dict.fromkeys([*old.get("commands", []), *new.get("commands", [])]))
    names = {entry["name"] for entry in new["checkpoints"]}
    merged["checkpoints"] = [entry for entry in old["checkpoints"] if entry["name"] not in names] + new["checkpoints"]
    merged["methods"] = list(dict.fromkeys(old["methods"] + new["methods"]))
    for name in ("ratios", "seeds"):
        merged[name] = sorted({*old[name], *new[name]})
    return merged


def _lock(lines: int, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows: there, nobody watches
        return
    try:
        fcntl.flock(lines, fcntl.LOCK_EX | fcntl.LOCK_NB)  # gone with the process, however it ends
    except OSError as error:
        raise InputError(f"Another sweep is writing to {folder}; wait for it or give another folder.") from error
