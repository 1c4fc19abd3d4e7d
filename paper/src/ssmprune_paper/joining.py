"""Folders of sweeps that become one: the first takes what the others have, which are only read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ssmprune.errors import InputError
from ssmprune.files import write_atomically
from ssmprune.sweeps import Cell, Entry, Key, Results, open_results

from . import masks

Outcome = Cell | str | float


def join(first: Path, others: Sequence[Path], checkpoints: Sequence[Entry]) -> None:
    """Let the folder `first` have all outcomes, plans and masks that the others have of these checkpoints.

    A checkpoint is known by its content, so the results of a model that was renamed follow it. What several folders
    have must agree, which is found out before anything is written.
    """
    if len({path.resolve() for path in (first, *others)}) < 1 + len(others):
        raise InputError(f"Among the folders to join, {first} and others, is one twice; name each once.")
    parts = [Part.of(Results.read(other), checkpoints) for other in others]
    known = dict(Results.read(first).outcomes) if (first / "sweep.json").is_file() else {}
    for part in parts:
        for _, key, outcome in part.outcomes():
            known[key] = _agreed(known.get(key, outcome), outcome, key, part.results.folder)
    for part in parts:
        part.copy_to(first, known)


@dataclass(frozen=True)
class Part:
    """What a folder has of the checkpoints that are asked for."""

    results: Results
    checkpoints: dict[str, Entry]  # by their names in that folder

    @classmethod
    def of(cls, results: Results, checkpoints: Sequence[Entry]) -> Part:
        """Find checkpoints by their content; refuse a folder that has none of them."""
        asked = {entry.about()["sha256"]: entry for entry in reversed(checkpoints)}
        there = {entry["name"]: asked.get(entry.get("sha256")) for entry in results.about["checkpoints"]}
        found = {name: entry for name, entry in there.items() if entry is not None}
        if not found:
            names = ", ".join(entry.name for entry in checkpoints)
            raise InputError(f"{results.folder} has no results of {names}; leave that folder out.")
        return cls(results, found)

    def outcomes(self) -> Iterator[tuple[Key, Key, Outcome]]:
        """Yield the key of a cell there, its key here, and its outcome as it is called here."""
        for key, outcome in self.results.outcomes.items():
            if entry := self.checkpoints.get(key.checkpoint):
                own = replace(outcome, checkpoint=entry.name) if isinstance(outcome, Cell) else outcome
                yield key, key._replace(checkpoint=entry.name), own

    def copy_to(self, first: Path, known: dict[Key, Outcome]) -> None:
        """Add what the first folder lacks."""
        about = self.results.about | {"checkpoints": [entry.about() for entry in self.checkpoints.values()]}
        with open_results(first, about) as writer:
            for there, key, _ in self.outcomes():
                plan, path = self.results.plan_path(there), writer.results.plan_path(key)
                if plan.is_file() and not path.is_file():
                    write_atomically(path, plan.read_bytes())
                if writer.results.outcomes.get(key) != known[key]:
                    writer.write(key, known[key])
        kept = {
            (self.checkpoints[name].name, method, ratio, seed): keep
            for (name, method, ratio, seed), keep in masks.read(self.results.folder).items()
            if name in self.checkpoints
        }
        masks.write(kept | masks.read(first), first)


def _agreed(one: Outcome, other: Outcome, key: Key, folder: Path) -> Outcome:
    """Return what two folders say of a cell: a measurement rather than a bound, with its speed if known."""
    if isinstance(one, float) and not isinstance(other, float):
        one, other = other, one
    if isinstance(one, Cell) and isinstance(other, Cell):
        same = replace(one, speed=None) == replace(other, speed=None)
        agreed: Outcome = other if one.speed is None else one
    elif isinstance(one, Cell) and isinstance(other, float):
        same, agreed = one.accuracy <= other, one
    else:
        same, agreed = type(one) is type(other), one
    if not same:
        cell = f"{key.checkpoint} {key.method} {key.ratio:g}, seed {key.seed}, {key.examples} {key.split} examples"
        raise InputError(
            f"{folder} has another result than the folders before it for {cell}, rate {key.rate:g}; one of them is of "
            "other code or data, so leave it out."
        )
    return agreed
