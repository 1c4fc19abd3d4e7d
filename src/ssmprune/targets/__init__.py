"""Targets: what pruning may cost, or has to reach, instead of a ratio; also several at once.

A target finds the ratio for a model. Those that limit a cost take the largest ratio within it; those that ask for a
small or fast model take the smallest ratio that gives one. Both bisect the number of states, and both measure the model
that is returned: the states that stay re-fitted, where there are data, and with all else that is done to it. The search
is in `bisection`; `comparison` says what the layers of a model lose that no plan describes, `_answers` counts its right
answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

from ..arrays import is_number
from ..calibration.batches import Padded
from ..errors import InputError, need_torch
from ..planning.certificates import Certificate, certify, energy_lost
from ..pruning import Pruning
from .bisection import GRID, ROUNDING, largest_near, largest_within, ratio_for, removed_at
from .comparison import certify_model, energy_lost_by

ROUNDS = 5  # of timing


@dataclass(frozen=True)
class Target:
    """A budget: what is measured of a model pruned at a ratio, or of any other made of it, and how much that may be.

    Called with a `Pruning` it returns the ratio, and notes there what it came to.
    """

    name: str
    budget: float
    unit: str
    measure: Callable[[Pruning[Any], float], float]
    measure_model: Callable[[Pruning[Any], Any], float]
    rises: bool  # with the ratio: a cost; else what pruning has to bring down
    guess: Callable[[Pruning[Any], float], float] | None = None  # nearly what is measured, but cheap
    explain: Callable[[Pruning[Any], float], str] = lambda work, value: ""  # what else is to be said of a value
    others: tuple[Target, ...] = ()  # that have to be kept as well

    def __call__(self, work: Pruning[Any]) -> float:
        """Return the largest ratio within all budgets that rise with it, else the smallest that keeps the others."""
        every = (self, *self.others)
        costs, needs = ([target for target in every if target.rises is rises] for rises in (True, False))
        ratio = _largest(costs, work) if costs else _smallest(needs, work)
        for target in needs:
            if not target.kept(work, ratio):
                names = " and ".join(cost.name for cost in costs)
                raise InputError(
                    f"{names} and {target.name} cannot be kept together: as far as {names} goes, the model has "
                    f"{target.value(work, ratio):.3g} {target.unit}, and {target.budget:g} were asked for."
                )
        for target in costs:
            if work.finish is not None and not ratio and not target.kept(work, ratio):
                raise InputError(
                    f"{target.name} {target.budget:g} cannot be kept: without any pruning, what else is done to the "
                    f"model comes to {target.figure(target.value(work, ratio))}."
                )
        work.notes = [target.note(work, target.value(work, ratio), pruned=ratio > 0) for target in every]
        return ratio

    def broken_by(self, work: Pruning[Any], ratio: float, model: Any) -> list[str]:
        """Say which budgets a model made of the one pruned at a ratio breaks; if none, note what they come to.

        What depends on a model's size alone is not measured again for a model of the same size.
        """
        same_size = megabytes_of(model) == megabytes_of(work.shrink(work.choose_states(ratio)))
        every = {
            target: target.value(work, ratio) if same_size and not target.rises else target.measure_model(work, model)
            for target in (self, *self.others)
        }
        notes = {target: target.note(work, value, pruned=ratio > 0) for target, value in every.items()}
        broken = [notes[target] for target, value in every.items() if value > target.budget + ROUNDING]
        if not broken:
            work.notes = list(notes.values())
        return broken

    def beside(self, others: Sequence[Any]) -> Target:
        """Return the target that keeps this budget and others."""
        for other in others:
            if not isinstance(other, Target):
                raise InputError(
                    f"Several targets are a list, as in [max_loss(1, data), max_memory(0.2)]; one of them is {other!r}."
                )
        listed = [target for other in others for target in (other, *other.others)]
        return replace(self, others=(*self.others, *listed))

    def value(self, work: Pruning[Any], ratio: float) -> float:
        """Return what is measured at a ratio, once."""
        return work.remember((self.measure, ratio), lambda: self.measure(work, ratio))

    def kept(self, work: Pruning[Any], ratio: float) -> bool:
        """Say whether the model pruned at a ratio keeps this budget."""
        return self.value(work, ratio) <= self.budget + ROUNDING

    def figure(self, value: float) -> str:
        """Write a value with its unit."""
        return f"{value:.3g} {self.unit}".strip()

    def note(self, work: Pruning[Any], value: float, *, pruned: bool) -> str:
        """Say what the budget came to."""
        if pruned:
            return f"{self.name} {self.budget:g}: came to {self.figure(value)}{self.explain(work, value)}"
        without = "allows no pruning" if self.rises else f"holds without pruning: the model has {self.figure(value)}"
        return f"{self.name} {self.budget:g} {without}{self.explain(work, value)}"


def max_energy(share: float) -> Target:
    """Limit the share of its output's energy that any layer loses: on the data, or without any for white noise."""
    _check("max_energy is a share of a layer's output energy, from 0 to 1", share, 1)

    def lost(work: Pruning[Any], ratio: float) -> float:
        if work.finish is not None:
            return lost_by(work, work.finished(work.plan(ratio)))
        return max(energy_lost(work.plan(ratio), work.systems, work.moments).values())

    def lost_by(work: Pruning[Any], small: Any) -> float:
        return max(energy_lost_by(work, small).values())

    def lost_by_each_layer(work: Pruning[Any], ratio: float) -> float:
        return max(energy_lost(work.plan_each_layer(ratio), work.systems, work.moments).values())

    return Target("max_energy", share, "", lost, lost_by, rises=True, guess=lost_by_each_layer)


def max_gain(share: float) -> Target:
    """Limit the gain (exact H-infinity norm) of every layer's error to this share of the layer's own."""
    _check("max_gain is a share of a layer's gain, from 0", share)

    def error(work: Pruning[Any], ratio: float) -> float:
        if work.finish is not None:
            return error_of(work, work.finished(work.plan(ratio)))
        return largest(certify(work.plan(ratio), work.systems))

    def error_of(work: Pruning[Any], small: Any) -> float:
        return largest(certify_model(work, small))

    def largest(certificates: Mapping[str, Certificate]) -> float:
        return max(layer.exact / layer.gain if layer.exact else 0.0 for layer in certificates.values())

    return Target("max_gain", share, "", error, error_of, rises=True)


def max_loss(points: float, validation: Callable[[Any], float] | Iterable[Any]) -> Target:
    """Limit the loss of accuracy to this many points (hundredths).

    validation: labelled batches (x, labels) or (Padded(x, lengths), labels), or a function that gives a model's
        accuracy, from 0 to 1. With few examples the choice is a matter of luck: have at least a thousand.
    """
    _check("max_loss is a number of points of accuracy, from 0 to 100", points, 100)
    given: object = validation
    if not callable(given) and not isinstance(given, Iterable):
        kind = type(given).__name__
        raise InputError(f"max_loss takes labelled batches, or a function that gives a model's accuracy; got {kind}.")
    measure = validation if callable(validation) else Accuracy(list(validation))

    def before(work: Pruning[Any]) -> float:
        return work.remember((measure, "before"), lambda: measure(work.model))

    def lost_by(work: Pruning[Any], small: Any) -> float:
        return 100 * (before(work) - measure(small))

    def lost(work: Pruning[Any], ratio: float) -> float:
        before(work)  # is measured first
        return lost_by(work, work.finished(work.plan(ratio))) if ratio or work.finish is not None else 0.0

    def reached(work: Pruning[Any], points_lost: float) -> str:
        accuracy = before(work) - points_lost / 100
        interval = confidence(accuracy, getattr(measure, "examples", 0))
        return f", accuracy {accuracy:.2%}{interval} after {before(work):.2%}"

    return Target("max_loss", points, "points", lost, lost_by, rises=True, explain=reached)


def max_memory(megabytes: float) -> Target:
    """Ask for a model whose tensors take at most this many million bytes."""
    _check("max_memory is a number of megabytes", megabytes)

    def size(work: Pruning[Any], ratio: float) -> float:
        return megabytes_of(work.finished(work.choose_states(ratio), roughly=True))  # a re-fit changes numbers alone

    return Target("max_memory", megabytes, "MB", size, lambda work, small: megabytes_of(small), rises=False)


def max_latency(milliseconds: float, *inputs: Any) -> Target:
    """Ask for a model that takes at most this many milliseconds for these inputs, on this machine as it is now."""
    _check("max_latency is a number of milliseconds", milliseconds)

    def time(work: Pruning[Any], ratio: float) -> float:
        return milliseconds_of(work.finished(work.choose_states(ratio), roughly=True), inputs)

    def time_of(work: Pruning[Any], small: Any) -> float:
        return milliseconds_of(small, inputs)

    return Target("max_latency", milliseconds, "ms", time, time_of, rises=False)


@dataclass(frozen=True, eq=False)
class Accuracy:
    """The share of right answers to labelled batches (x, labels) or (Padded(x, lengths), labels)."""

    batches: list[Any]

    def __post_init__(self) -> None:
        """Refuse what has no labels."""
        for batch in self.batches:
            if not isinstance(batch, tuple | list) or isinstance(batch, Padded) or len(batch) < 2:
                raise InputError("max_loss counts right answers: give batches (x, labels), or a function of a model.")
        if not self.examples:
            raise InputError("max_loss counts right answers; there are no examples.")

    @property
    def examples(self) -> int:
        """On how many examples answers are counted."""
        return sum(len(batch[1]) for batch in self.batches)

    def __call__(self, model: Any) -> float:
        """Return a model's, from 0 to 1."""
        need_torch()
        from ._answers import right_answers

        return right_answers(model, self.batches)


def confidence(share: float, examples: int) -> str:
    """Say within which bounds a share that was counted on so many examples is true in 95 of 100 cases (Wilson's).

    >>> confidence(0.9, 1000), confidence(0.9, 0)
    (' (88.0 to 91.7 % with 95 % confidence, on 1,000 examples)', '')
    """
    if not examples:
        return ""
    z = 1.96
    middle, width = (
        share + z * z / (2 * examples),
        z * math.sqrt((share * (1 - share) + z * z / (4 * examples)) / examples),
    )
    low, high = (100 * (middle + sign * width) / (1 + z * z / examples) for sign in (-1, 1))
    return f" ({low:.1f} to {high:.1f} % with 95 % confidence, on {examples:,} examples)"


def _largest(costs: Sequence[Target], work: Pruning[Any]) -> float:
    """Find the largest ratio that keeps all these budgets, whose costs rise with it."""
    if len(costs) == 1 and (guess := costs[0].guess) and work.batches is not None and work.finish is None:
        start = largest_within(lambda ratio: guess(work, ratio), costs[0].budget, work.states, GRID[-1:]).exact
        removed = largest_near(removed_at(start, work.states), work.states, lambda count: _kept(costs, work, count))
        return ratio_for(removed, work.states)
    grid = GRID if any(target.name == "max_loss" for target in costs) else GRID[-1:]
    broken = largest_within(lambda ratio: not all(cost.kept(work, ratio) for cost in costs), 0, work.states, grid)
    return broken.exact


def _smallest(needs: Sequence[Target], work: Pruning[Any]) -> float:
    """Find the smallest ratio that keeps all these budgets, whose measures fall with it."""
    if _kept(needs, work, 0):
        return 0.0
    for target in needs:
        if not target.kept(work, 1.0):
            raise InputError(
                f"Pruning cannot reach {target.budget:g} {target.unit}: without its states the model has "
                f"{target.value(work, 1.0):.3g}."
            )
    outside, within = 0, work.states
    while within - outside > 1:
        middle = (outside + within) // 2
        if _kept(needs, work, middle):
            within = middle
        else:
            outside = middle
    return ratio_for(within, work.states)


def _kept(targets: Sequence[Target], work: Pruning[Any], removed: int) -> bool:
    return all(target.kept(work, ratio_for(removed, work.states)) for target in targets)


def megabytes_of(model: Any) -> float:
    """Return how many million bytes the tensors of a model take."""
    need_torch()
    from ..models._size import stored_bytes

    return stored_bytes(model) / 1e6


def milliseconds_of(model: Any, inputs: tuple[Any, ...]) -> float:
    """Return the median time that a model takes for these inputs, after one run that is not counted."""
    need_torch()
    import torch

    from ._answers import evaluating

    times = []
    with torch.no_grad(), evaluating(model):
        for _ in range(1 + ROUNDS):
            start = perf_counter()
            model(*inputs)
            times.append(1e3 * (perf_counter() - start))
    return median(times[1:])


def _check(meaning: str, value: object, most: float = float("inf")) -> None:
    if not is_number(value) or not 0 <= value <= most:  # also false for NaN
        raise InputError(f"{meaning}; got {value!r}.")
