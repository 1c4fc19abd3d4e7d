"""Which checkpoint, method and ratio a figure shows."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InputError
from ...sweeps.store import Cell, Results
from ..curves import checkpoints, curves


@dataclass(frozen=True)
class Choice:
    """A point of a sweep, for the figures that show one."""

    checkpoint: str
    method: str
    ratio: float


def choose(
    results: Results, checkpoint: str | None = None, method: str | None = None, ratio: float | None = None
) -> Choice:
    """Check a choice against the results; what is left open is the first checkpoint, LAST and half of the states."""
    names = checkpoints(results)
    if not names:
        raise InputError(f"{results.folder} has no finished cell yet; let the sweep go on.")
    checkpoint = _one_of("checkpoint", checkpoint, names, names[0])
    found = curves(results, checkpoint)
    if not found:
        raise InputError(f"{results.folder} has no pruned {checkpoint!r} yet; let the sweep go on.")
    method = _one_of("method", method, list(found), "last" if "last" in found else next(iter(found)))
    return Choice(checkpoint, method, found[method].nearest(0.5 if ratio is None else ratio).ratio)


def planned(results: Results, choice: Choice) -> Cell:
    """The chosen cell, which must have a plan."""
    cell = curves(results, choice.checkpoint)[choice.method].nearest(choice.ratio)
    if not results.plan_path(cell).is_file():
        raise InputError(
            f"{results.plan_path(cell)} is not there, so no states of {choice.method!r} at {choice.ratio:.0%} can be "
            "shown; take the folder that `ssmprune sweep` wrote, or another method."
        )
    return cell


def _one_of(kind: str, name: str | None, known: list[str], otherwise: str) -> str:
    if name is not None and name not in known:
        raise InputError(f"The results have no {kind} {name!r}; they have {', '.join(known)}.")
    return name or otherwise
