"""The largest ratio that stays within a budget: on a grid, then to one state."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from .allocation import kept_count
from .errors import InputError

GRID = tuple(k / 10 for k in range(1, 11))  # the ratios of the paper
DIGITS = 10**6  # of a ratio that names a count: enough for a million states
ROUNDING = 1e-9  # of losses that are differences of shares


@dataclass(frozen=True)
class Largest:
    """The largest ratio of the grid, and the largest to one state; 0 where nothing stays within the budget."""

    on_grid: float
    exact: float


def largest_within(loss: Callable[[float], float], budget: float, states: int, grid: Sequence[float] = GRID) -> Largest:
    """Find the largest ratio whose loss is at most `budget`.

    loss: what pruning at a ratio costs, in any unit; a larger ratio need not cost more.
    states: how many stored states the model has, all layers together.

    >>> largest_within(lambda ratio: 4 * ratio**2, budget=1.0, states=256)
    Largest(on_grid=0.5, exact=0.5)
    >>> largest_within(lambda ratio: 3 * ratio**2, budget=1.0, states=100)
    Largest(on_grid=0.5, exact=0.57)
    """
    steps = search(budget, states, grid)
    try:
        ratio = next(steps)
        while True:
            ratio = steps.send(loss(ratio))
    except StopIteration as end:
        found: Largest = end.value
        return found


def search(budget: float, states: int, grid: Sequence[float] = GRID) -> Generator[float, float, Largest]:
    """Search step by step: yields a ratio, is sent its loss, and returns what `largest_within` does.

    The grid is tried from its largest ratio down to the first within the budget. Between that and the one above it,
    numbers of states are bisected: the one found is within the budget, and one state more is not.
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
    within, too_many = _removed(on_grid, states), _removed(above, states)
    exact = on_grid
    while too_many - within > 1:
        middle = (within + too_many) // 2
        ratio = ratio_for(middle, states)
        if (yield ratio) <= budget + ROUNDING:
            within, exact = middle, ratio
        else:
            too_many = middle
    return Largest(on_grid, exact)


def ratio_for(removed: int, states: int) -> float:
    """Return a short decimal ratio that removes exactly so many of the states.

    >>> ratio_for(1, 3), ratio_for(57, 100)
    (0.333333, 0.57)
    """
    return removed * DIGITS // states / DIGITS


def _removed(ratio: float, states: int) -> int:
    """How many states go at a ratio: all but floor(states (1 - ratio)), on the ratio as it is written."""
    return states - kept_count(states, ratio)
