"""A model in whole numbers, from its inputs to its logits: units from calibrated ranges, states that cannot overflow.

A quantity is a whole number times its unit. Weights have 8 bits, activations 16, states and the residual stream 32.
From one unit to another leads a `Factor`: numbers / 2^shift, with one rounding. `reference` says how they are used.

A state obeys x_k = (1 + p) x_{k-1} + d_k + e_k with p its pole minus one, d_k what its inputs feed into it and e_k what
rounding does. Inputs are clamped, so |d_k| <= d; |e_k| <= e; so |x_k| <= (d + e) / (1 - |1 + p|) for every input, by
induction. Its unit is chosen by that bound, in which p, d and e are those of the whole numbers themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from ..errors import InputError
from ..models.classifier import Classifier
from ..models.config import Config
from .numbers import Array, Dense, LayerNumbers, S4DSystem, S5System, numbers_of

MARGIN = 1.3  # of what calibration has seen: the range of 16 bits
LARGEST = 2**15 - 1  # of an activation
WIDE = 2**30 - 1  # the largest number in the residual stream, and of a logit
WIDE_RANGE = 2**26  # what calibration has seen of these, with its margin: the rest is room
STATE = 2**31 - 1
ROUNDING = math.sqrt(2)  # two roundings of a real and an imaginary part, by half a unit at most each
LONGEST_ROW = 2**16 - 1  # the sum of |weights| whose product with inputs of 16 bits fits 32 bits
GELU_STEPS, SIGMOID_STEPS = 32, 16  # of a table for each unit of its argument, so that it reaches 8 and 16
GELU_BITS, SIGMOID_BITS = 17, 15  # after the binary point of a table's values


class Factor(NamedTuple):
    """numbers / 2^shift, for each element of a vector or for all of them."""

    numbers: Array
    shift: Array


class Matrix(NamedTuple):
    """y = factor (weights x) + bias."""

    weights: Array  # (outputs, inputs)
    factor: Factor  # (outputs,)
    bias: Array  # (outputs,)


class Affine(NamedTuple):
    """y = factor x + bias."""

    factor: Factor  # (features,)
    bias: Array


Parts: TypeAlias = tuple[Array, Array, Array]  # real and imaginary parts, and a shift for each or for all
Curve: TypeAlias = tuple[Factor, Factor]  # from |y| to the argument of a table, from its value to y


class States(NamedTuple):
    """x += pole x + feed v, where v is B u, or the u of a state's channel, and pole is less by one than the model's."""

    pole: Parts  # (n,) each: real and imaginary parts, shifts
    feed: Parts
    drive: Array | None  # (2n, H): B's real parts, then its imaginary ones
    channel: Array | None  # (n,), of an S4D model
    bound: Array  # (n,): |x| stays below it, whatever comes
    unit: Array  # (n,)


class WholeLayer(NamedTuple):
    """A block. An S5 layer reads 16 bits of its states, an S4D layer all 32."""

    enter: Affine  # from the stream to u
    states: States
    read: Factor | None  # (n,): from a state to 16 bits
    readouts: tuple[Matrix, ...]  # (H, 2n), one for each direction
    weights: tuple[Parts, ...]  # of S4D, (n,) each: real and imaginary parts, shift
    D: Factor  # (H,)
    gelu: Curve
    gate: tuple[Matrix, Factor] | None  # with what leads from its output to the argument of the sigmoid's table
    value: Matrix | None
    residual: Factor  # from what the gate lets through to the stream
    leave: Affine | None  # a norm that comes last


class Units(NamedTuple):
    """What the whole numbers at both ends of a model stand for: an input is scale * sample + offset."""

    scale: Array  # (inputs,), none for tokens
    offset: Array
    logit: float

    def samples(self, x: Array) -> Array:
        """Return inputs of 16 bits; tokens stay as they are."""
        if not len(self.scale):
            return x
        return np.clip(np.rint((x - self.offset) / self.scale), -LARGEST, LARGEST).astype(np.int16)


@dataclass(frozen=True)
class Whole:
    """All that a model computes with, in whole numbers."""

    config: Config
    units: Units
    encoder: Matrix
    layers: tuple[WholeLayer, ...]
    pool: Factor  # from the stream to pooled features
    hidden: tuple[Factor, Factor, Matrix, Curve] | None  # from features, and from their products, to what it reads
    decoder: Matrix
    gelu: Array  # tables
    sigmoid: Array
    epsilon: int  # of a layer norm, times the width, in squared units of the stream; at least 1: nothing is over 0


def in_whole_numbers(model: Classifier) -> bool:
    """Tell whether a model computes in whole numbers: it was quantised so, and its weights are still those."""
    return model.grid is not None and model.grid.ranges is not None and model.whole_numbers() is not None


def whole_of(model: Classifier) -> Whole:
    """Return a model in whole numbers; it must be quantised with arithmetic="integer"."""
    ranges = model.grid and model.grid.ranges
    if not ranges or not in_whole_numbers(model):
        raise InputError('This model has no ranges for whole numbers; quantize(model, arithmetic="integer", data=...).')
    return _Deriver(model, ranges.largest).derive(np.array(ranges.scale), np.array(ranges.offset))


class _Deriver:
    """Turns a model's numbers into whole ones."""

    def __init__(self, model: Classifier, largest: Mapping[str, float]) -> None:
        self.numbers, self.largest = numbers_of(model), largest
        self.config = self.numbers.config
        self.stream = self._unit("stream", WIDE_RANGE)

    def derive(self, scale: Array, offset: Array) -> Whole:
        numbers, config = self.numbers, self.config
        layers = tuple(self._layer(f"layers.{i}", layer) for i, layer in enumerate(numbers.layers))
        pooled, logit = self._unit("pooled"), self._unit("logits", 2**24)
        hidden = None
        if numbers.hidden is not None:
            unit, features = self._unit("joint"), self._unit("hidden")
            reads = factor(pooled / unit), factor(pooled**2 / unit)
            hidden = *reads, matrix(numbers.hidden, unit, features), gelu_factors(features)
            pooled = features
        encoder = self._embedding() if config.tokens else matrix(fold(numbers.encoder, scale, offset), 1, self.stream)
        epsilon = min(config.width * config.norm_eps / self.stream**2, 2.0**61)
        return Whole(
            config=config,
            units=Units(scale, offset, logit),
            encoder=encoder,
            layers=layers,
            pool=factor(self.stream / self._unit("pooled")),
            hidden=hidden,
            decoder=matrix(numbers.decoder, pooled, logit),
            gelu=gelu_table(exact=config.exact_gelu),
            sigmoid=sigmoid_table(),
            epsilon=max(1, int(epsilon)),
        )

    def _unit(self, name: str, top: int = LARGEST) -> float:
        if name not in self.largest:
            raise InputError(f"The model has no range for {name}; quantise it again.")
        return MARGIN * max(self.largest[name], 1e-6) / top

    def _embedding(self) -> Matrix:
        """Return a row of weights and a factor for each token."""
        embedding = self.numbers.encoder
        assert embedding.scale is not None
        weights = embedding.weight.astype(np.int64)
        return Matrix(weights, factor(embedding.scale / self.stream), np.zeros(len(weights), int))

    def _layer(self, path: str, layer: LayerNumbers) -> WholeLayer:
        """Return one block; what a layer norm leaves has 30 bits after the binary point, over the root of the width."""
        config, width = self.config, self.config.width
        u, y = self._unit(f"{path}.u"), self._unit(f"{path}.y")
        standard = 2.0**-30 * math.sqrt(width) if config.norm == "layer" else self.stream
        plain = affine(np.full(width, self.stream / u), np.zeros(width))
        gate, value, gated = None, None, y
        if layer.gate is not None:
            unit, gated = self._unit(f"{path}.gate"), y / 2**SIGMOID_BITS
            gate = matrix(layer.gate, y, unit), factor(unit * SIGMOID_STEPS * 2**7)
        if layer.value is not None:
            unit = self._unit(f"{path}.value")
            value, gated = matrix(layer.value, y, unit), unit / 2**SIGMOID_BITS
        read, system, states = None, layer.system, states_of(path, layer.system, u)
        readouts: tuple[Matrix, ...] = ()
        weights: tuple[Parts, ...] = ()
        if isinstance(system, S5System):
            unit = self._unit(f"{path}.state")
            read = factor(states.unit / unit)
            readouts = tuple(matrix(readout, unit, y) for readout in system.readouts)
        else:
            weights = tuple(_weights(row * states.unit / y, system.channel, width) for row in system.weights)
        return WholeLayer(
            enter=affine(layer.scale * standard / u, layer.shift / u) if config.prenorm else plain,
            states=states,
            read=read,
            readouts=readouts,
            weights=weights,
            D=factor(layer.D * u / y),
            gelu=gelu_factors(y),
            gate=gate,
            value=value,
            residual=factor(gated / self.stream),
            leave=None if config.prenorm else affine(layer.scale * standard / self.stream, layer.shift / self.stream),
        )


def factor(ratio: Array | float, most: int = 2**31 - 1) -> Factor:
    """Return whole numbers and the one shift with which they come closest to `ratio`, numbers / 2^shift.

    >>> numbers, shift = factor(0.75)
    >>> int(numbers), int(shift)
    (1610612736, 31)
    """
    top = float(np.max(np.abs(ratio), initial=0.0))
    if not top < 2**29:
        raise InputError(f"Two units differ by a factor of {top:.3g}: too much for 32 bits; calibrate on other data.")
    shift = min(62, math.floor(math.log2(most / top))) if top > 0 else 1
    return Factor(np.rint(np.asarray(ratio) * 2.0**shift).astype(np.int64), np.array(shift))


def matrix(dense: Dense, inputs: float, outputs: float) -> Matrix:
    """Return a matrix between two units."""
    assert dense.scale is not None
    weights, scale = short_rows(dense.weight, dense.scale)
    bias = np.zeros(len(weights)) if dense.bias is None else dense.bias
    return Matrix(weights, *affine(scale * inputs / outputs, bias / outputs))


def affine(ratio: Array, shift: Array) -> Affine:
    """Return a norm; where a feature hardly varies, factor and bias are large and nearly cancel."""
    return Affine(factor(ratio), np.clip(np.rint(shift), -WIDE, WIDE).astype(np.int64))


def short_rows(weights: Array, scale: Array) -> tuple[Array, Array]:
    """Return weights whose products with inputs of 16 bits add up within 32 bits: wide matrices lose a bit or two."""
    numbers, scale = np.rint(weights).astype(np.int64), np.asarray(scale)
    while np.abs(numbers).sum(axis=1).max(initial=0) > LONGEST_ROW:
        weights, scale = weights / 2, scale * 2
        numbers = np.rint(weights).astype(np.int64)
    return numbers, scale


def fold(encoder: Dense, scale: Array, offset: Array) -> Dense:
    """Return an encoder that takes raw samples; if their scales differ, its rows are rounded again."""
    assert encoder.scale is not None
    assert encoder.bias is not None
    weights = encoder.weight * encoder.scale[:, None]
    bias, folded = encoder.bias + weights @ offset, weights * scale
    if (scale == scale[0]).all():
        return Dense(encoder.weight, bias, encoder.scale * scale[0])
    rows = np.abs(folded).max(axis=1) / 127
    rows[rows == 0] = 1.0
    return Dense(np.rint(folded / rows[:, None]), bias, rows)


def states_of(path: str, system: S5System | S4DSystem, u: float) -> States:
    """Return the states of a layer whose inputs have the unit u, in units by which no input makes them overflow."""
    poles, n, drive, channel = system.poles, len(system.poles), None, None
    if isinstance(system, S5System):
        assert system.factor is not None
        assert system.drive.scale is not None
        drive, scale = short_rows(system.drive.weight, system.drive.scale)
        feed, most = system.factor * scale[:n] * u, LARGEST * np.abs(drive[:n] + 1j * drive[n:]).sum(axis=1)
    else:
        channel, feed, most = system.channel, np.full(n, u + 0j), np.full(n, float(LARGEST))
    slow = -np.expm1(np.log(np.maximum(np.abs(poles), 1e-300)))
    if (slow <= 0).any():
        raise InputError(f"{path}.ssm has poles on or outside the unit circle; whole numbers need stable poles.")
    unit = np.abs(feed) * most / slow / 2**30
    unit[unit == 0] = 1.0  # of states that hear nothing
    pole, fed = _complex(poles - 1), _complex(feed / unit)
    bound = _bound(pole, fed, most)
    if not (bound <= STATE).all():
        raise InputError(
            f"{path}.ssm has states that decay by {slow.min():.1e} in a step: too slow for 32 bits. "
            'Prune them, or keep arithmetic="float".'
        )
    return States(pole, fed, drive, channel, bound, unit)


def _bound(pole: Parts, feed: Parts, most: Array) -> Array:
    """Return what |x| cannot exceed; 1 - |1 + p|^2 is exact, in whole numbers of any size."""
    bounds = []
    for re, im, shift, feed_re, feed_im, feed_shift, size in zip(*pole, *feed, most, strict=True):
        one = 1 << int(shift)
        missing = one * one - (one + int(re)) ** 2 - int(im) ** 2  # (1 - |1 + p|^2) 4^shift
        slow = missing / one**2
        fed = math.hypot(feed_re, feed_im) / 2.0 ** int(feed_shift) * size
        bounds.append((fed + ROUNDING) * (1 + math.sqrt(1 - slow)) / slow if missing > 0 else math.inf)
    return np.array(bounds) * (1 + 1e-9)  # for the roundings of this very computation


def _complex(values: Array) -> Parts:
    """Return real and imaginary parts with 30 bits and a shift for each state: a small number keeps its digits."""
    top = np.maximum(np.maximum(np.abs(values.real), np.abs(values.imag)), 2.0**-32)
    shift = np.minimum(np.floor(np.log2((2**30 - 1) / top)), 62).astype(np.int64)
    if (shift < 1).any():
        raise InputError("A state's input is too large for its unit; calibrate on other data.")
    return _parts(values, shift)


def _weights(ratio: Array, channel: Array, width: int) -> Parts:
    """Return the weights of an S4D layer's states, such that products with states add up within 63 bits."""
    total = np.bincount(channel, np.abs(ratio.real) + np.abs(ratio.imag), width)
    return _parts(ratio, factor(total, 2**30).shift)


def _parts(values: Array, shift: Array) -> Parts:
    re, im = (np.rint(part * 2.0**shift).astype(np.int64) for part in (values.real, values.imag))
    return re, im, shift


def gelu_factors(unit: float) -> Curve:
    """Return what leads from |y| to the argument of the table, 7 bits finer than its steps, and back to y."""
    return factor(unit * GELU_STEPS * 2**7), factor(2.0**-GELU_BITS / unit)


def gelu_table(*, exact: bool) -> Array:
    """Return a (1 - Phi(a)), which gelu(x) = max(x, 0) - |x| (1 - Phi(|x|)) looks up, for a from 0 to 8.

    Between two steps h of 1/32 a line errs by at most h^2/8 max|gelu''| = 1e-4.
    """
    points = [step / GELU_STEPS for step in range(257)]
    slope = math.sqrt(2 / math.pi)
    exactly = [math.erfc(a / math.sqrt(2)) / 2 for a in points]
    by_tanh = [(1 - math.tanh(slope * (a + 0.044715 * a**3))) / 2 for a in points]
    table: Array = np.rint(np.multiply(points, exactly if exact else by_tanh) * 2**GELU_BITS).astype(np.int64)
    return table


def sigmoid_table() -> Array:
    """Return 1 / (1 + exp(-a)) for a from 0 to 16, where a line between two steps errs by at most 5e-5."""
    return np.rint([2**SIGMOID_BITS / (1 + math.exp(-step / SIGMOID_STEPS)) for step in range(257)]).astype(np.int64)
