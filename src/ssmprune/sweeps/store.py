"""The folder a sweep writes: what was asked for, a line for each finished cell, the plans.

    RESULTS/sweep.json     what is compared: checkpoints, methods, ratios, seeds, examples, machine, commands, date
    RESULTS/cells.jsonl    a line for each finished cell, on the disk before the next cell starts
    RESULTS/plans/CHECKPOINT/METHOD-RATIO-SEED.safetensors    the plan of a cell, written before its line

A line that a kill has torn does not count: its cell is run again. A line may also say that an approach `refused` the
cell, and why, or that its accuracy is `at_most` a bound, which is all that a search wanted to know.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple, get_type_hints

from ..arrays import is_share
from ..errors import InputError, one_of
from ..files import COUNT, COUNTS, FINITE, NUMBER, SHARE, TEXT, Kind, check_entries, list_of, write_atomically
from ..planning.plan import Plan

FORMAT, VERSION = "ssmprune-sweep", 1
FULL = "full"  # the pseudo-method of the unpruned model, at ratio 0
# The path of a plan contains the name of its checkpoint, which must not lead out of the folder.
NAME = Kind(
    "a name without slashes",
    lambda text: isinstance(text, str) and text not in ("", ".", "..") and not {"/", "\\", "\0"} & set(text),
)
RATE = Kind("a share of the rate, above 0", lambda value: is_share(value) and value > 1e-6)

# What sweep.json and each of its checkpoints must hold.
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
VERDICTS = {"refused": TEXT, "at_most": SHARE}  # instead of a measurement, beside the key

Share = Annotated[float, SHARE]
Count = Annotated[int, COUNT]
Counts = Annotated[dict[str, int], COUNTS]
Text = Annotated[str, TEXT]


class Key(NamedTuple):
    """What identifies a cell: cells with the same key are the same measurement."""

    checkpoint: str
    method: str
    ratio: float
    seed: int
    split: str
    examples: int
    rate: float


@dataclass(frozen=True)
class Cell:
    """A pruned model, evaluated; with the kind of each entry, as cells.jsonl must have it.

    Accuracies and ratios are shares from 0 to 1; a conjugate pair is two states.
    """

    checkpoint: Annotated[str, NAME]
    task: Text
    method: Text
    ratio: Share
    seed: Count
    split: Text
    examples: Count  # that were evaluated
    rate: Annotated[float, RATE]  # of sampling, relative to training: 0.5 when every second sample was left out
    accuracy: Share
    loss: Annotated[float, NUMBER]  # cross-entropy
    states: Counts  # {layer: those kept}
    states_before: Counts
    parameters: Count
    parameters_before: Count
    speed: Annotated[float | None, FINITE] = None  # times faster than the unpruned model, where it was measured
    right: Annotated[str | None, TEXT] = None  # which examples were answered rightly: a bit each, zlib, base64

    @property
    def key(self) -> Key:
        """Return what identifies the cell."""
        return Key(*(getattr(self, name) for name in Key._fields))

    @property
    def pruned(self) -> float:
        """Return the share of all states that is gone; floors can keep it below `ratio`."""
        return 1 - sum(self.states.values()) / max(1, sum(self.states_before.values()))


CELL = {name: hint.__metadata__[0] for name, hint in get_type_hints(Cell, include_extras=True).items()}
OPTIONAL = {name: CELL.pop(name) for name in ("speed", "right")}
Outcome = Cell | str | float  # what was measured, why the approach refused, or an upper bound of the accuracy


@dataclass(frozen=True)
class Results:
    """What a sweep found; `about` is its sweep.json."""

    folder: Path
    about: dict[str, Any]
    outcomes: dict[Key, Outcome] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Results:
        """Read a folder that a sweep has written or is still writing."""
        folder = Path(folder)
        if not (folder / "sweep.json").is_file():
            raise InputError(f"{folder} holds no sweep (no sweep.json); make one with `ssmprune sweep --out {folder}`.")
        return cls(folder, _read_about(folder / "sweep.json"), _read_outcomes(folder / "cells.jsonl"))

    @cached_property
    def by_key(self) -> dict[Key, Cell]:
        """Return the cells that were measured."""
        return {key: outcome for key, outcome in self.outcomes.items() if isinstance(outcome, Cell)}

    @property
    def cells(self) -> list[Cell]:
        """Return the cells that were measured, without repetition."""
        return list(self.by_key.values())

    def entry(self, checkpoint: str) -> dict[str, Any]:
        """Return what sweep.json says of a checkpoint."""
        return dict(one_of("checkpoint", checkpoint, {entry["name"]: entry for entry in self.about["checkpoints"]}))

    def checkpoint_file(self, name: str) -> Path:
        """Return the file of a checkpoint where the sweep found it; refuse another model in its place."""
        entry = self.entry(name)
        file = Path(entry["file"])
        if not file.is_file():
            raise InputError(f"{name!r} is not at {file} any more; go where the sweep was started, or put it back.")
        if entry.get("sha256") not in (None, sha256(file.read_bytes()).hexdigest()):
            raise InputError(f"{file} is not the model that was swept; put that one back, or sweep again.")
        return file

    def plan_path(self, cell: Cell | Key) -> Path:
        """Return where the plan of a cell lies, if its approach makes plans (`full` and those that rebuild do not).

        >>> key = Key("smnist-s5", "h2/uniform", 0.5, 0, "test", examples=9, rate=1.0)
        >>> Results(Path("results"), {}).plan_path(key).as_posix()
        'results/plans/smnist-s5/h2_uniform-0.5-0.safetensors'
        """
        method = cell.method.replace("/", "_")
        return self.folder / "plans" / cell.checkpoint / f"{method}-{cell.ratio:.10g}-{cell.seed}.safetensors"

    def plan(self, cell: Cell | Key) -> Plan:
        """Return the plan of a cell."""
        return Plan.load(self.plan_path(cell))


@dataclass(frozen=True)
class Writer:
    """Adds outcomes to a folder of results; see `open_results`."""

    results: Results  # of earlier sweeps and of this one
    lines: BinaryIO  # the open cells.jsonl

    def plan(self, key: Key) -> Plan | None:
        """Return the plan of a cell if that was made before."""
        return self.results.plan(key) if self.results.plan_path(key).is_file() else None

    def write(self, key: Key, outcome: Outcome, plan: Plan | None = None) -> None:
        """Write the plan of a cell, then the line that makes the cell count, which is on the disk on return."""
        if plan is not None:
            plan.save(self.results.plan_path(key))
        self.results.outcomes[key] = outcome
        if isinstance(outcome, Cell):
            line = {name: value for name, value in asdict(outcome).items() if value is not None}
        else:
            line = key._asdict() | {"refused" if isinstance(outcome, str) else "at_most": outcome}
        self.lines.write((json.dumps(line, separators=(",", ":")) + "\n").encode())
        os.fsync(self.lines)


@contextmanager
def open_results(folder: Path, about: dict[str, Any]) -> Iterator[Writer]:
    """Open a folder to add cells to it.

    Checkpoints, methods, ratios and seeds of an earlier sweep stay listed in sweep.json beside those of `about`. A
    checkpoint of the same name must be the same file. Only one sweep may write at a time.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lines = (folder / "cells.jsonl").open("ab", buffering=0)
    except OSError as error:
        raise InputError(f"Cannot write to {folder}: {error.strerror}; give another folder.") from error
    with lines:
        try:
            with suppress(ImportError):  # no fcntl on Windows, hence no lock
                import fcntl

                fcntl.flock(lines, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released with the process, however it ends
        except OSError as error:
            raise InputError(f"Another sweep is writing to {folder}; wait for it or give another folder.") from error
        path = folder / "sweep.json"
        merged = _merge(_read_about(path), about, folder) if path.is_file() else about
        _read_outcomes(folder / "cells.jsonl")  # what is damaged is refused before anything is written
        write_atomically(path, (json.dumps(merged, indent=2) + "\n").encode())
        whole = (folder / "cells.jsonl").read_bytes().rfind(b"\n") + 1
        lines.truncate(whole)  # a line that a kill has torn would spoil the next
        yield Writer(Results.read(folder), lines)


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


def _read_outcomes(path: Path) -> dict[Key, Outcome]:
    outcomes: dict[Key, Outcome] = {}
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []  # what follows the last newline was torn
    for number, line in enumerate(lines, 1):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"Line {number} of {path} is not a cell ({error}); remove that line.") from error
        verdict = next((name for name in VERDICTS if isinstance(content, dict) and name in content), None)
        needed = {name: CELL[name] for name in Key._fields} | {verdict: VERDICTS[verdict]} if verdict else CELL
        check_entries(f"Line {number} of {path}", content, needed, OPTIONAL)
        key = Key(*(content[name] for name in Key._fields))
        # A later line of a cell, as with its speed, replaces the first.
        if verdict is None:
            outcomes[key] = Cell(**{name: content[name] for name in Cell.__dataclass_fields__ if name in content})
        else:
            outcomes[key] = float(content[verdict]) if verdict == "at_most" else content[verdict]
    return outcomes


def _merge(old: dict[str, Any], new: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the new description with all that the old description lists as well."""
    files = {entry["name"]: entry.get("sha256") for entry in old["checkpoints"]}
    for entry in new["checkpoints"]:
        if files.get(entry["name"], entry.get("sha256")) != entry.get("sha256"):
            raise InputError(
                f"{folder} has results of another checkpoint called {entry['name']!r}; sweep into a new folder."
            )
    merged = old | new
    merged["commands"] = list(dict.fromkeys([*old.get("commands", []), *new.get("commands", [])]))
    names = {entry["name"] for entry in new["checkpoints"]}
    merged["checkpoints"] = [entry for entry in old["checkpoints"] if entry["name"] not in names] + new["checkpoints"]
    merged["methods"] = list(dict.fromkeys(old["methods"] + new["methods"]))
    for name in ("ratios", "seeds"):
        merged[name] = sorted({*old[name], *new[name]})
    return merged
