"""What one asks the results of a sweep: curves to draw, the largest ratio within a loss, accuracies on test data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import apply
from ..arrays import Real
from ..errors import InputError
from ..methods import LAST
from ..models import load
from ..sweeps.search import points_lost
from ..sweeps.store import FULL, Cell, Results
from ..system import DiagonalSystem
from ..targets.bisection import Largest, largest_within

BUDGET = 1.0  # points of accuracy, the paper's


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


def curves(results: Results, checkpoint: str) -> dict[str, Curve]:
    """Return the curve of every method of the sweep that has cells for the checkpoint."""
    cells = [cell for cell in results.cells if cell.checkpoint == checkpoint and _on_the_grid(cell, results.about)]
    full = sorted((cell for cell in cells if cell.method == FULL), key=lambda cell: cell.examples)[-1:]
    if not full:
        raise InputError(f"{results.folder} has no cell of the unpruned {checkpoint!r} yet; let the sweep go on.")
    by_method = {}
    for method in results.about["methods"]:
        fair = [cell for cell in cells if cell.method == method and cell.examples == full[0].examples]
        own = sorted(fair, key=lambda cell: (cell.ratio, cell.seed))
        points: dict[float, list[Cell]] = {0.0: full}
        for cell in own:
            points.setdefault(cell.ratio, []).append(cell)
        if own:
            by_method[method] = Curve(points)
    return by_method


def _on_the_grid(cell: Cell, about: dict[str, Any]) -> bool:
    """Return whether a cell is of the sweep's own grid, not of a search, all test examples or another sampling rate."""
    own = cell.split == about["split"] and cell.rate == 1 and cell.examples <= about["examples"]
    return own and cell.ratio in (0, *about["ratios"])


def checkpoints(results: Results) -> list[str]:
    """Return the names of the checkpoints that have cells."""
    swept = {cell.checkpoint for cell in results.cells}
    return [entry["name"] for entry in results.about["checkpoints"] if entry["name"] in swept]


def systems(results: Results, checkpoint: str) -> dict[str, DiagonalSystem]:
    """Return the layers of a checkpoint before pruning."""
    return apply.read(load(results.checkpoint_file(checkpoint)), unstable="keep")


def label(method: str) -> str:
    """Return what figures call a method.

    >>> label("uniform-hinf"), label("surgeon-without-data"), label("last+refit")
    ('Uniform H∞', 'Surgeon without data', 'LAST + refit')
    """
    spellings = {"last": "LAST", "lamp": "LAMP", "aire": "AIRE", "hinf": "H∞", "h2": "H2"}
    words = method.replace("+", " + ").replace("-", " ").replace("/", " / ").split()
    text = " ".join(spellings.get(word, word) for word in words)
    return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class Tested:
    """A pruned model on the test set: per cent right, points lost, on how many examples."""

    accuracy: float
    lost: float
    examples: int


@dataclass(frozen=True)
class Query:
    """The results, asked checkpoint by checkpoint."""

    results: Results

    @property
    def budget(self) -> float:
        """Return the loss of the sweep's own search, else the paper's."""
        budget = self.results.about.get("max_loss")
        return BUDGET if budget is None else float(budget)

    def entries(self, family: str | None = None) -> list[dict[str, Any]]:
        """Return the checkpoints that have cells, of one model family or of all."""
        swept = {cell.checkpoint for cell in self.results.cells if cell.method == FULL}
        entries = [entry for entry in self.results.about["checkpoints"] if entry["name"] in swept]
        return [entry for entry in entries if family in (None, entry["family"])]

    @property
    def families(self) -> list[str]:
        """Return the model families there are."""
        return sorted({entry["family"] for entry in self.entries()})

    @property
    def methods(self) -> list[str]:
        """Return the methods that have cells, in the sweep's order."""
        swept = {cell.method for cell in self.results.cells}
        return [method for method in self.results.about["methods"] if method in swept]

    def seeds(self, checkpoint: str, method: str) -> list[int]:
        """Return the seeds a method was tried with."""
        return sorted({cell.seed for cell in self._cells(checkpoint, method)})

    def largest(self, entry: dict[str, Any], method: str, seed: int = 0) -> Largest | None:
        """Return the largest ratio within the budget, on validation data where the sweep has searched there.

        Without a search it is the largest of the sweep's ratios, judged by its test examples. None while the sweep
        still has to find it.
        """
        losses = self._losses(entry["name"], method, seed, "val")
        if losses is not None:
            return self._repeat_search(entry, method, losses)
        losses = self._losses(entry["name"], method, seed, "test")
        if losses is None:
            return None
        within = [ratio for ratio, lost in losses.items() if lost <= self.budget and self._on_grid(ratio)]
        return Largest(max(within, default=0.0), max(within, default=0.0))

    def _losses(self, checkpoint: str, method: str, seed: int, split: str) -> dict[float, float] | None:
        """Return the points lost at every ratio tried on a split, None where nothing can be compared."""
        own = self._cells(checkpoint, method, seed)
        cells = [cell for cell in own if cell.split == split and cell.rate == 1]
        full = self._full(checkpoint, split, cells)
        if full is None:
            return None
        return {cell.ratio: points_lost(full, cell) for cell in cells if cell.examples == full.examples}

    def _repeat_search(self, entry: dict[str, Any], method: str, losses: dict[float, float]) -> Largest | None:
        """Return what the search of the sweep has found, None where it is not finished."""
        refused = {key.ratio for key in self.results.refused if (key.checkpoint, key.method) == (entry["name"], method)}
        infinite = dict.fromkeys(refused, float("inf"))
        try:
            return largest_within(
                (losses | infinite).__getitem__, self.budget, entry["stored_states"], self.results.about["ratios"]
            )
        except KeyError:
            return None

    def last_ratio(self, entry: dict[str, Any]) -> float | None:
        """Return LAST's largest ratio of the grid, at which the paper compares all methods."""
        largest = self.largest(entry, LAST.name)
        return None if largest is None else largest.on_grid

    def test(
        self, checkpoint: str, method: str, ratio: float, seed: int = 0, rate: float = 1.0, examples: int | None = None
    ) -> Tested | None:
        """Return how a method does on `examples`, else on as many of the test set as were tried."""
        cells = [
            cell
            for cell in (self._cells(checkpoint, method, seed) if ratio else self._cells(checkpoint, FULL))
            if cell.split == "test" and cell.ratio == ratio and cell.rate == rate
            if examples in (None, cell.examples)
        ]
        for cell in sorted(cells, key=lambda cell: -cell.examples):
            for full in self._cells(checkpoint, FULL):
                if (full.split, full.rate, full.examples) == ("test", rate, cell.examples):
                    return Tested(100 * cell.accuracy, points_lost(full, cell), cell.examples)
        return None

    def over_seeds(self, checkpoint: str, method: str, ratio: float) -> list[Tested]:
        """Return how a method does with every seed that was tried there."""
        tests = (self.test(checkpoint, method, ratio, seed) for seed in self._seeds_at(checkpoint, method, ratio))
        return [tested for tested in tests if tested]

    def at_both_rates(self, checkpoint: str, method: str, ratio: float, rate: float) -> list[tuple[Tested, Tested]]:
        """Return tests at the rate of training and at another one, on the same examples, for every seed."""
        pairs = []
        for seed in self._seeds_at(checkpoint, method, ratio):
            slow = self.test(checkpoint, method, ratio, seed, rate)
            usual = self.test(checkpoint, method, ratio, seed, examples=slow.examples) if slow else None
            if slow and usual:
                pairs.append((usual, slow))
        return pairs

    def _seeds_at(self, checkpoint: str, method: str, ratio: float) -> list[int]:
        return self.seeds(checkpoint, method) if ratio else [0]

    def _on_grid(self, ratio: float) -> bool:
        return ratio in self.results.about["ratios"]

    def _full(self, checkpoint: str, split: str, cells: Iterable[Cell]) -> Cell | None:
        """Return the unpruned model on the sweep's own examples of a split, if `cells` has any on the same."""
        counts = {cell.examples for cell in cells}
        own = [cell for cell in self._cells(checkpoint, FULL) if cell.split == split and cell.rate == 1]
        fitting = [cell for cell in own if cell.examples in counts and cell.examples <= self.results.about["examples"]]
        return max(fitting, key=lambda cell: cell.examples, default=None)

    def _cells(self, checkpoint: str, method: str, seed: int | None = None) -> list[Cell]:
        return [
            cell
            for cell in self.results.cells
            if (cell.checkpoint, cell.method) == (checkpoint, method) and seed in (None, cell.seed)
        ]
