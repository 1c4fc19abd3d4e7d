"""Approaches: all that a sweep compares, anything that turns a model into a pruned one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from .. import apply
from ..errors import one_of
from ..methods import LAST, RANDOM, SURGEON, Method, named
from ..models.classifier import Classifier
from ..plan import Plan
from ..pruning import Pruning
from ..system import DiagonalSystem
from ..tasks._task import Split
from .baselines.as_released import AIRE_AS_RELEASED, LAST_AS_RELEASED
from .baselines.balanced import balanced_model
from .baselines.h2_optimal import h2_optimal_model
from .baselines.unstructured import unstructured_random


@dataclass
class Subject:
    """A trained model with what is needed to prune it in every way; what all ratios share is computed once."""

    name: str
    task: str
    model: Classifier
    splits: Mapping[tuple[str, int], Split]  # (split, keep each n-th sample) -> examples to evaluate
    calibration: Sequence[Any] = field(default_factory=list)  # batches of unlabelled training inputs
    _prunings: dict[tuple[str, bool, int], Pruning[Classifier]] = field(default_factory=dict, repr=False)

    @property
    def systems(self) -> dict[str, DiagonalSystem]:
        """Return every layer; states with unstable poles stay."""
        return self.pruning(LAST, with_data=False, seed=0).systems

    def pruning(self, method: Method, with_data: bool, seed: int) -> Pruning[Classifier]:
        """Return this model being pruned by a method, on the calibration inputs or without; made once."""
        key = method.name, with_data, seed
        if key not in self._prunings:
            data = self.calibration if with_data else None
            self._prunings[key] = Pruning(self.model, method, data=data, unstable="keep", seed=seed, sequences=None)
        return self._prunings[key]


@dataclass(frozen=True)
class Approach:
    """A way of pruning: one that says which states go makes a plan, any other makes the pruned model itself."""

    name: str
    plan: Callable[[Subject, float, int], Plan] | None = None  # (subject, ratio, seed)
    rebuild: Callable[[Classifier, float, int], Classifier] | None = None
    random: bool = False  # another seed, another result
    calibrated: bool = False  # needs unlabelled inputs

    def prune(self, subject: Subject, ratio: float, seed: int, plan: Plan | None) -> tuple[Classifier, Plan | None]:
        """Return the pruned model and its plan, which is made unless it is given."""
        if self.rebuild:
            return self.rebuild(subject.model, ratio, seed), None
        if plan is None and self.plan:
            plan = self.plan(subject, ratio, seed)
        return (apply.shrink(subject.model, plan) if plan else subject.model), plan


@cache
def found() -> dict[str, Approach]:
    """Return every approach by name: the methods, then `sweeps.BEYOND_METHODS`, which are more or less than that."""
    methods = [
        Approach(name, partial(_plan, method, method.refits), random=method is RANDOM, calibrated=method.refits)
        for name, method in named().items()
    ]
    others = [
        *(Approach(method.name, partial(_plan, method, False)) for method in (LAST_AS_RELEASED, AIRE_AS_RELEASED)),
        Approach("surgeon-without-data", partial(_plan, SURGEON, False)),
        Approach("unstructured-random", rebuild=unstructured_random, random=True),
        Approach("balanced", rebuild=_without_chance(balanced_model)),
        Approach("h2-optimal", rebuild=_without_chance(h2_optimal_model)),
    ]
    return {approach.name: approach for approach in methods + others}


def default() -> list[str]:
    """Return what a sweep compares unless told otherwise: every approach but the pairs that nobody has named."""
    return [name for name in found() if "/" not in name]


def get(name: str) -> Approach:
    """Return an approach by name, or an error that lists them."""
    return one_of("approach", name, found())


def _plan(method: Method, with_data: bool, subject: Subject, ratio: float, seed: int) -> Plan:
    return subject.pruning(method, with_data, seed).plan(ratio)


def _without_chance(
    reduce: Callable[[Classifier, float], Classifier],
) -> Callable[[Classifier, float, int], Classifier]:
    """Return a reduction that takes a seed and does not use it."""
    return lambda model, ratio, seed: reduce(model, ratio)
