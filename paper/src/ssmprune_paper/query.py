"""What one asks the results of a sweep: the largest ratio within a loss, accuracies on test data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ssmprune.budgets import ROUNDING
from ssmprune.methods import LAST
from ssmprune.sweeps import FULL, Cell, Results

from .bisection import Largest, largest_within
from .paper import TASKS
from .search import BUDGET, points_lost, resolution
from .statistics import Paired, answers_of, compare


@dataclass(frozen=True)
class Tested:
    """A pruned model on the test set, and the unpruned one on the same examples."""

    cell: Cell
    full: Cell

    @property
    def accuracy(self) -> float:
        """Return the per cent of right answers."""
        return 100 * self.cell.accuracy

    @property
    def lost(self) -> float:
        """Return the points that pruning cost."""
        return points_lost(self.full, self.cell)

    @property
    def examples(self) -> int:
        """Return on how many examples."""
        return self.cell.examples


def lost_in_pairs(tests: Iterable[Tested]) -> Paired | None:
    """Return what pruned models lose, in pairs with the unpruned ones; None where answers were not kept."""
    return compare((answers_of(tested.full), answers_of(tested.cell)) for tested in tests)


def against(tests: list[Tested], others: list[Tested]) -> Paired | None:
    """Compare a method's models with another's of the same checkpoints and examples, seed by seed."""
    pairs = [
        (tested, other)
        for tested in tests
        for other in others
        if (tested.cell.checkpoint, tested.examples) == (other.cell.checkpoint, other.examples)
    ]
    return compare((answers_of(tested.cell), answers_of(other.cell)) for tested, other in pairs)


@dataclass(frozen=True)
class Group:
    """Checkpoints of one task, family and training, which differ in their seeds."""

    task: str
    family: str
    entries: list[dict[str, Any]]

    @property
    def name(self) -> str:
        """Return the name of the first, and how many there are."""
        seeds = len(self.entries)
        return str(self.entries[0]["name"]) + (f" ({seeds} seeds)" if seeds > 1 else "")

    @property
    def is_main(self) -> bool:
        """Return whether the checkpoint named after the task and the family is among them."""
        return self.main.name == f"{self.task}-{self.family}"

    @property
    def main(self) -> Group:
        """Return the one named after the task and the family, else the first: all methods were tried on it."""
        named = [entry for entry in self.entries if entry["name"] == f"{self.task}-{self.family}"]
        return replace(self, entries=[*named, *self.entries][:1])

    @property
    def epochs(self) -> float:
        """Return how many epochs they were trained for on average, 0 where no card says it."""
        cards = [entry.get("card") or {} for entry in self.entries]
        return float(np.mean([card.get("epochs", 0) + card.get("before", {}).get("epochs", 0) for card in cards]))


def _training(entry: dict[str, Any]) -> str:
    card = entry.get("card") or {}
    return json.dumps([card.get("settings"), card.get("epochs"), bool(card.get("before"))], sort_keys=True)


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
    def groups(self) -> list[Group]:
        """Return the checkpoints by task, family and training: the same model trained with several seeds is one."""
        groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for entry in self.entries():
            groups.setdefault((entry["task"], entry["family"], _training(entry)), []).append(entry)
        return [Group(task, family, entries) for (task, family, _), entries in groups.items()]

    def paper_groups(self, family: str | None = None) -> list[Group]:
        """Return the groups of the paper's tasks, one for each: that of the checkpoint named after task and family."""
        groups = sorted(self.groups, key=lambda group: not group.is_main)
        first: dict[tuple[str, str], Group] = {}
        for group in groups:
            if (group.task, group.family) in TASKS and family in (None, group.family):
                first.setdefault((group.task, group.family), group)
        return [group for group in self.groups if group in first.values()]

    def averaged_groups(self, family: str) -> list[Group]:
        """Return what averages of a family are over: the paper's tasks, or all where none is the paper's."""
        return self.paper_groups(family) or [group for group in self.groups if group.family == family]

    def states_of(self, checkpoint: str) -> int:
        """Return how many states a layer of a checkpoint has, where layers differ the most; 0 without a cell."""
        return max((max(cell.states_before.values()) for cell in self._cells(checkpoint, FULL)), default=0)

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
        still has to find it, or where it searches for other methods alone.
        """
        losses = self._losses(entry["name"], method, seed, "val")
        if losses is not None or self._given_up(entry["name"], method, seed):
            return self._repeat_search(entry, method, seed, losses or {})
        if any(cell.split == "val" for cell in self._cells(entry["name"], FULL)):
            return None
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

    def _repeat_search(
        self, entry: dict[str, Any], method: str, seed: int, losses: dict[float, float]
    ) -> Largest | None:
        """Return what the search of the sweep has found, None where it is not finished."""
        infinite = dict.fromkeys(self._given_up(entry["name"], method, seed), float("inf"))
        states = entry["stored_states"]
        try:
            return largest_within(
                (losses | infinite).__getitem__, self.budget, states, self.results.about["ratios"], resolution(states)
            )
        except KeyError:
            return None

    def _given_up(self, checkpoint: str, method: str, seed: int) -> set[float]:
        """Return the ratios at which there is no model, or one that loses more than the budget however it went on."""
        full = self._full(checkpoint, "val", self._cells(checkpoint, FULL))
        lowest = full.accuracy - (self.budget + ROUNDING) / 100 if full else 0.0
        own = (checkpoint, method, seed)
        return {
            key.ratio
            for key, outcome in self.results.outcomes.items()
            if (key.checkpoint, key.method, key.seed) == own
            and (isinstance(outcome, str) or (isinstance(outcome, float) and outcome < lowest))
        }

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
                    return Tested(cell, full)
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

    def timed(self, checkpoint: str) -> dict[tuple[str, float], list[Cell]]:
        """Return the cells of smaller models whose speed was measured, by method and ratio."""
        by_point: dict[tuple[str, float], list[Cell]] = {}
        for cell in self.results.cells:
            if cell.checkpoint == checkpoint and cell.speed is not None and cell.parameters < cell.parameters_before:
                by_point.setdefault((cell.method, cell.ratio), []).append(cell)
        return by_point

    def _seeds_at(self, checkpoint: str, method: str, ratio: float) -> list[int]:
        return self.seeds(checkpoint, method) if ratio else [0]

    def _on_grid(self, ratio: float) -> bool:
        return ratio in self.results.about["ratios"]

    def _full(self, checkpoint: str, split: str, cells: Iterable[Cell]) -> Cell | None:
        """Return the unpruned model on the sweep's own examples of a split, if `cells` has any on the same."""
        counts = {cell.examples for cell in cells}
        own = [cell for cell in self._cells(checkpoint, FULL) if cell.split == split and cell.rate == 1]
        usual = [cell for cell in own if cell.examples <= self.results.about["examples"]]
        full = max(usual, key=lambda cell: cell.examples, default=None)
        return full if full and full.examples in counts else None

    def _cells(self, checkpoint: str, method: str, seed: int | None = None) -> list[Cell]:
        return [cell for cell in self._by_method.get((checkpoint, method), []) if seed in (None, cell.seed)]

    @cached_property
    def _by_method(self) -> dict[tuple[str, str], list[Cell]]:
        by_method: dict[tuple[str, str], list[Cell]] = {}
        for cell in self.results.cells:
            by_method.setdefault((cell.checkpoint, cell.method), []).append(cell)
        return by_method
