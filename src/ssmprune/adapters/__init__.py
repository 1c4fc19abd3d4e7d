"""Adapters: one file per model family, the only code that knows its parameter names.

A file here exports `ADAPTER`: `s5` and `s4d` are our own layers, `flax_s5`, `s5_pytorch`, `annotated_s4d`,
`state_spaces_s4d`, `state_spaces_diag`, `state_spaces_dplr` and `minimal_lru` those of other codes. So does a module
that another package names in the entry point group `ssmprune.adapters`. Frameworks are imported when a model is handed
over.

Helpers: `_adapter` is the base class, `_arrays` finds arrays in models and refuses what cannot be pruned,
`_parameters` describes a layer, `_families` cuts arrays, `_ours` is what our two families share, `_classifiers`
imports whole models, `_files` reads them from disk; `_pruned_modules` saves pruned torch modules and loads them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..arrays import Complex, Mask, Real
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..registry import Registry
from . import (
    annotated_s4d,
    flax_s5,
    minimal_lru,
    s4d,
    s5,
    s5_pytorch,
    state_spaces_diag,
    state_spaces_dplr,
    state_spaces_s4d,
)
from ._adapter import Adapter
from ._arrays import places_of, refuse_coupled

__all__ = ["Adapter", "Layer", "found", "layers_of"]


@dataclass(frozen=True)
class Layer:
    """A layer of a model and the adapter that knows it; errors name the layer, adapters get writable arrays."""

    path: str
    family: Adapter
    own: Any  # what the adapter calls a layer: a torch module, a place of arrays

    def read(self) -> DiagonalSystem:
        """Return what the layer computes, without D u."""
        with self._with_path_in_errors():
            return self.family.read(self.own)

    def mask(self, keep: Mask) -> None:
        """Silence the other states."""
        with self._with_path_in_errors():
            self.family.mask(self.own, keep.copy())  # a plan's is read-only, which torch does not take

    def shrink(self, keep: Mask) -> None:
        """Remove the other states."""
        with self._with_path_in_errors():
            self.family.shrink(self.own, keep.copy())

    def refit(self, keep: Mask, C: Complex, D_change: Real) -> None:
        """Write a new C for the kept states and add to D."""
        with self._with_path_in_errors():
            self.family.refit(self.own, keep.copy(), C.copy(), D_change.copy())

    def write(self, system: DiagonalSystem) -> None:
        """Make the layer compute another system."""
        with self._with_path_in_errors():
            self.family.write(self.own, system)

    def convert(self, keep: Mask | None = None) -> Any:
        """Return our torch layer that computes the same, with all states or those in `keep`."""
        with self._with_path_in_errors():
            return self.family.convert(self.own, None if keep is None else keep.copy())

    @property
    def calling_module(self) -> str:
        """The path of the torch module that takes and gives whole sequences when the layer runs."""
        with self._with_path_in_errors():
            return self.family.calling_module(self.path)

    @contextmanager
    def _with_path_in_errors(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            raise InputError(f"Layer {self.path!r}: {error}") from error


def found() -> dict[str, Adapter]:
    """Return every adapter in this folder, and those other packages bring, by name.

    >>> {"s4d", "s5", "flax_s5"} <= found().keys()
    True
    """
    return _ADAPTERS.found()


_FAMILIES = (
    *(annotated_s4d, flax_s5, minimal_lru, s4d, s5, s5_pytorch),
    *(state_spaces_diag, state_spaces_dplr, state_spaces_s4d),
)
_ADAPTERS = Registry(
    "adapter",
    Adapter,
    "an object of a class derived from ssmprune.Adapter",
    shipped=[family.ADAPTER for family in _FAMILIES],
)


def layers_of(model: Any, adapter: Adapter | None = None) -> dict[str, Layer]:
    """Return every layer of a model that some family knows, by its path; a model with none is an error.

    With `adapter` only that family is asked, with the options the adapter was made with.
    """
    places = places_of(model)
    refuse_coupled(places)
    families = list(found().values()) if adapter is None else [_ADAPTERS.checked(adapter, "`adapter`")]
    layers = {
        path: Layer(path, family, own) for family in families for path, own in family.layers_among(places).items()
    }
    if not layers:
        raise InputError(
            f"No diagonal SSM layer found in {type(model).__name__}; the known families are "
            f"{', '.join(family.name for family in families)}."
        )
    return layers
