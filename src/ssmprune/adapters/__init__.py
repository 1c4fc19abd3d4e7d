"""Adapters: one file per model family, the only code that knows its parameter names.

A file here exports `ADAPTER`. Frameworks are imported by the file that needs them, when a model is handed over.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Literal, Protocol

from ..arrays import Mask
from ..errors import InputError
from ..system import DiagonalSystem
from .refused import why_refused


class Adapter(Protocol):
    """What ssmprune needs to know of a model family."""

    name: str

    def layers(self, model: Any) -> dict[str, Any]:
        """Return the layers of this family by their path in the model; none for a model of another family."""

    def read(self, layer: Any, unstable: Literal["refuse", "keep"]) -> DiagonalSystem:
        """Return what the layer computes, without its feed-through; a masked state has B = 0."""

    def mask(self, layer: Any, keep: Mask) -> None:
        """Silence the other states in place; shapes stay."""

    def shrink(self, layer: Any, keep: Mask) -> None:
        """Remove the other states in place."""


def found() -> dict[str, Adapter]:
    """Return every adapter in this folder by name.

    >>> sorted(found())
    ['s4d', 's5']
    """
    modules = (importlib.import_module(f"{__name__}.{entry.name}") for entry in pkgutil.iter_modules(__path__))
    adapters = (module.ADAPTER for module in modules if hasattr(module, "ADAPTER"))
    return {adapter.name: adapter for adapter in adapters}


def layers_of(model: Any) -> dict[str, tuple[Adapter, Any]]:
    """Return every layer of a model that some family knows, with its adapter; a model with none is an error."""
    if reason := why_refused(model):
        raise InputError(reason)
    known = {path: (adapter, layer) for adapter in found().values() for path, layer in adapter.layers(model).items()}
    if not known:
        raise InputError(
            f"No diagonal SSM layer found in {type(model).__name__}; the known families are {', '.join(found())}."
        )
    return known
