"""What families share whose layers are named arrays: described by `LayerParameters`, cut along the axes of states."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from ..arrays import Complex, Mask, Real
from ..core.system import DiagonalSystem
from ..errors import InputError
from .arrays import ArrayPlace, Places, places_of
from .base import Adapter
from .parameters import LayerParameters


class ArrayFamily(Adapter):
    """A family whose layers are recognised by the names of their arrays, in modules, state dicts and trees alike."""

    marks: ClassVar[frozenset[str]]  # arrays that every layer of the family has

    def layers(self, model: Any) -> dict[str, ArrayPlace]:
        """Return the layers of this family by their path in the model."""
        return self.layers_among(places_of(model))

    def layers_among(self, places: Places) -> dict[str, ArrayPlace]:
        """Return the places that hold all arrays of a layer."""
        return {path: place for path, place in places.by_path.items() if self.marks <= place.keys.keys()}

    def read(self, layer: ArrayPlace) -> DiagonalSystem:
        """Discretise in double precision, whatever precision the layer has."""
        return self.parameters(layer).system()

    def convert(self, layer: ArrayPlace, keep: Mask | None = None) -> Any:
        """Build one of our torch layers from the parameters."""
        return self.parameters(layer).layer(keep)

    def parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Return the layer's parameters in the words of our own layers."""
        try:
            return self._parameters(layer)
        except InputError:
            raise
        except (ValueError, IndexError, KeyError) as error:
            shapes = ", ".join(f"{name} {layer[name].shape}" for name in layer.keys)
            raise InputError(f"The arrays of a {self.name} layer do not belong together: {shapes}.") from error

    @abstractmethod
    def _parameters(self, layer: ArrayPlace) -> LayerParameters:
        """Say what the arrays mean; errors of numpy become an InputError about shapes that do not belong together."""

    def ask(self) -> None:
        """Raise an error that names every option still to be given."""
        if missing := [name for name in self.asked if getattr(self, name) is None]:
            call = f"{type(self).__name__}({', '.join(f'{name}=...' for name in self.asked)})"
            raise InputError(
                f"A tree of {self.name} does not record {', '.join(missing)}. Say what the model was trained with: "
                f"adapter={call}, from {type(self).__module__}."
            )


class FlatFamily(ArrayFamily):
    """States are entries along one axis of every array; a silent state has a zero row in B."""

    state_axis: ClassVar[dict[str, int]]  # the axis along which an array runs over the states
    input_arrays: ClassVar[tuple[str, ...]] = ("B",)  # whose rows are zero for a silent state

    def mask(self, layer: ArrayPlace, keep: Mask) -> None:
        """Set rows to zero; all shapes stay."""
        for name in self.input_arrays:
            rows = layer[name]
            rows[~keep] = 0
            layer[name] = rows

    def shrink(self, layer: ArrayPlace, keep: Mask) -> None:
        """Cut every array along its states; the two directions of one C lie behind each other."""
        for name, axis in self.state_axis.items():
            if name in layer:
                whole = layer[name]
                layer[name] = whole.compress(np.tile(keep, whole.shape[axis] // max(1, len(keep))), axis)


class GridFamily(ArrayFamily):
    """All channels have equally many states; a silent state has zeros in C, since B is fixed or shared."""

    grid_axes: ClassVar[dict[str, tuple[int, int]]]  # the axes of an array that run over channels and states

    def calling_module(self, path: str) -> str:
        """Refuse, since these codes compute a kernel here and the module around it does more than convolve with it."""
        raise InputError(
            f"Calibration cannot watch a layer of {self.name} at work: it only computes a kernel. Bring the model into "
            "our own layers (`ssmprune import`, or sp.convert layer by layer), or prune without data."
        )

    def feed_through(self, layer: ArrayPlace, channels: int) -> Real:
        """Return D (H,) of the block around a kernel, else zeros."""
        return next((place["D"].ravel() for place in layer.around() if "D" in place), np.zeros(channels))

    def mask(self, layer: ArrayPlace, keep: Mask) -> None:
        """Set entries of C to zero; all shapes stay."""
        C = layer["C"]
        grid = np.moveaxis(C, self.grid_axes["C"], (0, 1))  # a view
        grid[~keep.reshape(grid.shape[:2])] = 0
        layer["C"] = C

    def shrink(self, layer: ArrayPlace, keep: Mask) -> None:
        """Cut the grid, which is possible where all channels keep equally many states."""
        channels, _ = (layer["C"].shape[axis] for axis in self.grid_axes["C"])
        rows = keep.reshape(channels, -1)
        counts = rows.sum(1)
        if counts.min() != counts.max():
            raise InputError(
                f"{self.name} stores a grid with one number of states for all channels, and this plan keeps "
                f"{counts.min()} to {counts.max()}. Use sp.mask, or sp.convert to get our S4D layers, "
                "whose channels may differ."
            )
        for name, axes in self.grid_axes.items():
            grid = np.moveaxis(layer[name], axes, (0, 1))
            if len(grid) != channels:
                raise InputError(f"Channels share {name}, so none can lose states alone; use sp.mask or sp.convert.")
            layer[name] = np.moveaxis(grid[rows].reshape(channels, -1, *grid.shape[2:]), (0, 1), axes)


def directions(C: Complex, n: int) -> Complex:
    """Give both directions of C (H, directions n) an axis of their own: (directions, H, n)."""
    count = C.shape[1] // n if n and C.shape[1] % n == 0 else 1
    return np.stack(np.split(C, count, axis=1))
