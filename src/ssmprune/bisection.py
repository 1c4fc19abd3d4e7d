"""The largest ratio within a budget, found by bisecting the number of states."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .errors import InputError
from .methods.allocation import kept_count

GRID = tuple(k / 10 for k in range(1, 11))  # the ratios of the paper
DIGITS = 10**6  # a ratio of six digits names a count of up to a million states exactly
ROUNDING = 1e-9  # losses are differences of shares, which are exact up to this


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


def most_trials(states: int, grid: Sequence[float] = GRID) -> int:
    """Return how many ratios `bisect` tries at most.

    >>> most_trials(256)
    15
    """
    ends = [0, *(removed_at(ratio, states) for ratio in sorted(grid))]
    widest = max(above - below for below, above in pairwise(ends))
    return len(grid) + max(widest - 1, 0).bit_length()


def ratio_for(removed: int, states: int) -> float:
    """Return a short decimal ratio that removes exactly so many of the states.

    >>> ratio_for(1, 3), ratio_for(57, 100)
    (0.333333, 0.57)
    """
    return removed * DIGITS // states / DIGITS


def removed_at(ratio: float, states: int) -> int:
    """Return how many states go at a ratio: all but floor(states (1 - ratio)), on the ratio as it is written."""
    return states - kept_count(states, ratio)


def largest_near(start: int, most: int, within: Callable[[int], bool]) -> int:
    """Find a count that is within while one more is not, in ever longer steps from a guess; 0 counts as within.

    >>> largest_near(60, 100, lambda count: count <= 57), largest_near(3, 100, lambda count: True)
    (57, 100)
    """
    step = 1
    if within(start) if start else True:
        low, high = start, most + 1
        while low + step <= most and within(low + step):
            low, step = low + step, 2 * step
        high = min(high, low + step)
    else:
        low, high = 0, start
        while high - step > 0 and not within(high - step):
            high, step = high - step, 2 * step
        low = max(low, high - step)
    return last_within(low, high, within)


def last_within(low: int, high: int, within: Callable[[int], bool]) -> int:
    """Find a count that is within while one more is not, given one that is and a higher one that is not.

    >>> last_within(0, 100, lambda count: count <= 57)
    57
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low
