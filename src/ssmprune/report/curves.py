"""What figures and the page draw of a sweep: curves of accuracies, and the layers of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Real
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..models import load
from ..pruning import read
from ..sweeps.store import FULL, Cell, Results
from .style import PALETTE

FEW = 6  # curves that a picture shows at once


@dataclass(frozen=True)
class Curve:
    """One method's cells by ratio, ascending, a list of seeds each; the unpruned model comes first."""

    cells: dict[float, list[Cell]]

    @property
    def ratios(self) -> list[float]:
        """Return the ratios at which the curve has points."""
        return list(self.cells)

    @property
    def accuracy(self) -> Real:
        """Return the mean over the seeds at every ratio."""
        return np.array([np.mean([cell.accuracy for cell in seeds]) for seeds in self.cells.values()])

    @property
    def deviation(self) -> Real:
        """Return the standard deviation over the seeds at every ratio, 0 where there is one seed."""
        return np.array([np.std([cell.accuracy for cell in seeds]) for seeds in self.cells.values()])

    def nearest(self, ratio: float) -> Cell:
        """Return the first seed's cell at the ratio nearest to this one."""
        return self.cells[min(self.cells, key=lambda other: abs(other - ratio))][0]


def method_curves(results: Results, checkpoint: str) -> dict[str, Curve]:
    """Return the curve of every method of the sweep that has cells for the checkpoint."""
    cells = [cell for cell in results.cells if cell.checkpoint == checkpoint and _is_on_grid(cell, results.about)]
    full = sorted((cell for cell in cells if cell.method == FULL), key=lambda cell: cell.examples)[-1:]
    if not full:
        raise InputError(f"{results.folder} has no cell of the unpruned {checkpoint!r} yet; let the sweep continue.")
    by_method = {}
    for method in results.about["methods"]:
        fair = [cell for cell in cells if cell.method == method and cell.examples == full[0].examples]
        points: dict[float, list[Cell]] = {0.0: full}
        for cell in sorted(fair, key=lambda cell: (cell.ratio, cell.seed)):
            points.setdefault(cell.ratio, []).append(cell)
        if fair:
            by_method[method] = Curve(points)
    return by_method


def _is_on_grid(cell: Cell, about: dict[str, Any]) -> bool:
    """Return whether a cell is of the announced grid, not of a search, all test examples or another sampling rate."""
    usual = cell.split == about["split"] and cell.rate == 1 and cell.examples <= about["examples"]
    return usual and cell.ratio in (0, *about["ratios"])


def checkpoints(results: Results) -> list[str]:
    """Return the names of the checkpoints that have cells."""
    swept = {cell.checkpoint for cell in results.cells}
    return [entry["name"] for entry in results.about["checkpoints"] if entry["name"] in swept]


def systems(results: Results, checkpoint: str) -> dict[str, DiagonalSystem]:
    """Return the layers of a checkpoint before pruning."""
    return read(load(results.checkpoint_file(checkpoint)), unstable="keep")


def shown_first(methods: list[str], most: int = FEW) -> list[str]:
    """Return the methods that a picture shows unless it is asked for others: at most so many, as in `PALETTE`.

    >>> shown_first(["last", "lamp", "random"])
    ['last', 'random', 'lamp']
    """
    ranked = sorted(methods, key=lambda name: PALETTE.index(name) if name in PALETTE else len(PALETTE))
    return ranked[:most]
