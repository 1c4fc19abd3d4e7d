"""What foreign families share: layers found by the names of their arrays, states silenced and cut along axes."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from ..arrays import Complex, Mask, Real, joined
from ..errors import InputError
from ..system import DiagonalSystem
from . import _arrays
from ._arrays import Node
from ._parameters import Stored


class Foreign:
    """A family whose layers are recognised by the names of their arrays, in modules, state dicts and trees alike."""

    name: ClassVar[str]
    marks: ClassVar[frozenset[str]]  # arrays that every layer of the family has
    asked: ClassVar[tuple[str, ...]] = ()  # options that a tree of arrays does not record

    def layers(self, model: Any) -> dict[str, Node]:
        """Return the layers of this family by their path in the model."""
        return {path: node for path, node in _arrays.nodes(model).items() if self.marks <= node.keys.keys()}

    def read(self, layer: Node, unstable: Literal["refuse", "keep"]) -> DiagonalSystem:
        """Discretise in double precision whatever the layer's own."""
        return self.stored(layer).system(unstable)

    def stored(self, layer: Node) -> Stored:
        """Return the layer's parameters in the words of our own layers."""
        try:
            return self._stored(layer)
        except InputError:
            raise
        except (ValueError, IndexError, KeyError) as error:
            shapes = ", ".join(f"{name} {layer[name].shape}" for name in layer.keys)
            raise InputError(f"The arrays of a {self.name} layer do not belong together: {shapes}.") from error

    def _stored(self, layer: Node) -> Stored:
        raise NotImplementedError

    def mask(self, layer: Node, keep: Mask) -> None:
        """Silence the other states."""
        raise NotImplementedError

    def shrink(self, layer: Node, keep: Mask) -> None:
        """Remove the other states."""
        raise NotImplementedError

    def refit(self, layer: Node, keep: Mask, C: Complex, D_change: Real) -> None:
        """Refuse: what C means is known here, but not yet how to write it."""
        raise InputError(
            f"ssmprune cannot write a re-fitted C into a {self.name} layer; sp.convert(model, plan) gives our layers "
            "with it, or take a plan without refit."
        )

    def ask(self) -> None:
        """Raise an error that names every option still to be given."""
        if missing := [name for name in self.asked if getattr(self, name) is None]:
            call = f"{type(self).__name__}({', '.join(f'{name}=...' for name in self.asked)})"
            raise InputError(
                f"A tree of {self.name} does not record {', '.join(missing)}. Say what the model was trained with: "
                f"adapter={call}, from ssmprune.adapters.{self.name}."
            )


class Mimo(Foreign):
    """States are rows of B and columns of C; a silent state has a zero row in B."""

    state_axis: ClassVar[dict[str, int]]  # the axis along which an array runs over the states
    input_arrays: ClassVar[tuple[str, ...]] = ("B",)

    def mask(self, layer: Node, keep: Mask) -> None:
        """Set the rows of B to zero; all shapes stay."""
        for name in self.input_arrays:
            rows = layer[name]
            rows[~keep] = 0
            layer[name] = rows

    def shrink(self, layer: Node, keep: Mask) -> None:
        """Cut every array along its states; the two directions of one C lie behind each other."""
        for name, axis in self.state_axis.items():
            if name in layer:
                whole = layer[name]
                layer[name] = whole.compress(np.tile(keep, whole.shape[axis] // len(keep)), axis)


class Grid(Foreign):
    """Every channel has as many states as every other; a silent state has zeros in C, since B is fixed or shared."""

    grid_axes: ClassVar[dict[str, tuple[int, int]]]  # the axes of an array that run over channels and states

    def mask(self, layer: Node, keep: Mask) -> None:
        """Set entries of C to zero; all shapes stay."""
        C = layer["C"]
        grid = np.moveaxis(C, self.grid_axes["C"], (0, 1))  # a view
        grid[~keep.reshape(grid.shape[:2])] = 0
        layer["C"] = C

    def shrink(self, layer: Node, keep: Mask) -> None:
        """Cut the grid, which is possible where every channel keeps as many states."""
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


def from_parts(parts: np.ndarray[Any, Any]) -> Complex:
    """Join real and imaginary parts that lie along the last axis."""
    return joined(parts[..., 0], parts[..., 1])


def directions(C: Complex, n: int) -> Complex:
    """Give both directions of C (H, directions n) an axis of their own: (directions, H, n)."""
    count = C.shape[1] // n if n and C.shape[1] % n == 0 else 1
    return np.stack(np.split(C, count, axis=1))
