"""The layers of a model: every family is asked which of them it knows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from ..errors import InputError, naming
from ..registry import Registry
from .annotated_s4d import AnnotatedS4D
from .base import Adapter
from .families import ArrayFamily, ArrayPlace, places_of
from .flax_s5 import FlaxS5
from .lrnnx import LrnnxS5
from .minimal_lru import MinimalLRU
from .ours import S4DAdapter, S5Adapter
from .s5_pytorch import S5Pytorch
from .state_spaces import StateSpacesDiag, StateSpacesDPLR, StateSpacesS4D

Result = TypeVar("Result")

SELECTIVE = (
    "{path} is a selective (Mamba/S6) layer: its poles and B change with the input, so a state has no fixed gain. "
    "ssmprune handles linear time-invariant diagonal layers such as S5, S4D and LRU."
)
LOW_RANK = (
    "{path} is a diagonal-plus-low-rank (DPLR) S4 layer: its states are coupled by the low-rank term, so none can be "
    "removed alone. Train the diagonal variant (S4D). Whole DPLR kernels of state-spaces/s4 can be read and converted "
    "where their modes are well conditioned."
)
LIQUID = (
    "{path} is a liquid layer: its state update is multiplied by the input, so it is not time-invariant. "
    "Train it with liquid=False to prune it."
)


def _ask_family(method: Callable[..., Result]) -> Callable[..., Result]:
    """Return a method of `Layer` that calls the adapter's of the same name with the layer."""

    @wraps(method)
    def call(self: Layer, *arguments: Any) -> Result:
        result: Result = self.call(getattr(self.family, method.__name__), self.inner, *arguments)
        return result

    return call


@dataclass(frozen=True)
class Layer:
    """A layer of a model and the adapter that knows it; errors name the layer, adapters get writable arrays."""

    path: str
    family: Adapter
    inner: Any  # the object that the adapter calls a layer: a torch module, a place of arrays

    read = _ask_family(Adapter.read)
    mask = _ask_family(Adapter.mask)
    shrink = _ask_family(Adapter.shrink)
    refit = _ask_family(Adapter.refit)
    write = _ask_family(Adapter.write)
    convert = _ask_family(Adapter.convert)
    refuse_call = _ask_family(Adapter.refuse_call)

    @property
    def calling_module(self) -> str:
        """The path of the torch module that takes and gives whole sequences when the layer runs."""
        return self.call(self.family.calling_module, self.path)

    def call(self, method: Callable[..., Result], *arguments: Any) -> Result:
        """Return what a method of the adapter returns; its errors name the layer."""
        # The arrays of a plan are read-only, which torch does not take.
        arrays = (value.copy() if isinstance(value, np.ndarray) else value for value in arguments)
        with naming(f"Layer {self.path!r}"):
            return method(*arrays)


_OURS = (S5Adapter(), S4DAdapter())
_TREES = (FlaxS5(), AnnotatedS4D(), MinimalLRU())
_MODULES = (S5Pytorch(), LrnnxS5(), StateSpacesS4D(), StateSpacesDiag(), StateSpacesDPLR())
_ADAPTERS: Registry[Adapter] = Registry(
    "adapter", Adapter, "an object of a class derived from ssmprune.Adapter", shipped=(*_OURS, *_TREES, *_MODULES)
)


def found() -> dict[str, Adapter]:
    """Return every adapter by the name of its family.

    >>> {"s4d", "s5", "flax_s5"} <= found().keys()
    True
    """
    return _ADAPTERS.found()


def layers_of(model: Any, adapter: Adapter | None = None) -> dict[str, Layer]:
    """Return every layer of a model that some family knows, by its path; a model with none is an error.

    With `adapter` only that family is asked, with the options the adapter was made with.
    """
    places = places_of(model)  # a walk for all families
    _refuse_coupled(places)
    families = list(found().values()) if adapter is None else [_ADAPTERS.checked(adapter, "`adapter`")]
    layers: dict[str, Layer] = {}
    for family in families:
        known = family.layers_among(places) if isinstance(family, ArrayFamily) else family.layers(model)
        layers |= {path: Layer(path, family, inner) for path, inner in known.items()}
    if not layers:
        raise InputError(
            f"No diagonal SSM layer found in {type(model).__name__}; the known families are "
            f"{', '.join(family.name for family in families)}. {how_to_get_model(model)}".rstrip()
        )
    return layers


def how_to_get_model(given: object) -> str:
    """Say how to get a model from what was given in its place; nothing where that is not known.

    >>> how_to_get_model("small.safetensors")
    'This is a path: load the file first, as by ssmprune.load(path) or ssmprune.load_tree(path).'
    """
    if isinstance(given, str | os.PathLike):
        return "This is a path: load the file first, as by ssmprune.load(path) or ssmprune.load_tree(path)."
    if isinstance(given, type):
        return f"This is a class: make a model of it, as by {given.__name__}(..)."
    if isinstance(given, Mapping) and any(hasattr(value, "detach") for value in given.values()):
        return "This is a state dict: build its model, model.load_state_dict(..), and give the model."
    return ""


def _refuse_coupled(places: dict[str, ArrayPlace]) -> None:
    """Refuse a model whose states cannot go one by one, recognised by the names of its arrays, with the reason."""
    for path, place in places.items():
        where, names = repr(path) if path else "The model", {*place.keys, *place.children}
        if {"A_log", "x_proj", "dt_proj"} <= names or {"A_log", "dt_bias", "in_proj"} <= names:
            raise InputError(SELECTIVE.format(path=where))
        whole = {"A_real", "A_imag", "P", "B", "C", "inv_dt"} <= names  # `StateSpacesDPLR` sees to these
        if "P" in names and not whole and ({"A_real", "A_imag"} <= names or {"Lambda_re", "Lambda_im"} <= names):
            raise InputError(LOW_RANK.format(path=where))
        if getattr(place.module, "liquid", False) is True:
            raise InputError(LIQUID.format(path=where))
