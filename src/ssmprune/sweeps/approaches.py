"""Approaches: the ways from a model to a pruned one that a sweep compares.

All methods of pruning states are approaches, and so is anything else that makes a smaller model: derive from
`Approach`, or give a function to `Rebuild`. Other packages bring theirs by an entry point of the group
`ssmprune.approaches`, a Python file by `--module FILE.py` (see `registry`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import InputError, one_of
from ..methods import RANDOM, SURGEON, Method, named
from ..planning.plan import Plan
from ..pruning import Pruning, shrink
from ..registry import Registry
from ..tasks.task import Split
from .store import FULL, Key

if TYPE_CHECKING:
    from ..models.classifier import Classifier


@dataclass(eq=False)
class Subject:
    """A trained model with the data that approaches need; what the ratios have in common is computed once."""

    name: str
    task: str
    model: Classifier
    splits: Mapping[str, Split]  # name -> examples to evaluate
    calibration: Sequence[Any] = ()  # batches of unlabelled training inputs
    every: int = 1  # each n-th sample of the splits was kept: another sampling rate than in training
    _prunings: dict[tuple[str, bool, int], Pruning[Classifier]] = field(default_factory=dict, repr=False)

    def prune(self, key: Key, plan: Plan | None = None) -> tuple[Classifier, Plan | None]:
        """Return the model of a cell, with its plan if its approach makes plans; a `plan` made before is used again."""
        if key.method == FULL:
            return self.model, None
        return get(key.method).prune(self, key.ratio, key.seed, plan)

    def pruning(self, method: Method, with_data: bool, seed: int) -> Pruning[Classifier]:
        """Return the pruning of this model by a method, with or without the calibration inputs; it is made once."""
        key = method.name, with_data, seed
        if key not in self._prunings:
            data = self.calibration if with_data else None
            self._prunings[key] = Pruning(self.model, method, data=data, unstable="keep", seed=seed, sequences=None)
        return self._prunings[key]


class Approach(ABC):
    """A way from a model to a pruned one."""

    name: str
    description: str = ""  # what it does, in a line
    random: bool  # another seed gives another result
    calibrated: bool  # needs unlabelled inputs
    plans: ClassVar[bool]  # a plan says what it does to a model

    @abstractmethod
    def prune(self, subject: Subject, ratio: float, seed: int, plan: Plan | None) -> tuple[Classifier, Plan | None]:
        """Return the pruned model, with its plan if `plans`; a `plan` that was made before is used again."""


@dataclass(frozen=True)
class PruneStates(Approach):
    """Remove states by a method, which makes a plan."""

    name: str
    method: Method
    calibrated: bool = False
    random: bool = False
    description: str = ""
    plans = True

    def prune(self, subject: Subject, ratio: float, seed: int, plan: Plan | None) -> tuple[Classifier, Plan | None]:
        """Make the plan unless it is given, and shrink."""
        if plan is None:
            plan = subject.pruning(self.method, self.calibrated, seed).plan(ratio)
        return shrink(subject.model, plan), plan


@dataclass(frozen=True)
class Rebuild(Approach):
    """Make a model of other states or elements, which no plan can describe."""

    name: str
    rebuild: Callable[[Classifier, float, int], Classifier]  # (model, ratio, seed)
    random: bool = False
    calibrated: bool = False
    description: str = ""
    plans = False

    def prune(self, subject: Subject, ratio: float, seed: int, plan: Plan | None) -> tuple[Classifier, Plan | None]:
        """Rebuild the model."""
        return self.rebuild(subject.model, ratio, seed), None


def found() -> dict[str, Approach]:
    """Return all approaches by name: first the methods, then those that are no criterion with an allocation."""
    methods: dict[str, Approach] = {
        name: PruneStates(name, method, method.refits, method.criterion is RANDOM.criterion, method.description)
        for name, method in named().items()
    }
    return methods | _APPROACHES.found()


def default() -> list[str]:
    """Return what a sweep compares by default: all approaches except unnamed pairs of criterion and allocation."""
    return [name for name in found() if "/" not in name]


def get(name: str) -> Approach:
    """Return an approach by name, or an error that lists them."""
    return one_of("approach", name, found())


def _refuse_name_of_method(approach: Approach, origin: str) -> None:
    if approach.name in named():
        raise InputError(f"{origin}: there is a method {approach.name!r} already; give the approach another name.")


_APPROACHES: Registry[Approach] = Registry(
    "approach",
    Approach,
    "an object of a class derived from ssmprune.sweeps.Approach",
    shipped=[
        PruneStates(
            "surgeon-without-data", SURGEON, description="The surgeon with white noise in place of sample inputs."
        )
    ],
    check=_refuse_name_of_method,
)
