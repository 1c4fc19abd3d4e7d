"""Weights as whole numbers with a scale for each row, in 8 or 4 bits: a model's grid, and how files hold it.

A model on a grid is an ordinary model whose large weights are whole multiples of their row's scale, so it evaluates,
streams and exports like any other; `Grid` remembers the scales, and files hold the whole numbers. Poles, steps, D,
norms and biases stay as they are: they are a hundredth of the numbers, and poles do not survive rounding.

Checkpoints are read with a grid, so this module stands before `models`: it knows arrays by their names in a model, no
model. A layer that has an array `channel` is an S4D layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..arrays import Mask
from ..errors import InputError

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Shape: TypeAlias = tuple[int, ...]

BITS = (8, 4)
SCALE = ".scale"  # the scales of a parameter are stored under its name with this ending
SHORT = 8  # rows this short stay at 8 bits: the scale would eat the saving


@dataclass(frozen=True)
class Ranges:
    """What whole numbers in the place of activations stand for: see `integers`."""

    largest: Mapping[str, float]  # of each kind of activation, as calibration has seen it
    scale: tuple[float, ...]  # an input is scale * raw + offset, where raw is a whole number of 16 bits
    offset: tuple[float, ...]


def parse_ranges(values: Any, inputs: int) -> Ranges:
    """Return the ranges that a file's JSON holds for a model with so many inputs."""
    try:
        largest = {str(name): float(value) for name, value in values["largest"].items()}
        scale, offset = (tuple(map(float, values[name])) for name in ("scale", "offset"))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"its ranges are not readable ({error})") from error
    if len(scale) != inputs or len(offset) != inputs or not all(map(math.isfinite, (*largest.values(), *offset))):
        raise InputError(f"its ranges must be finite, and inputs must have {inputs} scales and offsets")
    if not all(0 < value < math.inf for value in scale) or min(largest.values(), default=0.0) < 0:
        raise InputError("its ranges and scales must be positive")
    return Ranges(largest, scale, offset)


@dataclass(frozen=True)
class Grid:
    """How many bits a weight has, and the scales by parameter name, in the shapes of `scale_shapes`."""

    bits: int
    scales: Arrays
    ranges: Ranges | None = None  # of a model that computes in whole numbers

    def whole_numbers(self, tensors: Arrays) -> dict[str, NDArray[np.int8]] | None:
        """Return the whole numbers of a model's weights; None if the weights have left the grid.

        A re-fit and training take weights off the grid; the model is then an ordinary one again.
        """
        numbers, shapes = {}, scale_shapes({name: tensor.shape for name, tensor in tensors.items()})
        for name, scale in self.scales.items():
            if scale.shape != shapes[name]:
                return None
            weights, spread = tensors[name], spread_scale(name, scale, tensors)
            rounded = np.rint(weights / spread)
            largest = largest_number(bits_of(name, weights.shape, self.bits))
            if (np.abs(rounded) > largest).any() or not np.array_equal(rounded * spread, weights):
                return None
            numbers[name] = rounded.astype(np.int8)
        return numbers

    def keep_states(self, keep: Mapping[str, Mask]) -> Grid:
        """Return the grid of a model of which only some states of each layer are left; S5's B has a scale for each."""
        scales = dict(self.scales)
        for path, kept in keep.items():
            if f"{path}.B" in scales:
                scales[f"{path}.B"] = scales[f"{path}.B"][kept]
        return replace(self, scales=scales, ranges=None)  # fewer states, other ranges

    def store(self, tensors: Arrays) -> dict[str, NDArray[Any]] | None:
        """Return a model's tensors as a file holds them, whole numbers beside scales; None off the grid."""
        numbers = self.whole_numbers(tensors)
        if numbers is None:
            return None
        packed = {name: pack(values, bits_of(name, values.shape, self.bits)) for name, values in numbers.items()}
        return {**tensors, **packed, **{name + SCALE: scale for name, scale in self.scales.items()}}


def restore(stored: Arrays, shapes: Mapping[str, Shape], bits_text: str) -> tuple[dict[str, NDArray[Any]], Grid]:
    """Return the weights that the whole numbers and scales of a file stand for, and their grid.

    shapes: those of the model's tensors, which the numbers of 4 bits do not tell.
    """
    if bits_text not in map(str, BITS):
        raise InputError(f"the weights have {bits_text!r:.20} bits, expected {' or '.join(map(str, BITS))}")
    tensors, scales, bits = dict(stored), {}, int(bits_text)
    for name, shape in scale_shapes(shapes).items():
        numbers, scale = stored.get(name), tensors.pop(name + SCALE, None)
        if numbers is None or scale is None or scale.shape != shape or scale.dtype not in (np.float32, np.float64):
            raise InputError(f"{name} needs whole numbers and scales {shape}")
        if not (np.isfinite(scale) & (scale > 0)).all():
            raise InputError(f"the scales of {name} must be positive and finite")
        numbers = unpack(numbers, shapes[name], bits_of(name, shapes[name], bits), name)
        if (name_of_channel := _channel_name(name)) in shapes:
            channel = stored.get(name_of_channel)
            if channel is None or channel.dtype != np.int64 or channel.shape != numbers.shape[1:2]:
                raise InputError(f"the channels of {name} do not fit it")
            if (channel < 0).any() or (channel >= shape[1]).any():
                raise InputError(f"the channels of {name} do not fit it")
        tensors[name] = numbers.astype(scale.dtype) * spread_scale(name, scale, stored)
        scales[name] = scale.copy()
    return tensors, Grid(bits, scales)


def scale_shapes(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the parameters that go on a grid, with the shapes of their scales, from the shapes of a model's tensors.

    Dense layers and embeddings have a scale for each row, S5 one for each state of B and each row of C, S4D one for
    each channel of C, and each direction.

    >>> scale_shapes({"layers.0.ssm.B": (4, 3, 2), "layers.0.ssm.C": (1, 3, 4, 2), "layers.0.ssm.D": (3,)})
    {'layers.0.ssm.B': (4, 1, 1), 'layers.0.ssm.C': (1, 3, 1, 1)}
    """
    found: dict[str, Shape] = {}
    for name, shape in shapes.items():
        owner, _, leaf = name.rpartition(".")
        if _channel_name(name) in shapes:
            if leaf == "C":
                found[name] = (shape[0], *shapes[f"{owner}.D"])
        elif leaf == "B":
            found[name] = (shape[0], 1, 1)
        elif leaf == "C":
            found[name] = (*shape[:2], 1, 1)
        elif leaf == "weight" and len(shape) == 2:
            found[name] = (shape[0], 1)
    return found


def spread_scale(name: str, scale: NDArray[Any], tensors: Arrays) -> NDArray[Any]:
    """Return a scale in a shape that multiplies its parameter: S4D's C has a scale for each channel of a direction."""
    channel = tensors.get(_channel_name(name))
    return scale if channel is None else scale[:, channel, None]


def _channel_name(name: str) -> str:
    return f"{name.rpartition('.')[0]}.channel"


def bits_of(name: str, shape: Shape, bits: int) -> int:
    """Return the bits of one parameter; some keep 8, where 4 would save next to nothing and cost much.

    Those are encoder and head, for they are small and all the signal passes them, and dense layers of short rows.

    >>> bits_of("encoder.weight", (64, 9), 4), bits_of("layers.0.gate.weight", (64, 64), 4)
    (8, 4)
    >>> bits_of("layers.0.gate.weight", (8, 8), 4)
    8
    """
    short = name.endswith(".weight") and shape[-1] <= SHORT
    return bits if name.startswith("layers.") and not short else max(bits, 8)


def largest_number(bits: int) -> int:
    """Return the largest whole number on a symmetric grid.

    >>> largest_number(8), largest_number(4)
    (127, 7)
    """
    return int(2 ** (bits - 1) - 1)


def pack(numbers: NDArray[np.int8], bits: int) -> NDArray[Any]:
    """Return whole numbers as they are stored: int8, or two of 4 bits in a byte, the first in the lower half.

    >>> pack(np.array([[-7, 7, 1]], np.int8), 4).tolist()
    [241, 137]
    """
    if bits == 8:
        return numbers
    halves = np.append(numbers.ravel() + 8, [8] * (numbers.size % 2)).astype(np.uint8)
    return halves[::2] + 16 * halves[1::2]


def unpack(stored: NDArray[Any], shape: Shape, bits: int, name: str) -> NDArray[np.int8]:
    """Return the int8 numbers that `pack` stored.

    >>> unpack(pack(np.array([[-7, 7, 1]], np.int8), 4), (1, 3), 4, "C").tolist()
    [[-7, 7, 1]]
    """
    count = int(np.prod(shape))
    kind, size = (np.int8, shape) if bits == 8 else (np.uint8, ((count + 1) // 2,))
    if stored.dtype != kind or stored.shape != size:
        raise InputError(f"{name} needs {np.dtype(kind)} {size}; it is {stored.dtype} {stored.shape}")
    if bits == 8:
        return stored
    halves = np.stack([stored % 16, stored // 16], axis=1).ravel()[:count]
    return (halves.astype(np.int8) - 8).reshape(shape)
