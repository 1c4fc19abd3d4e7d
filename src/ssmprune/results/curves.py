"""What a sweep says of one checkpoint, arranged for drawing: a curve per method, a cell per point of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import apply
from ..arrays import Real
from ..errors import InputError
from ..models import load
from ..sweeps.store import FULL, Cell, Results
from ..system import DiagonalSystem


@dataclass(frozen=True)
class Curve:
    """One method: its cells by ratio, ascending, a list of seeds each; the unpruned model comes first."""

    cells: dict[float, list[Cell]]

    @property
    def ratios(self) -> list[float]:
        """Where the curve has points."""
        return list(self.cells)

    @property
    def accuracy(self) -> Real:
        """Mean over the seeds at every ratio."""
        return np.array([np.mean([cell.accuracy for cell in seeds]) for seeds in self.cells.values()])

    @property
    def deviation(self) -> Real:
        """Standard deviation over the seeds at every ratio, 0 where there is one."""
        return np.array([np.std([cell.accuracy for cell in seeds]) for seeds in self.cells.values()])

    def nearest(self, ratio: float) -> Cell:
        """The first seed's cell at the ratio next to this one."""
        return self.cells[min(self.cells, key=lambda known: abs(known - ratio))][0]


def curves(results: Results, checkpoint: str) -> dict[str, Curve]:
    """The curve of every method of the sweep that has cells for the checkpoint."""
    cells = [cell for cell in results.cells if cell.checkpoint == checkpoint and _on_the_grid(cell, results.about)]
    full = sorted((cell for cell in cells if cell.method == FULL), key=lambda cell: cell.examples)[-1:]
    if not full:
        raise InputError(f"{results.folder} has no cell of the unpruned {checkpoint!r} yet; let the sweep go on.")
    found = {}
    for method in results.about["methods"]:
        fair = [cell for cell in cells if cell.method == method and cell.examples == full[0].examples]
        own = sorted(fair, key=lambda cell: (cell.ratio, cell.seed))
        points: dict[float, list[Cell]] = {0.0: full}
        for cell in own:
            points.setdefault(cell.ratio, []).append(cell)
        if own:
            found[method] = Curve(points)
    return found


def _on_the_grid(cell: Cell, about: dict[str, Any]) -> bool:
    """Whether a cell is one of the sweep's own, not of a search, the whole test set or another sampling rate."""
    own = cell.split == about["split"] and cell.rate == 1 and cell.examples <= about["examples"]
    return own and cell.ratio in (0, *about["ratios"])


def checkpoints(results: Results) -> list[str]:
    """The names of the checkpoints that have cells."""
    swept = {cell.checkpoint for cell in results.cells}
    return [entry["name"] for entry in results.about["checkpoints"] if entry["name"] in swept]


def systems(results: Results, checkpoint: str) -> dict[str, DiagonalSystem]:
    """The layers of a checkpoint before pruning."""
    return apply.read(load(results.checkpoint_file(checkpoint)), unstable="keep")


def label(method: str) -> str:
    """What figures call a method.

    >>> label("uniform-hinf"), label("surgeon-without-data"), label("last+refit")
    ('Uniform H∞', 'Surgeon without data', 'LAST + refit')
    """
    own = {"last": "LAST", "lamp": "LAMP", "aire": "AIRE", "hinf": "H∞", "h2": "H2"}
    words = method.replace("+", " + ").replace("-", " ").replace("/", " / ").split()
    text = " ".join(own.get(word, word) for word in words)
    return text[:1].upper() + text[1:]
