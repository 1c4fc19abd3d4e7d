"""Targets: what pruning may cost, or has to reach, instead of a ratio.

A target finds the ratio for a model. Those that limit a cost take the largest ratio within it; those that ask for a
small or fast model take the smallest ratio that gives one. Both bisect the number of states.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from .allocation import kept_count
from .arrays import is_number
from .certificates import certify, energy_lost
from .errors import InputError, need_torch
from .pruning import Pruning, Target

GRID = tuple(k / 10 for k in range(1, 11))  # the ratios of the paper
DIGITS = 10**6  # of a ratio that names a count: enough for a million states
ROUNDING = 1e-9  # of losses that are differences of shares
ROUNDS = 5  # of timing


def max_energy(share: float) -> Target:
    """Limit the share of its output's energy that any layer loses: on the data, or without any for white noise."""
    _check("max_energy is a share of a layer's output energy, from 0 to 1", share, 1)

    def lost(work: Pruning[Any], ratio: float) -> float:
        return max(energy_lost(work.plan_each_layer(ratio), work.systems, work.moments).values())

    return _largest(lost, share)


def max_gain(share: float) -> Target:
    """Limit the gain (exact H-infinity norm) of every layer's error to this share of the layer's own."""
    _check("max_gain is a share of a layer's gain, from 0", share)

    def error(work: Pruning[Any], ratio: float) -> float:
        certificates = certify(work.plan(ratio), work.systems).values()
        return max(layer.exact / layer.gain if layer.exact else 0.0 for layer in certificates)

    return _largest(error, share)


def max_loss(points: float, accuracy: Callable[[Any], float]) -> Target:
    """Limit the loss of accuracy to so many points (hundredths); `accuracy` gives a model's, from 0 to 1."""
    _check("max_loss is a number of points of accuracy, from 0 to 100", points, 100)

    def find(work: Pruning[Any]) -> float:
        whole = accuracy(work.model)

        def lost(ratio: float) -> float:
            return 100 * (whole - accuracy(work.shrink(work.plan(ratio))))

        return largest_within(lost, points, work.states).exact

    return find


def max_memory(megabytes: float) -> Target:
    """Ask for a model whose tensors take at most so many million bytes."""
    _check("max_memory is a number of megabytes", megabytes)
    return _smallest(lambda work, ratio: _megabytes(work.shrink(work.choose_states(ratio))), megabytes, "MB")


def max_latency(milliseconds: float, *inputs: Any) -> Target:
    """Ask for a model that takes at most so many milliseconds for these inputs, on this machine as it is now."""
    _check("max_latency is a number of milliseconds", milliseconds)

    def time(work: Pruning[Any], ratio: float) -> float:
        return _milliseconds(work.shrink(work.choose_states(ratio)), inputs)

    return _smallest(time, milliseconds, "ms")


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
        largest: Largest = end.value
        return largest


def search(budget: float, states: int, grid: Sequence[float] = GRID) -> Generator[float, float, Largest]:
    """Search step by step: yields a ratio, is sent its loss, and returns what `largest_within` does.

    The grid is tried from its largest ratio down to the first within the budget. Between that and the one above it,
    numbers of states are bisected: the result is within the budget, and one state more is not.
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
    """Return how many states go at a ratio: all but floor(states (1 - ratio)), on the ratio as it is written."""
    return states - kept_count(states, ratio)


def _largest(cost: Callable[[Pruning[Any], float], float], budget: float) -> Target:
    """Find the largest ratio whose cost, which rises with it, is within the budget."""
    return lambda work: largest_within(lambda ratio: cost(work, ratio), budget, work.states, grid=GRID[-1:]).exact


def _smallest(cost: Callable[[Pruning[Any], float], float], budget: float, unit: str) -> Target:
    """Find the smallest ratio whose cost, which falls with it, is within the budget."""

    def find(work: Pruning[Any]) -> float:
        if cost(work, 0.0) <= budget:
            return 0.0
        if (least := cost(work, 1.0)) > budget:
            raise InputError(f"Pruning cannot reach {budget:g} {unit}: without its states the model has {least:.3g}.")
        outside, within = 0, work.states
        while within - outside > 1:
            middle = (outside + within) // 2
            if cost(work, ratio_for(middle, work.states)) <= budget:
                within = middle
            else:
                outside = middle
        return ratio_for(within, work.states)

    return find


def _megabytes(model: Any) -> float:
    need_torch()
    from .models._size import stored_bytes

    return stored_bytes(model) / 1e6


def _milliseconds(model: Any, inputs: tuple[Any, ...]) -> float:
    need_torch()
    import torch

    model.eval()
    times = []
    with torch.no_grad():
        for _ in range(1 + ROUNDS):
            start = perf_counter()
            model(*inputs)
            times.append(1e3 * (perf_counter() - start))
    return median(times[1:])


def _check(meaning: str, value: object, most: float = float("inf")) -> None:
    if not is_number(value) or not 0 <= value <= most:  # also false for NaN
        raise InputError(f"{meaning}; got {value!r}.")
