"""Weights on a grid: whole numbers and a scale for every row, for models of 8 or 4 bits.

A model on a grid is an ordinary model whose large weights are whole multiples of their row's scale, so it evaluates,
streams and exports like any other; `Grid` remembers the scales, and files hold the whole numbers. Poles, steps, D,
norms and biases stay as they are: they are a hundredth of the numbers, and poles do not survive rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .s4d import S4DLayer

if TYPE_CHECKING:
    from .classifier import Classifier

Arrays: TypeAlias = dict[str, NDArray[Any]]
SCALE = ".scale"  # what the name of a parameter's scales adds to its own

BITS = (8, 4)
SHORT = 8  # weights in a row that 4 bits make no smaller than its scale is


@dataclass(frozen=True)
class Grid:
    """How many bits a weight has, and by parameter name the scale of every row."""

    bits: int
    scales: dict[str, Tensor]  # (rows, 1), (n, 1, 1) for B, (directions, H, 1, 1) for C, (directions, H) for S4D's C


def bits_of(name: str, shape: tuple[int, ...], bits: int) -> int:
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


def scale_shapes(model: Classifier) -> dict[str, tuple[int, ...]]:
    """Return the parameters that go on a grid, with the shapes of their scales."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, parameter in model.named_parameters():
        owner, _, leaf = name.rpartition(".")
        layer = model.get_submodule(owner)
        if isinstance(layer, S4DLayer):
            if leaf == "C":
                shapes[name] = (len(parameter), len(layer.D))
        elif leaf == "B":
            shapes[name] = (len(parameter), 1, 1)
        elif leaf == "C":
            shapes[name] = (*parameter.shape[:2], 1, 1)
        elif leaf == "weight" and parameter.ndim == 2:
            shapes[name] = (len(parameter), 1)
    return shapes


def spread_scale(model: Classifier, name: str, scale: Tensor) -> Tensor:
    """Return a scale in a shape that multiplies its parameter: S4D's C has a scale for each channel of a direction."""
    layer = model.get_submodule(name.rpartition(".")[0])
    return scale[:, layer.channel, None] if isinstance(layer, S4DLayer) else scale


def cut_scales(model: Classifier, keep: Mapping[str, NDArray[np.bool_]]) -> None:
    """Take the scales of states that were removed out of a model's grid: those of S5's B, one for each state."""
    if model.grid is None:
        return
    scales = dict(model.grid.scales)
    for path, kept in keep.items():
        scale = scales.get(f"{path}.B")
        if scale is not None:
            scales[f"{path}.B"] = scale[torch.from_numpy(kept.copy()).to(scale.device)]
    model.grid = Grid(model.grid.bits, scales)


def whole_numbers(model: Classifier) -> dict[str, Tensor] | None:
    """Return the int8 numbers of the parameters on a grid; None where there is no grid, or the weights have left it.

    A refit and training take weights off the grid; the model is then an ordinary one again.
    """
    if model.grid is None:
        return None
    numbers, shapes = {}, scale_shapes(model)
    for name, scale in model.grid.scales.items():
        if tuple(scale.shape) != shapes[name]:
            return None
        weights, spread = model.get_parameter(name).detach(), spread_scale(model, name, scale)
        rounded = (weights / spread).round()
        largest = largest_number(bits_of(name, tuple(weights.shape), model.grid.bits))
        if bool((rounded.abs() > largest).any()) or not torch.equal(rounded * spread, weights):
            return None
        numbers[name] = rounded.to(torch.int8)
    return numbers


def to_file(model: Classifier, tensors: Arrays) -> tuple[Arrays, str | None]:
    """Return the tensors of a file, whole numbers and scales for weights on a grid, and how many bits those have."""
    numbers = whole_numbers(model)
    if numbers is None or model.grid is None:
        return tensors, None
    stored = dict(tensors)
    for name, values in numbers.items():
        stored[name] = pack(values.cpu().numpy(), bits_of(name, tuple(values.shape), model.grid.bits))
        stored[name + SCALE] = model.grid.scales[name].cpu().numpy()
    return stored, str(model.grid.bits)


def from_file(model: Classifier, stored: Arrays, text: str) -> tuple[Arrays, Grid]:
    """Return the weights that a file's whole numbers and scales stand for, and their grid; `model` says the shapes."""
    if text not in map(str, BITS):
        raise InputError(f"the weights have {text!r:.20} bits, expected {' or '.join(map(str, BITS))}")
    tensors, scales, bits = dict(stored), {}, int(text)
    for name, shape in scale_shapes(model).items():
        numbers, scale = stored.get(name), tensors.pop(name + SCALE, None)
        if numbers is None or scale is None or scale.shape != shape or scale.dtype not in (np.float32, np.float64):
            raise InputError(f"{name} needs whole numbers and scales {shape}")
        if not (np.isfinite(scale) & (scale > 0)).all():
            raise InputError(f"the scales of {name} must be positive and finite")
        full = tuple(model.get_parameter(name).shape)
        numbers = unpack(numbers, full, bits_of(name, full, bits), name)
        spread = scale
        if scale.ndim == 2 and numbers.ndim == 3:  # S4D's C: a scale for each channel of a direction
            channel = stored[name.removesuffix("C") + "channel"]
            if channel.shape != numbers.shape[1:2] or (channel < 0).any() or (channel >= shape[1]).any():
                raise InputError(f"the channels of {name} do not fit it")
            spread = scale[:, channel, None]
        tensors[name] = numbers.astype(scale.dtype) * spread
        scales[name] = torch.from_numpy(scale.copy())
    return tensors, Grid(bits, scales)


def pack(numbers: NDArray[np.int8], bits: int) -> NDArray[Any]:
    """Return whole numbers as they are stored: int8, or two of 4 bits in a byte, the first in the lower half.

    >>> pack(np.array([[-7, 7, 1]], np.int8), 4).tolist()
    [241, 137]
    """
    if bits == 8:
        return numbers
    halves = np.append(numbers.ravel() + 8, [8] * (numbers.size % 2)).astype(np.uint8)
    return halves[::2] + 16 * halves[1::2]


def unpack(stored: NDArray[Any], shape: tuple[int, ...], bits: int, name: str) -> NDArray[np.int8]:
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
