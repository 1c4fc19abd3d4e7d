"""Pruning while training: how many states are left at each step, and how model and optimiser lose the others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..adapters import layers_of
from ..budgets import ratio_for
from ..calibration.collect import collect
from ..errors import InputError, one_of
from ..methods import SURGEON, named
from ..methods.allocation import kept_count
from ..models.classifier import Classifier
from ..planning.make import make_plan
from ..planning.plan import Plan
from ..pruning import read, shrink


@dataclass(frozen=True)
class Schedule:
    """Prune the share `to` of the states between two shares of the training, one cut in `every` steps.

    Most go early, while the model learns fast: after a share t of the time, 1 - (1 - t)³ of the pruning is done.

    >>> half = Schedule(to=0.5, start=0.2, until=0.6, every=10)
    >>> [half.ratio(step, steps=100) for step in (0, 20, 29, 30, 40, 59, 60, 99)]
    [0.0, 0.0, 0.0, 0.2890625, 0.4375, 0.4921875, 0.5, 0.5]
    """

    to: float
    start: float = 0.1
    until: float = 0.5
    every: int = 50
    method: str = SURGEON.name  # by name, since a schedule is saved with its training

    def __post_init__(self) -> None:
        if not 0 <= self.to <= 1:
            raise InputError(f"The share of states to prune lies between 0 and 1; got {self.to}.")
        if not 0 <= self.start <= self.until <= 1:
            raise InputError(
                f"Pruning lasts from a share of the training to a later one, 0 to 1; got {self.start} to {self.until}."
            )
        if self.every < 1:
            raise InputError(f"The number of steps between two cuts is at least 1; got {self.every}.")
        if one_of("method", self.method, named()).reduce is not None:
            raise InputError(
                f"{self.method!r} makes new states, for which an optimiser has no history; choose another."
            )

    def ratio(self, step: int, steps: int) -> float:
        """Return the share of the states that is gone when `step` of `steps` begins."""
        start, until = round(self.start * steps), round(self.until * steps)
        if step < start:
            return 0.0
        if step >= until:
            return self.to
        done = (step - start) // self.every * self.every
        return round(self.to * (1 - (1 - done / (until - start)) ** 3), 9)

    def plan(self, model: Classifier, whole: int, ratio: float, batches: Callable[[], Iterable[Any]]) -> Plan | None:
        """Decide what to prune so that the share `ratio` of the `whole` states at first is gone; None if it is already.

        batches: called for inputs by a method that re-fits; it uses all of them.
        """
        states, left = sum(model.config.states), max(kept_count(whole, ratio), model.config.depth)
        if states <= left:
            return None
        method = named()[self.method]
        moments = collect(model, batches(), sequences=None) if method.refits else None
        return make_plan(read(model), ratio_for(states - left, states), method, moments=moments)


def shrink_training(
    model: Classifier, optimizer: torch.optim.Optimizer, plan: Plan
) -> tuple[Classifier, dict[str, dict[str, Tensor]]]:
    """Return the shrunk model and, by parameter, the optimiser's state of what is left.

    The moments of a parameter are cut as it is: by the same shrinking of a model that consists of moments.
    """
    small = shrink(model, plan)
    small.history = model.history  # it begins after the training, of which this is a part
    if not optimizer.state:  # before the first step
        return small, {}
    kept = {name: {"step": optimizer.state[p]["step"].clone()} for name, p in model.named_parameters()}
    for moment in ("exp_avg", "exp_avg_sq"):
        twin = copy.deepcopy(model)
        for ours, theirs in zip(twin.parameters(), model.parameters(), strict=True):
            ours.data = optimizer.state[theirs][moment].clone()
        for path, layer in layers_of(twin).items():
            layer.shrink(plan.keep[path])
        for name, parameter in twin.named_parameters():
            kept[name][moment] = parameter.detach()
    return small, kept
