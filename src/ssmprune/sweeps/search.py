"""The largest ratio within a loss of accuracy: found on validation data by a sweep, found again from its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil

from ..bisection import ROUNDING, Largest, bisect
from ..methods import LAST
from .store import Cell, Key

# Cells by their keys; None where an approach refuses, or where fewer answers are right than the second argument.
Fill = Callable[[Sequence[Key], int], list[Cell | None]]


def largest_ratios(
    fill: Fill, full: Cell, keys: Iterable[Key], budget: float, ratios: Sequence[float], states: int
) -> dict[Key, Largest]:
    """Find the largest ratio of every method and seed in `keys`; all searches take a step at a time, for the runner.

    full: the unpruned model on the validation examples. budget: points of accuracy. states: those stored.
    """
    searches = {key: bisect(budget, states, ratios, resolution(states)) for key in keys}
    least = fewest_right(full, budget)
    finished: dict[Key, Largest] = {}
    asked = {key: next(search) for key, search in searches.items()}
    while asked:
        cells = fill([key._replace(ratio=ratio, split=full.split) for key, ratio in asked.items()], least)
        answered, asked = dict(zip(asked, cells, strict=True)), {}
        for key, cell in answered.items():
            try:
                asked[key] = searches[key].send(points_lost(full, cell))
            except StopIteration as end:
                finished[key] = end.value
    return finished


def keys_to_report(keys: Iterable[Key], ratios: dict[Key, Largest]) -> list[Key]:
    """Return the cells that tables report: each method at LAST's largest ratio of the grid and at its own, if found."""
    last = max((largest.on_grid for key, largest in ratios.items() if key.method == LAST.name), default=0.0)
    own = {key: largest.exact for key, largest in ratios.items()}
    return [key._replace(ratio=ratio) for key in keys for ratio in sorted({own.get(key, 0.0), last} - {0.0})]


def resolution(states: int) -> int:
    """Return to how many states a largest ratio is found: a hundredth of them, since no table shows more digits."""
    return max(1, states // 100)


def fewest_right(full: Cell, budget: float) -> int:
    """Return how many right answers lose at most `budget` points against the unpruned model."""
    return ceil(full.examples * (full.accuracy - (budget + ROUNDING) / 100))


def points_lost(full: Cell, cell: Cell | None) -> float:
    """Return the points of accuracy that pruning cost, infinitely many where there is no pruned model."""
    return float("inf") if cell is None else 100 * (full.accuracy - cell.accuracy)
