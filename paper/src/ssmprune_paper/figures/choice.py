"""Which checkpoint, method and ratio a figure shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ssmprune.errors import InputError
from ssmprune.methods import LAST
from ssmprune.report import Curve, checkpoints, method_curves
from ssmprune.sweeps import Cell, Results

from .. import masks


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
        raise InputError(f"{results.folder} has no finished cell yet; let the sweep continue.")
    checkpoint = _one_of("checkpoint", checkpoint, names, names[0])
    by_method = method_curves(results, checkpoint)
    if not by_method:
        raise InputError(f"{results.folder} has no pruned {checkpoint!r} yet; let the sweep continue.")
    usual = LAST.name if LAST.name in by_method else next(iter(by_method))
    method = _one_of("method", method, list(by_method), usual)
    return Choice(checkpoint, method, _nearest(by_method[method], 0.5 if ratio is None else ratio).ratio)


def kept_states(results: Results, choice: Choice) -> dict[str, NDArray[np.bool_]]:
    """Return which states of each layer stay, by the plan of the chosen cell, or by the folder's masks."""
    cell = _nearest(method_curves(results, choice.checkpoint)[choice.method], choice.ratio)
    if results.plan_path(cell).is_file():
        return results.plan(cell).keep
    if keep := masks.read(results.folder).get(masks.place(cell)):
        return keep
    raise InputError(
        f"{results.plan_path(cell)} is missing, so no states of {choice.method!r} at {choice.ratio:.0%} can be "
        "shown; give the folder that `ssmprune sweep` wrote, or another method."
    )


def _nearest(curve: Curve, ratio: float) -> Cell:
    """Return the first seed's cell at the ratio nearest to this one."""
    return curve.cells[min(curve.cells, key=lambda other: abs(other - ratio))][0]


def _one_of(kind: str, name: str | None, names: list[str], usual: str) -> str:
    if name is not None and name not in names:
        raise InputError(f"The results have no {kind} {name!r}; they have {', '.join(names)}.")
    return name or usual
