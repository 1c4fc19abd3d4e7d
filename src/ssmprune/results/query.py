"""Questions to the results of a sweep: the largest ratio within a loss, what the test set says there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..sweeps.search import LAST, points_lost
from ..sweeps.store import FULL, Cell, Results
from ..targets import Largest, largest_within

BUDGET = 1.0  # points of accuracy, the paper's


@dataclass(frozen=True)
class Tested:
    """A pruned model on the test set: per cent right, points lost, on how many examples."""

    ratio: float
    accuracy: float
    lost: float
    examples: int
    speed: float | None


@dataclass(frozen=True)
class View:
    """The results, seen checkpoint by checkpoint."""

    results: Results

    @property
    def budget(self) -> float:
        """The loss of the sweep's own search, else the paper's."""
        budget = self.results.about.get("max_loss")
        return BUDGET if budget is None else float(budget)

    def entries(self, family: str | None = None) -> list[dict[str, Any]]:
        """The checkpoints that have cells, of one model family or of all."""
        swept = {cell.checkpoint for cell in self.results.cells if cell.method == FULL}
        every = [entry for entry in self.results.about["checkpoints"] if entry["name"] in swept]
        return [entry for entry in every if family in (None, entry["family"])]

    @property
    def families(self) -> list[str]:
        """The model families there are."""
        return sorted({entry["family"] for entry in self.entries()})

    @property
    def methods(self) -> list[str]:
        """The methods that have cells, in the sweep's order."""
        swept = {cell.method for cell in self.results.cells}
        return [method for method in self.results.about["methods"] if method in swept]

    def seeds(self, checkpoint: str, method: str) -> list[int]:
        """The seeds a method was tried with."""
        return sorted({cell.seed for cell in self._cells(checkpoint, method)})

    def largest(self, entry: dict[str, Any], method: str, seed: int = 0) -> Largest | None:
        """The largest ratio within the budget, on validation data where the sweep has searched there.

        Without a search it is the largest of the sweep's ratios, judged by its test examples. None while the sweep
        still has to find it.
        """
        for split in ("val", "test"):
            every = self._cells(entry["name"], method, seed)
            cells = [cell for cell in every if cell.split == split and cell.rate == 1]
            full = self._full(entry["name"], split, cells)
            if full is not None:
                losses = {cell.ratio: points_lost(full, cell) for cell in cells if cell.examples == full.examples}
                break
        else:
            return None
        if split == "test":
            within = [ratio for ratio, lost in losses.items() if lost <= self.budget and self._on_grid(ratio)]
            return Largest(max(within, default=0.0), max(within, default=0.0))
        refused = {key.ratio for key in self.results.refused if (key.checkpoint, key.method) == (entry["name"], method)}
        try:
            return largest_within(
                lambda ratio: losses[ratio] if ratio not in refused else float("inf"),
                self.budget,
                entry["stored_states"],
                self.results.about["ratios"],
            )
        except KeyError:
            return None

    def last_ratio(self, entry: dict[str, Any]) -> float | None:
        """LAST's largest ratio of the grid, at which the paper compares all methods."""
        found = self.largest(entry, LAST)
        return None if found is None else found.on_grid

    def tested(
        self, checkpoint: str, method: str, ratio: float, seed: int = 0, rate: float = 1.0, examples: int | None = None
    ) -> Tested | None:
        """A method on `examples`, else on the largest part of the test set tried, beside the full model on the same."""
        cells = [
            cell
            for cell in (self._cells(checkpoint, method, seed) if ratio else self._cells(checkpoint, FULL))
            if cell.split == "test" and cell.ratio == ratio and cell.rate == rate
            if examples in (None, cell.examples)
        ]
        for cell in sorted(cells, key=lambda cell: -cell.examples):
            for full in self._cells(checkpoint, FULL):
                if (full.split, full.rate, full.examples) == ("test", rate, cell.examples):
                    return Tested(ratio, 100 * cell.accuracy, points_lost(full, cell), cell.examples, cell.speed)
        return None

    def over_seeds(self, checkpoint: str, method: str, ratio: float) -> list[Tested]:
        """`tested` for every seed that was tried there."""
        every = (self.tested(checkpoint, method, ratio, seed) for seed in self._tried(checkpoint, method, ratio))
        return [seen for seen in every if seen]

    def at_both_rates(self, checkpoint: str, method: str, ratio: float, rate: float) -> list[tuple[Tested, Tested]]:
        """`tested` at the rate of training and at another one, on the same examples, for every seed."""
        pairs = []
        for seed in self._tried(checkpoint, method, ratio):
            slow = self.tested(checkpoint, method, ratio, seed, rate)
            usual = self.tested(checkpoint, method, ratio, seed, examples=slow.examples) if slow else None
            if slow and usual:
                pairs.append((usual, slow))
        return pairs

    def _tried(self, checkpoint: str, method: str, ratio: float) -> list[int]:
        return self.seeds(checkpoint, method) if ratio else [0]

    def _on_grid(self, ratio: float) -> bool:
        return ratio in self.results.about["ratios"]

    def _full(self, checkpoint: str, split: str, cells: Iterable[Cell]) -> Cell | None:
        """The unpruned model on the sweep's own examples of a split, if `cells` has any on the same."""
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
