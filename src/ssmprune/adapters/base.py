"""What ssmprune has to know of a model family, as a class to derive from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from ..arrays import Complex, Mask, Real
from ..core.system import DiagonalSystem
from ..errors import InputError

WITHOUT_REFIT = (
    "Take a plan without refit (prune without data), or sp.convert(model, plan), which gives our own layers with it."
)
WITHOUT_NEW_STATES = (
    "sp.convert(model, plan) gives our own layers, which hold them; or choose among the old states, as sp.LAST does."
)


class Adapter(ABC):
    """One family of layers: where they are in a model, what they compute, how to silence states and remove them.

    `layers`, `read`, `mask` and `shrink` have to be written. `refit` brings calibration on data, whose recorded calls
    `calling_module`, `inputs_of`, `outputs_of` and `refuse_call` explain where they are not the usual ones; `write`
    brings new states, `convert` our own layers. What is not written says so in an InputError when it is needed.
    docs/extending.md has two whole examples; `ssmprune.testing.check_adapter` tests all that was written.

    A layer is whatever `layers` returns for it. It is part of a copy of the caller's model, so methods work in place.

    >>> class Leaky(Adapter):
    ...     name = "leaky"
    ...     def layers(self, model):
    ...         return {"leaky": model}
    ...     def read(self, layer):
    ...         return DiagonalSystem.from_discrete(layer["leak"], np.ones((len(layer["leak"]), 1)), layer["C"])
    ...     def mask(self, layer, keep):
    ...         layer["C"] = layer["C"] * keep
    ...     def shrink(self, layer, keep):
    ...         layer |= {name: array.compress(keep, axis=-1) for name, array in layer.items()}
    >>> import ssmprune as sp
    >>> sp.prune({"leak": np.array([0.5, 0.9]), "C": np.ones((1, 2))}, 0.5, adapter=Leaky())["leak"]
    array([0.9])
    """

    name: str  # of the family
    asked: ClassVar[tuple[str, ...]] = ()  # options of the adapter that a file does not record
    # Makes our classifier from a whole model's tree; its keyword arguments are the questions of `ssmprune import`.
    classifier: Callable[..., Any] | None = None

    @abstractmethod
    def layers(self, model: Any) -> dict[str, Any]:
        """Return the layers of this family by their path in the model; none for a model of another family."""

    @abstractmethod
    def read(self, layer: Any) -> DiagonalSystem:
        """Return what the layer computes, without its feed-through D u; a masked state has B = 0 or C = 0."""

    @abstractmethod
    def mask(self, layer: Any, keep: Mask) -> None:
        """Silence the states where `keep` (n,) is false; shapes stay."""

    @abstractmethod
    def shrink(self, layer: Any, keep: Mask) -> None:
        """Remove the states where `keep` (n,) is false."""

    def after_pruning(self, model: Any, title: str, kept: Mapping[str, Mask] | None) -> None:  # noqa: B027 (optional)
        """Write down, in models with a record, that states were masked or, all but those `kept` by layer, removed."""

    def refit(self, layer: Any, keep: Mask, C: Complex, D_change: Real) -> None:
        """Write a new C (directions, outputs, kept) for the kept states of (n,) and add D_change (outputs,) to D.

        C has one output, (directions, 1, kept), where every channel has states of its own. A layer that holds no
        complex C, or no D, says so in `read` (real_C=True, has_D=False); what it cannot hold it must refuse: see
        `as_real` and `refuse_D`.
        """
        raise InputError(
            f"The adapter of {self.name} cannot write a re-fitted C and D: it has no `refit`. {WITHOUT_REFIT}"
        )

    def write(self, layer: Any, system: DiagonalSystem) -> None:
        """Make the layer compute another system of its width, with any number of states; D stays."""
        raise InputError(f"New states cannot be written into a layer of the family {self.name}. {WITHOUT_NEW_STATES}")

    def convert(self, layer: Any, keep: Mask | None = None) -> Any:
        """Return one of our torch layers that computes what this layer does, D u included, with the kept states."""
        raise InputError(f"The family {self.name} does not say how to convert its layers to ours.")

    def calling_module(self, path: str) -> str:
        """Return the path of the torch module that takes and gives whole sequences when the layer at `path` runs."""
        return path

    def refuse_call(  # noqa: B027 (optional)
        self, layer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        """Refuse a call of that module in which the layer is not what `read` says."""

    def inputs_of(self, arguments: tuple[Any, ...]) -> Any:
        """Return the sequences (batch, length, width) that the layer sees when that module is called with these."""
        if not arguments:
            raise InputError(
                f"A layer of the family {self.name} was called without positional arguments, so its input is not "
                "known; its adapter needs an `inputs_of`."
            )
        return arguments[0]

    def outputs_of(self, result: Any) -> Any:
        """Return the outputs (batch, length, width) in what that module returned, the first if it is several."""
        return result[0] if isinstance(result, tuple | list) else result

    def as_real(self, C: Complex) -> Real:
        """Return C as real numbers, for a layer that stores no others; refuse one with imaginary parts.

        A layer with real poles is always re-fitted with a real C.
        """
        if np.abs(C.imag).max(initial=0) > 1e-6 * np.abs(C).max(initial=0):
            raise InputError(
                f"The re-fitted C is complex, and a layer of the family {self.name} holds a real one. {WITHOUT_REFIT}"
            )
        return C.real

    def refuse_D(self, D_change: Real) -> None:
        """Refuse a change of D, for a layer that has none."""
        if np.any(D_change):
            raise InputError(f"The refit changes D, and a layer of the family {self.name} has none. {WITHOUT_REFIT}")
