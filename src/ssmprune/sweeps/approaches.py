"""Approaches: all that a sweep compares, anything that turns a model into a pruned one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from .. import apply
from ..allocation import Scores, pooled
from ..calibration import Moments, white_noise
from ..errors import InputError
from ..methods import LAST, Method, named
from ..models.classifier import Classifier
from ..plan import Plan, make_plan, plan_from_scores
from ..pruning import Pruning
from ..sequence import refit_in_sequence
from ..surgeon import elimination_scores, refit
from ..system import DiagonalSystem
from ..tasks._task import Split
from .baselines.balanced import balanced_model
from .baselines.unstructured import unstructured_random


@dataclass
class Subject:
    """A trained model with what is needed to prune it in every way; what all ratios share is computed once."""

    name: str
    task: str
    model: Classifier
    splits: Mapping[tuple[str, int], Split]  # (split, keep each n-th sample) -> examples to evaluate
    calibration: Sequence[Any] = field(default_factory=list)  # batches of unlabelled training inputs

    @cached_property
    def systems(self) -> dict[str, DiagonalSystem]:
        """Every layer; states with unstable poles stay."""
        return apply.read(self.model, unstable="keep")

    @cached_property
    def surgeon(self) -> Pruning[Classifier]:
        """The surgeon at work on the calibration inputs."""
        return Pruning(self.model, data=self.calibration, unstable="keep")

    @cached_property
    def white_moments(self) -> dict[str, Moments]:
        """Of white noise."""
        return {layer: white_noise(system) for layer, system in self.systems.items()}

    @cached_property
    def white_surgeon_scores(self) -> Scores:
        """What each state costs in the surgeon's order under white noise."""
        return {layer: elimination_scores(system, self.white_moments[layer]) for layer, system in self.systems.items()}


@dataclass(frozen=True)
class Approach:
    """A way of pruning: one that says which states go makes a plan, any other makes the pruned model itself."""

    name: str
    plan: Callable[[Subject, float, int], Plan] | None = None  # (subject, ratio, seed)
    rebuild: Callable[[Classifier, float, int], Classifier] | None = None
    random: bool = False  # another seed, another result
    calibrated: bool = False  # needs unlabelled inputs

    def prune(self, subject: Subject, ratio: float, seed: int, known: Plan | None) -> tuple[Classifier, Plan | None]:
        """Return the pruned model and its plan, which need not be made again where it is known."""
        if self.rebuild:
            return self.rebuild(subject.model, ratio, seed), None
        if known is None and self.plan:
            known = self.plan(subject, ratio, seed)
        return (apply.shrink(subject.model, known) if known else subject.model), known


def found() -> dict[str, Approach]:
    """Every approach by name: the methods, then what is more or less than a method.

    >>> [name for name in found() if name not in named()]
    ['unstructured-random', 'balanced', 'last+refit', 'surgeon-without-data', 'surgeon']
    """
    methods = [Approach(name, partial(_scored, method), random=name == "random") for name, method in named().items()]
    others = [
        Approach("unstructured-random", rebuild=unstructured_random, random=True),
        Approach("balanced", rebuild=_balanced),
        Approach("last+refit", _last_and_refit, calibrated=True),
        Approach("surgeon-without-data", _surgeon_without_data),
        Approach("surgeon", _surgeon, calibrated=True),
    ]
    return {approach.name: approach for approach in methods + others}


def default() -> list[str]:
    """What a sweep compares unless told otherwise: every approach but the pairs that nobody has named."""
    return [name for name in found() if "/" not in name]


def get(name: str) -> Approach:
    """Return an approach by name, or an error that lists them."""
    known = found()
    if name not in known:
        raise InputError(f"There is no approach {name!r} to sweep; there are {', '.join(known)}.")
    return known[name]


def _scored(method: Method, subject: Subject, ratio: float, seed: int) -> Plan:
    return make_plan(subject.systems, ratio, method, seed=seed)


def _last_and_refit(subject: Subject, ratio: float, seed: int) -> Plan:
    return refit_in_sequence(_scored(LAST, subject, ratio, seed), subject.model, subject.calibration)


def _surgeon_without_data(subject: Subject, ratio: float, seed: int) -> Plan:
    plan = plan_from_scores(subject.systems, subject.white_surgeon_scores, ratio, pooled, "surgeon without data")
    return refit(plan, subject.systems, subject.white_moments)


def _surgeon(subject: Subject, ratio: float, seed: int) -> Plan:
    return subject.surgeon.plan(ratio)


def _balanced(model: Classifier, ratio: float, seed: int) -> Classifier:
    return balanced_model(model, ratio)
