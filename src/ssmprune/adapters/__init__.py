"""Adapters: one file per model family, the only code that knows its parameter names.

A file here exports `ADAPTER`; so does a module that another package names in the entry point group
`ssmprune.adapters`. Frameworks are imported by the file that needs them, when a model is handed over.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol

from .._registry import members
from ..arrays import Complex, Mask, Real
from ..errors import InputError
from ..system import DiagonalSystem
from ._refusals import why_refused


class Adapter(Protocol):
    """What ssmprune needs to know of a model family."""

    @property
    def name(self) -> str:
        """What the family is called."""

    def layers(self, model: Any) -> dict[str, Any]:
        """Return the layers of this family by their path in the model; none for a model of another family."""

    def read(self, layer: Any, unstable: Literal["refuse", "keep"]) -> DiagonalSystem:
        """Return what the layer computes, without its feed-through; a masked state has B = 0 or C = 0."""

    def mask(self, layer: Any, keep: Mask) -> None:
        """Silence the other states in place; shapes stay."""

    def shrink(self, layer: Any, keep: Mask) -> None:
        """Remove the other states in place."""

    def refit(self, layer: Any, keep: Mask, C: Complex, D_change: Real) -> None:
        """Write a new C (directions, outputs, kept) for the kept states and add to the feed-through, in place."""


def found() -> dict[str, Adapter]:
    """Return every adapter in this folder, and those other packages bring, by name.

    >>> {"s4d", "s5", "flax_s5"} <= found().keys()
    True
    """
    adapters = (module.ADAPTER for module in members(__name__, __path__))
    return {adapter.name: adapter for adapter in (*adapters, *_plugged_in())}


@cache
def _plugged_in() -> tuple[Adapter, ...]:
    """Load the adapters of other packages: an entry point names the adapter, or a module that exports `ADAPTER`."""
    adapters = []
    for entry in entry_points(group="ssmprune.adapters"):
        try:
            named = entry.load()
        except Exception as error:  # whatever another package's module may raise
            raise InputError(f"The adapter {entry.name} ({entry.value}) does not load: {error}") from error
        adapters.append(getattr(named, "ADAPTER", named))
    return tuple(adapters)


def whole_batches(adapter: Adapter, path: str) -> str:
    """Return the path of the module that takes and gives (batch, length, width) when the layer at `path` runs.

    It is the layer itself unless its adapter's `whole_batches(path)` says otherwise.
    """
    own = getattr(adapter, "whole_batches", None)
    return own(path) if own else path


def layers_of(model: Any, adapter: Adapter | None = None) -> dict[str, tuple[Adapter, Any]]:
    """Return every layer of a model that some family knows, with its adapter; a model with none is an error.

    With `adapter` only that family is asked, with the options the adapter was made with.
    """
    if reason := why_refused(model):
        raise InputError(reason)
    families = found() if adapter is None else {adapter.name: adapter}
    known = {path: (family, layer) for family in families.values() for path, layer in family.layers(model).items()}
    if not known:
        raise InputError(
            f"No diagonal SSM layer found in {type(model).__name__}; the known families are {', '.join(families)}."
        )
    return known
