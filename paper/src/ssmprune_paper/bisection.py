"""The largest ratio within a loss, found by bisecting the number of states between ratios of a grid."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from ssmprune.budgets import GRID, ROUNDING, ratio_for, removed_at
from ssmprune.errors import InputError


@dataclass(frozen=True)
class Largest:
    """The largest ratio of the grid, and the largest to a step; 0 where nothing stays within the budget."""

    on_grid: float
    exact: float


def largest_within(
    loss: Callable[[float], float], budget: float, states: int, grid: Sequence[float] = GRID, step: int = 1
) -> Largest:
    """Find the largest ratio whose loss is at most `budget`.

    loss: what pruning at a ratio costs, in any unit; a larger ratio need not cost more.
    states: how many stored states the model has, all layers together. step: to how many of them to find it.

    >>> largest_within(lambda ratio: 4 * ratio**2, budget=1.0, states=256)
    Largest(on_grid=0.5, exact=0.5)
    >>> largest_within(lambda ratio: 3 * ratio**2, budget=1.0, states=100)
    Largest(on_grid=0.5, exact=0.57)
    """
    trials = bisect(budget, states, grid, step)
    try:
        ratio = next(trials)
        while True:
            ratio = trials.send(loss(ratio))
    except StopIteration as end:
        largest: Largest = end.value
        return largest


def bisect(budget: float, states: int, grid: Sequence[float] = GRID, step: int = 1) -> Generator[float, float, Largest]:
    """Search step by step: yields a ratio, is sent its loss, and returns what `largest_within` does.

    The grid is tried from its largest ratio down to the first within the budget. Between that and the one above it,
    numbers of states are bisected: the result is within the budget, and some ratio at most `step` states above is not.
    """
    if not grid or min(grid) <= 0 or max(grid) > 1:
        raise InputError(f"Ratios to search must lie above 0 and up to 1; got {list(grid)}.")
    above = max(grid)
    for on_grid in sorted(grid, reverse=True):
        if (yield on_grid) <= budget + ROUNDING:
            break
        above = on_grid
    else:
        on_grid = 0.0
    within, too_many = removed_at(on_grid, states), removed_at(above, states)
    exact = on_grid
    while too_many - within > step:
        middle = (within + too_many) // 2
        ratio = ratio_for(middle, states)
        if (yield ratio) <= budget + ROUNDING:
            within, exact = middle, ratio
        else:
            too_many = middle
    return Largest(on_grid, exact)
