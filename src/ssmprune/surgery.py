"""Surgery: read a model's systems, silence states, remove them. Models are values: all return copies."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from .adapters import Adapter, layers_of
from .arrays import Mask
from .methods import LAST, Method
from .plan import Plan, make_plan
from .system import DiagonalSystem

Model = TypeVar("Model")


def read(model: Any, *, unstable: Literal["refuse", "keep"] = "refuse") -> dict[str, DiagonalSystem]:
    """Return what every SSM layer of a model computes, by its path in the model.

    A pole on or outside the unit circle is an error, or with unstable="keep" a state that no plan removes.
    """
    return {path: adapter.read(layer, unstable) for path, (adapter, layer) in layers_of(model).items()}


def mask(model: Model, plan: Plan) -> Model:
    """Return a copy whose pruned states are silent, now and through further training; all shapes stay."""
    return _operate(model, plan, lambda adapter, layer, keep: adapter.mask(layer, keep))


def shrink(model: Model, plan: Plan) -> Model:
    """Return a copy without the pruned states: smaller, faster, and an ordinary model of its family."""
    return _operate(model, plan, lambda adapter, layer, keep: adapter.shrink(layer, keep))


def prune(model: Model, ratio: float, method: Method = LAST, **options: Any) -> Model:
    """Plan and shrink at once; the options are those of `make_plan`."""
    return shrink(model, make_plan(read(model), ratio, method, **options))


def _operate(model: Model, plan: Plan, cut: Callable[[Adapter, Any, Mask], None]) -> Model:
    plan.check(read(model, unstable="keep"))
    patient = copy.deepcopy(model)
    for path, (adapter, layer) in layers_of(patient).items():
        cut(adapter, layer, plan.keep[path])
    return patient
