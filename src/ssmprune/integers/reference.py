"""What a model in whole numbers computes, written to be read: the C engine gives the same numbers to the bit.

Arrays are int64, (batch, length, features). Nothing overflows: each product is below 2^62.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .numbers import Array
from .whole import LARGEST, SIGMOID_BITS, WIDE, Affine, Curve, Factor, Matrix, Parts, States, Whole, WholeLayer


def shift_right(values: Array, shift: Any) -> Array:
    """Return values / 2^shift to the nearest whole number, halves up."""
    shifted: Array = (values + ((np.int64(1) << shift) >> 1)) >> shift
    return shifted


def rescale(values: Array, factor: Factor) -> Array:
    """Return values in another unit."""
    return shift_right(values * factor.numbers, factor.shift)


def product(weights: Array, x: Array) -> Array:
    """Return weights x; all sums are below 2^31, so double precision, which is faster, is exact."""
    return (x.astype(np.float64) @ weights.T.astype(np.float64)).astype(np.int64)


def times(numbers: Parts, x: Array) -> Array:
    """Return complex numbers (n,) times x (2, ..., n), whose first axis is real and imaginary parts."""
    re, im, shift = numbers
    return np.stack([shift_right(re * x[0] - im * x[1], shift), shift_right(re * x[1] + im * x[0], shift)])


def look_up(table: Array, at: Array) -> Array:
    """Return a table's value at at / 2^7, on the line between two of its points."""
    step, rest = at >> 7, at & 127
    value: Array = (table[step] * (128 - rest) + table[step + 1] * rest + 64) >> 7
    return value


def inverse(number: Any) -> Any:
    """Return 2^61 / number for a number from 2^30 to 2^31 - 1."""
    return (2**61 - 1) // number


def root(numbers: Array) -> Array:
    """Return the whole square root of numbers below 2^62, bit by bit."""
    found = np.zeros_like(numbers)
    for bit in reversed(range(31)):
        more = found | (1 << bit)
        found = np.where(more * more <= numbers, more, found)
    return found


def standardised(x: Array, epsilon: int) -> Array:
    """Return x - mean over the root of the sum of (x - mean)^2, with 30 bits after the binary point.

    The differences are cut to 16 bits, by as many as the largest of a step asks for; epsilon comes in the same unit.
    """
    width = x.shape[-1]
    bits = width.bit_length()
    share = ((1 << (29 + bits)) + width // 2) // width
    x = x - shift_right(shift_right(x.sum(axis=-1, keepdims=True), bits) * share, 29)
    top, cut = np.abs(x).max(axis=-1, keepdims=True), np.zeros((*x.shape[:-1], 1), np.int64)
    for _ in range(16):
        cut += (top >> cut) > LARGEST
    x = shift_right(x, cut)
    squares = (x * x).sum(axis=-1, keepdims=True) + (epsilon >> (2 * cut))
    doubled = np.zeros_like(squares)
    for _ in range(30):
        small = squares < 2**60
        squares, doubled = np.where(small, squares << 2, squares), doubled + small
    return shift_right(x * inverse(root(squares)), 31 - doubled)


def mean(x: Array) -> Array:
    """Return the mean over time, with one rounding of a number of 30 bits."""
    steps, doubled = x.shape[1], 0
    while steps < 2**30:
        steps, doubled = 2 * steps, doubled + 1
    return shift_right(shift_right(x.sum(axis=1), 31 - doubled) * inverse(steps), 30)


def recurrence(states: States, v: Array, backward: bool) -> tuple[Array, Array]:
    """Return the states (2, batch, length, n) after each step, and those before it, from what is fed into them."""
    after, before = np.empty_like(v), np.empty_like(v)
    x, steps = np.zeros_like(v[:, :, 0]), range(v.shape[2])
    for k in reversed(steps) if backward else steps:
        before[:, :, k] = x
        x = x + times(states.pole, x) + v[:, :, k]
        after[:, :, k] = x
    return after, before


class Reference:
    """Computes a model's answers, and counts the activations that do not fit their 16 bits."""

    def __init__(self, whole: Whole) -> None:
        self.whole, self.activations, self.saturated = whole, 0, 0

    def __call__(self, x: Array, lengths: Any = None) -> Array:
        """Return logits, as whole numbers, of samples (batch, length, inputs) or tokens (batch, length).

        A model without pooling has (batch, length, outputs) or, with lengths, (all valid steps, outputs).
        """
        if lengths is None:
            features = self.pool(self.steps(x))
        else:
            parts = []
            for row, valid in zip(x, map(int, lengths), strict=True):
                seen = row if self.whole.config.sees_padding else row[:valid]
                parts.append(self.pool(self.steps(seen[None])[:, :valid]).reshape(-1, self.whole.config.width))
            features = np.concatenate(parts)
        return self.head(features)

    def steps(self, x: Array) -> Array:
        """Return the residual stream of all steps after the last layer."""
        whole = self.whole
        if whole.config.tokens:
            factor = whole.encoder.factor
            x = shift_right(whole.encoder.weights[x] * factor.numbers[x][..., None], factor.shift)
        else:
            x = self.matrix(whole.encoder, np.clip(np.asarray(x, np.int64), -LARGEST - 1, LARGEST))
        x = self.clamp(x, WIDE)
        for layer in whole.layers:
            x = self.layer(layer, x)
        return x

    def layer(self, layer: WholeLayer, x: Array) -> Array:
        """Return the residual stream after a block."""
        u = self.clamp(self.affine(layer.enter, x, norm=layer.leave is None))
        y = self.clamp(self.respond(layer, u) + rescale(u, layer.D))
        g = self.gelu(y, layer.gelu)
        if layer.gate is None:
            gated = g
        else:
            weights, to_argument = layer.gate
            value = y if self.whole.config.activation == "half_glu2" else g
            if layer.value is not None:
                value = self.clamp(self.matrix(layer.value, g))
            gated = value * self.sigmoid(self.clamp(self.matrix(weights, g)), to_argument)
        x = self.clamp(x + rescale(gated, layer.residual), WIDE)
        return x if layer.leave is None else self.clamp(self.affine(layer.leave, x, norm=True), WIDE)

    def respond(self, layer: WholeLayer, u: Array) -> Array:
        """Return what the states add to y, in both directions where there are two."""
        states = layer.states
        if states.drive is not None:
            v = np.stack(np.split(product(states.drive, u), 2, axis=-1))
        else:
            v = np.stack([u[..., states.channel], np.zeros_like(u[..., states.channel])])
        v, y = times(states.feed, v), np.zeros_like(u)
        for direction in range(1 + self.whole.config.bidirectional):
            x, before = recurrence(states, v, backward=direction == 1)
            delayed = direction == 1 and self.whole.config.backward_delay == 1
            y = self.clamp(y + self.read(layer, before if delayed else x, direction), WIDE)
        return y

    def read(self, layer: WholeLayer, x: Array, direction: int) -> Array:
        """Return what one direction's states x (2, batch, length, n) add to y."""
        if layer.read is not None:
            return self.matrix(layer.readouts[direction], self.clamp(np.concatenate(rescale(x, layer.read), axis=-1)))
        re, im, shift = layer.weights[direction]
        sums = np.zeros((*x.shape[1:3], self.whole.config.width), np.int64)
        for state, channel in enumerate(() if layer.states.channel is None else layer.states.channel):
            sums[..., channel] += re[state] * x[0, ..., state] - im[state] * x[1, ..., state]
        return shift_right(sums, shift)

    def gelu(self, y: Array, factors: Curve) -> Array:
        """Return gelu(y) in the unit of y."""
        at = np.minimum(rescale(np.abs(y), factors[0]), LARGEST)
        return self.clamp(np.maximum(y, 0) - rescale(look_up(self.whole.gelu, at), factors[1]))

    def sigmoid(self, gate: Array, factor: Factor) -> Array:
        """Return the sigmoid with SIGMOID_BITS after the binary point."""
        value = look_up(self.whole.sigmoid, np.minimum(rescale(np.abs(gate), factor), LARGEST))
        return np.where(gate < 0, 2**SIGMOID_BITS - value, value)

    def affine(self, affine: Affine, x: Array, *, norm: bool) -> Array:
        """Return the stream in another unit or, if this is the norm, normalised."""
        if norm and self.whole.config.norm == "layer":
            x = standardised(x, self.whole.epsilon)
        return rescale(x, affine.factor) + affine.bias

    def pool(self, x: Array) -> Array:
        """Return what the head takes of the stream of all steps."""
        pooling = self.whole.config.pooling
        if pooling != "none":
            x = mean(x) if pooling == "mean" else x[:, -1]
        return self.clamp(rescale(x, self.whole.pool))

    def head(self, features: Array) -> Array:
        """Return the logits of pooled features; those of two documents are compared."""
        whole = self.whole
        if whole.hidden is not None:
            linear, quadratic, weights, gelu = whole.hidden
            a, b = np.split(features, 2)
            parts = [*(rescale(part, linear) for part in (a, b, a - b)), rescale(a * b, quadratic)]
            hidden = self.clamp(self.matrix(weights, self.clamp(np.concatenate(parts, axis=-1))))
            features = self.gelu(hidden, gelu)
        return self.clamp(self.matrix(whole.decoder, features), WIDE)

    def matrix(self, matrix: Matrix, x: Array) -> Array:
        """Return a matrix's output before it is clamped."""
        return rescale(product(matrix.weights, x), matrix.factor) + matrix.bias

    def clamp(self, values: Array, most: int = LARGEST) -> Array:
        """Return values cut to what their type holds, and count those that were."""
        clamped = np.clip(values, -most, most)
        self.activations += values.size
        self.saturated += int((clamped != values).sum())
        return clamped
