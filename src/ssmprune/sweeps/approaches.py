"""Approaches: all that a sweep compares, anything that turns a model into a pruned one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .. import apply
from ..core.system import DiagonalSystem
from ..errors import InputError, one_of
from ..methods.method import LAST, RANDOM, SURGEON, Method, named
from ..models.classifier import Classifier
from ..planning.plan import Plan
from ..pruning import Pruning
from ..registry import Registry
from ..tasks.task import Split
from .balanced import balanced_model


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


class Approach(ABC):
    """A way from a model to a pruned one."""

    name: str
    random: bool  # another seed gives another result
    calibrated: bool  # needs unlabelled inputs
    plans: ClassVar[bool]  # what it does to a model can be written down as a plan

    @abstractmethod
    def prune(self, subject: Subject, ratio: float, seed: int, plan: Plan | None) -> tuple[Classifier, Plan | None]:
        """Return the pruned model and its plan, if there is one; a `plan` that was made before is used again."""


@dataclass(frozen=True)
class PruneStates(Approach):
    """Remove states by a method, which makes a plan."""

    name: str
    method: Method
    calibrated: bool = False
    random: bool = False
    plans = True

    def prune(self, subject: Subject, ratio: float, seed: int, plan: Plan | None) -> tuple[Classifier, Plan | None]:
        """Plan unless that was done before, and shrink."""
        if plan is None:
            plan = subject.pruning(self.method, self.calibrated, seed).plan(ratio)
        return apply.shrink(subject.model, plan), plan


@dataclass(frozen=True)
class Rebuild(Approach):
    """Make a model of other states or elements, which no plan can describe."""

    name: str
    rebuild: Callable[[Classifier, float, int], Classifier]  # (model, ratio, seed)
    random: bool = False
    calibrated: bool = False
    plans = False

    def prune(self, subject: Subject, ratio: float, seed: int, plan: Plan | None) -> tuple[Classifier, Plan | None]:
        """Rebuild the model."""
        return self.rebuild(subject.model, ratio, seed), None


def found() -> dict[str, Approach]:
    """Return every approach by name: the methods, then `sweeps.BEYOND_METHODS`, which are more or less than that."""
    methods: dict[str, Approach] = {
        name: PruneStates(name, method, calibrated=method.refits, random=method.criterion is RANDOM.criterion)
        for name, method in named().items()
    }
    return methods | _APPROACHES.found()


def default() -> list[str]:
    """Return what a sweep compares unless told otherwise: every approach but the pairs that nobody has named."""
    return [name for name in found() if "/" not in name]


def get(name: str) -> Approach:
    """Return an approach by name, or an error that lists them."""
    return one_of("approach", name, found())


def _without_chance(
    reduce: Callable[[Classifier, float], Classifier],
) -> Callable[[Classifier, float, int], Classifier]:
    """Return a reduction that takes a seed and does not use it."""
    return lambda model, ratio, seed: reduce(model, ratio)


def _refuse_name_of_method(approach: Approach, origin: str) -> None:
    if approach.name in named():
        raise InputError(f"{origin}: there is a method {approach.name!r} already; give the approach another name.")


_APPROACHES: Registry[Approach] = Registry(
    "approach",
    Approach,
    "an object of a class derived from ssmprune.sweeps.approaches.Approach",
    shipped=[PruneStates("surgeon-without-data", SURGEON), Rebuild("balanced", _without_chance(balanced_model))],
    check=_refuse_name_of_method,
)
