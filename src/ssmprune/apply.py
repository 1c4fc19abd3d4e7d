"""Surgery: read a model's systems, silence states, remove them. Models are values: all return copies.

Families are recognised; `adapter` names one with its options, or brings a family of the caller's own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np

from .adapters import Adapter, layers_of
from .arrays import Mask
from .errors import InputError, need_torch
from .plan import Plan
from .system import DiagonalSystem

Model = TypeVar("Model")


def read(
    model: Any, *, unstable: Literal["refuse", "keep"] = "refuse", adapter: Adapter | None = None
) -> dict[str, DiagonalSystem]:
    """Return what every SSM layer of a model computes, by its path in the model.

    A pole on or outside the unit circle is an error, or with unstable="keep" a state that no plan removes.
    """
    return {path: family.read(layer, unstable) for path, (family, layer) in layers_of(model, adapter).items()}


def mask(model: Model, plan: Plan, *, adapter: Adapter | None = None) -> Model:
    """Return a copy whose pruned states are silent; all shapes stay.

    In our own layers they stay silent through further training; other codes may wake them.
    """
    return _operate(model, plan, adapter, lambda family, layer, keep: family.mask(layer, keep))


def shrink(model: Model, plan: Plan, *, adapter: Adapter | None = None) -> Model:
    """Return a copy without the pruned states: smaller, faster, and an ordinary model of its family."""
    return _operate(model, plan, adapter, lambda family, layer, keep: family.shrink(layer, keep))


def convert(model: Any, plan: Plan | None = None, *, adapter: Adapter | None = None) -> dict[str, Any]:
    """Return our torch layers that compute what the layers of a foreign model do, by path; with a plan, shrunk."""
    need_torch()
    layers = layers_of(model, adapter)
    if plan is not None:
        plan.check(read(model, unstable="keep", adapter=adapter))
    converted = {}
    for path, (family, layer) in layers.items():
        if not hasattr(family, "stored"):
            raise InputError(f"{path!r} is of the family {family.name}, which does not say how to convert its layers.")
        converted[path] = ours = family.stored(layer).layer(None if plan is None else plan.keep[path])
        if plan is not None and path in plan.C:
            ((own, _),) = layers_of(ours).values()
            own.refit(ours, np.ones(plan.C[path].shape[2], bool), plan.C[path], plan.D_change[path])
    return converted


def _operate(model: Model, plan: Plan, adapter: Adapter | None, cut: Callable[[Adapter, Any, Mask], None]) -> Model:
    plan.check(read(model, unstable="keep", adapter=adapter))
    patient = copy.deepcopy(model)
    for path, (family, layer) in layers_of(patient, adapter).items():
        if path in plan.C:
            family.refit(layer, plan.keep[path], plan.C[path], plan.D_change[path])
        cut(family, layer, plan.keep[path].copy())  # writable, as torch wants what it indexes with
    return patient
