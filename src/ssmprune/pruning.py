"""Pruning a model at a ratio, or at several; and the steps by themselves: read a model, silence states, remove them.

Models are values: all that changes one returns a copy. Families are recognised; `adapter` names one with its options,
or brings a family of the caller's own. `prune` does all of it in one call.
"""

from __future__ import annotations

import copy
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import numpy as np

from .adapters import Adapter, Layer, layers_of
from .adapters.families import mark_pruned
from .arrays import Index
from .calibration.data import SEQUENCES, Sequences, compares_pairs, take
from .core.elimination import elimination_bytes
from .core.moments import Moments, moment_bytes, white_noise
from .core.system import DiagonalSystem, states_have
from .errors import InputError, need_torch
from .methods import LAST, SURGEON, Method, Scores
from .methods.allocation import kept_count
from .planning.make import (
    Limits,
    check_ratio,
    check_request,
    choose_states,
    gather_evidence,
    refit_each_layer,
    score_states,
)
from .planning.plan import Plan

if TYPE_CHECKING:
    from .models.classifier import Classifier
    from .narrowing import Narrowing

Model = TypeVar("Model")
MATRICES = 12  # of the size of a layer's moments: Gramians, their roots and what follows from them


def prune(
    model: Model,
    ratio: float | Goal | Sequence[Goal] | None = None,
    method: Method | None = None,
    *,
    width: float | Literal["auto"] = 0.0,
    operations: float | None = None,
    data: Iterable[Any] | None = None,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    unstable: Literal["refuse", "keep"] = "refuse",
    adapter: Adapter | None = None,
) -> Model:
    """Return a smaller copy of a model: read, plan and shrink at once.

    ratio: the share of all states to prune, or a `Budget` that finds it, as in `prune(model, max_memory(0.5))`, or
        several, as in `prune(model, [max_loss(1, validation), max_memory(0.5)])`.
    method: LAST without data, the surgeon with data, unless given.
    width: the share of the features to prune as well, of a `Classifier`, given data; "auto" weighs states and features
        against each other, and a ratio is then the share of a step's operations to save.
    operations: in place of a ratio, the share of a step's operations that stays: `prune(model, operations=0.2, data=x)`
        is five times less work.
    data: unlabelled batches or a DataLoader, as for `collect`; the states that stay are re-fitted layer by layer, each
        on what the pruned layers before it let through.
    limits: layers to leave alone, caps, floors, rounding.
    unstable: "keep" leaves states with a pole on or outside the unit circle in the model instead of refusing it.
    adapter: of a family that is not recognised by itself.

    `Pruning` also shows the plan, and takes seeds and how many `sequences` of the data to look at.

    >>> import torch
    >>> from ssmprune.models import S5Layer
    >>> layer, x = S5Layer(2, 10), torch.randn(8, 50, 2)
    >>> prune(layer, 0.5).B.shape, prune(layer, 0.8, data=[x]).B.shape
    (torch.Size([5, 2, 2]), torch.Size([2, 2, 2]))
    """
    if operations is not None:
        if ratio is not None:
            raise InputError("prune takes a ratio or budgets, or operations, but not both.")
        check_ratio(operations, "operations")
        ratio, width = 1 - operations, "auto"
    work = Pruning(model, method, width=width, data=data, limits=limits, unstable=unstable, adapter=adapter)
    goals = list(ratio) if isinstance(ratio, list | tuple) else [ratio]
    first = next((goal for goal in goals if isinstance(goal, Goal)), None)
    plan = work.plan(ratio) if first is None else first.find(work, goals)  # type: ignore[arg-type]  # `plan` refuses it
    small = work.shrink(plan)
    if operations is not None:
        check_operations(small, model, operations)
    return small


class Goal(ABC):
    """What may stand in place of a ratio and finds it: the base class of `budgets.Budget`."""

    @abstractmethod
    def find(self, pruning: Pruning[Any], goals: Sequence[object]) -> Plan:
        """Return the plan that reaches all these goals, of which this is one."""


def read(
    model: Any, *, unstable: Literal["refuse", "keep"] = "refuse", adapter: Adapter | None = None
) -> dict[str, DiagonalSystem]:
    """Return what every SSM layer of a model computes, by its path in the model.

    A pole on or outside the unit circle is an error, or with unstable="keep" a state that no plan removes.

    >>> import numpy as np
    >>> layer = {name: np.ones(2) for name in ("nu_log", "theta_log", "gamma_log")} | {"D": np.ones(1)}
    >>> layer |= {"B_re": np.ones((2, 1)), "B_im": np.ones((2, 1)), "C_re": np.ones((1, 2)), "C_im": np.ones((1, 2))}
    >>> read({"params": {"lru": layer}})  # the parameters of a minimal-LRU model, without JAX
    {'params.lru': DiagonalSystem(2 states, 1 -> 1, 1 direction)}
    """
    if unstable not in ("refuse", "keep"):
        raise InputError(f'unstable is "refuse" or "keep"; got {unstable!r}.')
    systems = {path: layer.read() for path, layer in layers_of(model, adapter).items()}
    for path, system in systems.items():
        if unstable == "refuse" and system.unstable_states.any():
            raise InputError(
                f"Layer {path!r}: {states_have(system.unstable_states)} a pole on or outside the unit circle, so no "
                "finite gain to score. Check the discretisation and clipping, or keep those states: `read`, `prune` "
                'and `Pruning` take unstable="keep", the command line --unstable keep.'
            )
    return systems


def mask(model: Model, plan: Plan, *, adapter: Adapter | None = None) -> Model:
    """Return a copy whose pruned states are silent; all shapes stay.

    In our own layers they stay silent through further training; other codes may wake them.

    >>> import ssmprune as sp
    >>> from ssmprune.models import S5Layer
    >>> layer = S5Layer(width=4, n=6)
    >>> quiet = mask(layer, sp.make_plan(read(layer), ratio=0.5))
    >>> len(quiet.pole_re), int(quiet.mask.sum())
    (6, 3)
    """
    _check_plan(plan, layers_of(model, adapter))
    plan.need_old_states("so there is nothing to silence; `shrink` writes the new states")
    if plan.features is not None:
        raise InputError("The plan prunes features too, which cannot be silenced; `shrink` removes them.")
    return _carry_out(model, plan, adapter, remove=False)


def shrink(model: Model, plan: Plan, *, adapter: Adapter | None = None) -> Model:
    """Return a copy without the pruned states: smaller, faster, and an ordinary model of its family.

    >>> import ssmprune as sp
    >>> from ssmprune.models import S5Layer
    >>> layer = S5Layer(width=4, n=6)
    >>> small = shrink(layer, sp.make_plan(read(layer), ratio=0.5))
    >>> len(layer.pole_re), len(small.pole_re)
    (6, 3)
    """
    _check_plan(plan, layers_of(model, adapter))
    return _carry_out(model, plan, adapter, remove=True)


def convert(model: Any, plan: Plan | None = None, *, adapter: Adapter | None = None) -> dict[str, Any]:
    """Return our torch layers that compute what the layers of a foreign model do, by path; with a plan, shrunk.

    >>> import ssmprune as sp
    >>> layer = sp.S5Layer(width=4, n=6)
    >>> len(convert(layer, sp.make_plan(read(layer), ratio=0.5))[""].pole_re)
    3
    """
    need_torch()
    layers = layers_of(model, adapter)
    if plan is None:
        return {path: layer.convert() for path, layer in layers.items()}
    _check_plan(plan, layers)
    converted = {path: layer.convert(plan.keep[path]) for path, layer in layers.items()}
    for path, C in plan.C.items():
        (ours,) = layers_of(converted[path]).values()
        replace(ours, path=path).refit(np.ones(C.shape[2], bool), C, plan.D_change[path])
    for path, reduced in plan.new.items():
        (ours,) = layers_of(converted[path]).values()
        replace(ours, path=path).write(reduced.system)
    for layer in converted.values():
        mark_pruned(layer)
    return converted


def _carry_out(model: Model, plan: Plan, adapter: Adapter | None, *, remove: bool) -> Model:
    """Return a copy with the C and D or new states of a plan that is known to be the model's, others gone or silent.

    Each family hears of it once, so that models that keep a record of what was done to them can do so.
    """
    pruned = copy.deepcopy(model)
    layers = layers_of(pruned, adapter)
    for path, layer in layers.items():
        keep = plan.keep[path]
        if path in plan.C:
            layer.refit(keep, plan.C[path], plan.D_change[path])
        if path in plan.new:
            layer.write(plan.new[path].system)
        elif remove:
            layer.shrink(keep)
        else:
            layer.mask(keep)
    for family in dict.fromkeys(layer.family for layer in layers.values()):
        family.after_pruning(pruned, plan.title, plan.keep if remove else None)
    if plan.features is not None:
        from .narrowing import narrower

        pruned = cast(Model, narrower(need_classifier(pruned), plan.features))
    mark_pruned(pruned)
    return pruned


def need_classifier(model: Any) -> Classifier:
    """Refuse a model whose features cannot be pruned."""
    need_torch()
    from .models.classifier import Classifier

    if not isinstance(model, Classifier):
        raise InputError(
            f"Features can be pruned of ssmprune's own classifiers; this is {type(model).__name__}. Prune its states "
            "alone: give a ratio, without width."
        )
    return model


def check_operations(small: Any, model: Any, most: float) -> None:
    """Refuse a model that takes more than this share of the whole model's operations, where no plan saves as many."""
    from .models.costs import operations

    if (least := operations(small.config) / operations(model.config)) > most:
        raise InputError(
            f"operations is the share of a step's operations that stays; of this model at least {least:.2%} stay, "
            f"not {most:.2%}."
        )


def _check_plan(plan: object, layers: dict[str, Layer]) -> None:
    """Refuse what is no plan, or the plan of another model."""
    if not isinstance(plan, Plan):
        raise InputError(f"plan is what ssmprune.make_plan or Plan.load returns; got {type(plan).__name__}.")
    plan.check({path: layer.read() for path, layer in layers.items()})


@dataclass(eq=False, repr=False)
class Pruning(Generic[Model]):
    """A model that is to be pruned, at one ratio or at several; what all ratios share is computed once.

    Without data the method is LAST. With unlabelled batches, as for `collect`, it is the surgeon; and by whatever
    method states go, those left are re-fitted in sequence to do what the whole model does on these inputs.

    >>> import torch
    >>> from ssmprune.models import S5Layer
    >>> _ = torch.manual_seed(0)
    >>> work = Pruning(S5Layer(2, 10), data=[torch.randn(8, 50, 2)])
    >>> [work.plan(ratio) for ratio in (0.5, 0.8)]
    [Plan(surgeon at 50%, C and D re-fitted, on 8 sequences: 10 of 20 states stay),
     Plan(surgeon at 80%, C and D re-fitted, on 8 sequences: 4 of 20 states stay)]
    """

    model: Model
    method: Method | None = None  # LAST without data, the surgeon with data, unless given
    _: KW_ONLY
    width: float | Literal["auto"] = 0.0  # share of the features to prune; "auto": ratios are of a step's operations
    data: Iterable[Any] | None = None  # unlabelled batches or a DataLoader, as for `collect`
    limits: Limits = field(default_factory=Limits)
    unstable: Literal["refuse", "keep"] = "refuse"  # as in `read`
    adapter: Adapter | None = None
    seed: int = 0  # of the random method
    sequences: int | None = SEQUENCES  # how many of the data to look at; None for all
    systems: dict[str, DiagonalSystem] = field(init=False)
    batches: list[Sequences] | None = field(init=False)

    def __post_init__(self) -> None:
        check_request(self._method, self.limits, self.seed)
        if self.width != "auto":
            check_ratio(self.width, "width")
        if self._method.reduce is not None and (self.width or self.data is not None):
            raise InputError(
                f"{self._method.name!r} makes new states from a model's parameters, and data re-fit the states that "
                "were there: leave out data and width (on the command line --calibrate, --width, --operations), or "
                "take the surgeon, which prunes further with data."
            )
        self.systems = read(self.model, unstable=self.unstable, adapter=self.adapter)
        self.limits.check(self.systems)
        pairs = compares_pairs(self.model)
        self.batches = None if self.data is None else take(self.data, self.sequences, pairs=pairs)
        if self.width and self.batches is None:
            raise InputError(
                "Features are chosen and their readers re-fitted on data: give data (on the command line --calibrate) "
                "with width and operations."
            )
        if self.width:
            need_classifier(self.model)
        refuse_beyond_memory(self.memory)

    @property
    def states(self) -> int:
        """Number of stored states that a ratio is a share of."""
        return sum(system.n for layer, system in self.systems.items() if layer not in self.limits.exclude)

    @property
    def memory(self) -> int:
        """Bytes that planning takes at most, the model and its data left aside; known before any work is done."""
        if self.batches is None and not self._method.refits and self._method.reduce is None:
            return 0
        sizes = [moment_bytes(system) for system in self.systems.values()]
        if self._method.reduce is not None:
            return MATRICES * max(sizes)
        work = max(elimination_bytes(system) for system in self.systems.values())
        if self.batches is None:
            return sum(sizes) + work
        from .calibration.record import held_bytes

        width = max(system.inputs for system in self.systems.values())
        return 2 * sum(sizes) + max(work, 3 * max(sizes)) + held_bytes(self.batches, width)

    @cached_property
    def moments(self) -> dict[str, Moments] | None:
        """Second moments of the data; None without any."""
        if self.batches is None:
            return None
        from .calibration.collect import collect_states

        return collect_states(self.model, self.systems, self.batches, adapter=self.adapter)

    @cached_property
    def scores(self) -> Scores:
        """What the method thinks of every state, at whatever ratio; data are looked at when it asks."""
        return score_states(self.systems, self._method, gather_evidence(self.systems, self._moments_of, self.seed))

    @cached_property
    def narrowing(self) -> Narrowing:
        """What the data say of the features."""
        from .narrowing import Narrowing

        return Narrowing(need_classifier(self.model), self.batches or [])

    def choose(self, ratio: float) -> Plan:
        """Decide which states and features go, and leave the others as they are."""
        states, left = self._split(ratio)
        plan = self.choose_states(states)
        return plan if left is None else replace(plan, features=self.narrowing.choose(left))

    def choose_states(self, ratio: float) -> Plan:
        """Decide which states go, and leave the others as they are, or have the method make new ones."""
        check_ratio(ratio)
        with_data = self.batches is not None
        return choose_states(self.systems, self.scores, ratio, self._method, self.limits, with_data=with_data)

    def plan_each_layer(self, ratio: float) -> Plan:
        """Decide what `make_plan` does: where the method re-fits, each layer on the inputs of the unpruned model."""
        chosen = self.choose_states(ratio)
        if not self._method.refits:
            return chosen
        return refit_each_layer(chosen, self.systems, self.moments)

    def plan(self, ratio: float) -> Plan:
        """Decide which states go; with data, re-fit the others one layer after the other on what pruning lets through.

        Without data this is `make_plan`.
        """
        if self.batches is None:
            return self.plan_each_layer(ratio)
        from .calibration.refit import refit_in_sequence

        states, left = self._split(ratio)
        chosen, model = self.choose_states(states), cast(Any, self.model)
        plan = refit_in_sequence(chosen, model, self.systems, self.batches, adapter=self.adapter)
        if left is None:
            return plan
        return replace(plan, features=self.narrowing.narrow(left, cast(Any, self.shrink(plan))))

    def _split(self, ratio: float) -> tuple[float, int | None]:
        """Return the ratio of states and the number of features that stay, None for all."""
        check_ratio(ratio)
        if not self.width:
            return ratio, None
        features = need_classifier(self.model).config.width
        if self.width != "auto":
            left = max(1, kept_count(features, self.width))
        else:
            ratio, left = self.narrowing.mix(1 - ratio, self._without_states)
        return ratio, None if left == features else left

    def _without_states(self, ratio: float) -> tuple[Index, float]:
        """Return how many states each channel keeps, last those of none, and the share of energy that others carry."""
        plan, counts, lost = self.choose_states(ratio), [], 0.0
        for layer, keep in plan.keep.items():
            channel, width = self.systems[layer].channel, self.systems[layer].inputs
            owners = np.full(len(keep), width) if channel is None else channel
            counts.append(np.bincount(owners[keep], minlength=width + 1))
            lost += float(np.exp(plan.scores[layer][~keep]).sum())
        return np.array(counts), lost

    def shrink(self, plan: Plan) -> Model:
        """Return the model without the states that a plan prunes."""
        plan.check(self.systems)
        return _carry_out(self.model, plan, self.adapter, remove=True)

    @property
    def _method(self) -> Method:
        return self.method if self.method is not None else LAST if self.data is None else SURGEON

    def _moments_of(self, layer: str) -> Moments:
        return white_noise(self.systems[layer]) if self.moments is None else self.moments[layer]


def refuse_beyond_memory(needed: int) -> None:
    """Refuse what this machine has no memory for, before it is tried."""
    if needed > (there := physical_memory()):
        raise InputError(
            f"This takes up to {needed / 1e9:.1f} GB of memory and this machine has {there / 1e9:.1f}: moments grow "
            "with the square of a layer's states. Prune by LAST without data, or on a larger machine."
        )


def physical_memory() -> float:
    """Return how many bytes of memory the machine has; infinite where it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return math.inf
