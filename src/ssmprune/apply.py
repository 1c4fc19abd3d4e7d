"""What a plan does to a model: read its systems, silence states, remove them. Models are values: all return copies.

Families are recognised; `adapter` names one with its options, or brings a family of the caller's own.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import numpy as np

from .adapters import Adapter, Layer, layers_of
from .arrays import Mask
from .core.system import DiagonalSystem, states_have
from .errors import InputError, need_torch
from .planning.plan import Plan

Model = TypeVar("Model")


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
    systems = _systems(layers_of(model, adapter))
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
    >>> from ssmprune.models.s5 import S5Layer
    >>> layer = S5Layer(width=4, n=6)
    >>> quiet = mask(layer, sp.make_plan(read(layer), ratio=0.5))
    >>> len(quiet.pole_re), int(quiet.mask.sum())
    (6, 3)
    """
    pruned, layers = _copy(model, plan, adapter)
    for path, layer in layers.items():
        layer.mask(plan.keep[path])
    _after_pruning(pruned, layers, plan.title)
    return pruned


def shrink(model: Model, plan: Plan, *, adapter: Adapter | None = None) -> Model:
    """Return a copy without the pruned states: smaller, faster, and an ordinary model of its family.

    >>> import ssmprune as sp
    >>> from ssmprune.models.s5 import S5Layer
    >>> layer = S5Layer(width=4, n=6)
    >>> small = shrink(layer, sp.make_plan(read(layer), ratio=0.5))
    >>> len(layer.pole_re), len(small.pole_re)
    (6, 3)
    """
    pruned, layers = _copy(model, plan, adapter)
    for path, layer in layers.items():
        layer.shrink(plan.keep[path])
    _after_pruning(pruned, layers, plan.title, plan.keep)
    return pruned


def convert(model: Any, plan: Plan | None = None, *, adapter: Adapter | None = None) -> dict[str, Any]:
    """Return our torch layers that compute what the layers of a foreign model do, by path; with a plan, shrunk."""
    need_torch()
    layers = layers_of(model, adapter)
    if plan is None:
        return {path: layer.convert() for path, layer in layers.items()}
    _check_plan(plan)
    plan.check(_systems(layers))
    converted = {path: layer.convert(plan.keep[path]) for path, layer in layers.items()}
    for path, C in plan.C.items():
        (ours,) = layers_of(converted[path]).values()
        ours.refit(np.ones(C.shape[2], bool), C, plan.D_change[path])
    return converted


def _copy(model: Model, plan: Plan, adapter: Adapter | None) -> tuple[Model, dict[str, Layer]]:
    """Return a copy of the model that the plan was made for, its C and D re-fitted, and the copy's layers."""
    _check_plan(plan)
    pruned = copy.deepcopy(model)
    layers = layers_of(pruned, adapter)
    plan.check(_systems(layers))
    for path, C in plan.C.items():
        layers[path].refit(plan.keep[path], C, plan.D_change[path])
    return pruned, layers


def _after_pruning(model: Any, layers: dict[str, Layer], title: str, kept: Mapping[str, Mask] | None = None) -> None:
    """Tell each family once, so that models that keep a record of what was done to them can do so."""
    for family in dict.fromkeys(layer.family for layer in layers.values()):
        family.after_pruning(model, title, kept)


def _check_plan(plan: object) -> None:
    if not isinstance(plan, Plan):
        raise InputError(f"plan is what ssmprune.make_plan or Plan.load returns; got {type(plan).__name__}.")


def _systems(layers: dict[str, Layer]) -> dict[str, DiagonalSystem]:
    return {path: layer.read() for path, layer in layers.items()}
