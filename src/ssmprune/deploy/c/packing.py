"""Arrays laid out for the loops of `engine/` that read them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .reading import Array, Dense, Embedding, LayerNumbers, Numbers

PANEL = 8  # outputs, or channels, that are computed side by side
WORD = 32  # bits


@dataclass(frozen=True)
class Matrix:
    """A matrix in panels of outputs: weights (panels, inputs, PANEL), bias (panels * PANEL,) or none.

    Whole numbers of `bits` bits have a scale (panels * PANEL,).
    """

    weights: Array
    bias: Array | None
    row: int  # from one step's input to the next
    scale: Array | None = None
    bits: int = 8

    @property
    def outputs(self) -> int:
        """How many numbers a step's output takes, the last panel filled up."""
        return len(self.weights) * PANEL


def padded(size: int) -> int:
    """Return `size` rounded up to whole panels.

    >>> padded(8), padded(9)
    (8, 16)
    """
    return -(-size // PANEL) * PANEL


def padded_row(values: Array, size: int | None = None) -> Array:
    """Return a vector with zeros behind it, up to `size` or to whole panels."""
    return np.pad(values, (0, (size or padded(len(values))) - len(values)))


def matrix(dense: Dense, row: int | None = None) -> Matrix:
    """Return a matrix (outputs, inputs) in panels.

    >>> matrix(Dense(np.ones((3, 5)))).weights.shape
    (1, 5, 8)
    """
    outputs, inputs = dense.weight.shape
    filled = np.zeros((padded(outputs), inputs))
    filled[:outputs] = dense.weight
    panels = filled.reshape(-1, PANEL, inputs).transpose(0, 2, 1)
    bias, scale = (None if values is None else padded_row(values) for values in (dense.bias, dense.scale))
    return Matrix(panels, bias, inputs if row is None else row, scale, dense.bits)


def words(numbers: Array, bits: int) -> Array:
    """Return whole numbers (panels, inputs, PANEL) with those of neighbouring inputs as digits of one word.

    >>> [f"{word:08x}" for word in words(np.array([[[1], [-1], [2], [0], [127]]]), 8).ravel()]
    ['00ff0200', '7f000000']
    """
    panels, inputs, outputs = numbers.shape
    each = WORD // bits
    filled = np.zeros((panels, -(-inputs // each) * each, outputs), np.int64)
    filled[:, :inputs] = numbers
    digits = filled.reshape(panels, -1, each, outputs)
    place = 2 ** (bits * np.arange(each)[::-1])
    joined: Array = (digits * place[:, None]).sum(axis=2) % 2**WORD
    return joined


def drive(layer: LayerNumbers) -> Matrix:
    """Return the real matrix from u to what it feeds into [Re x, Im x] of an S5 layer."""
    scales, row = layer.state_scales, padded(len(layer.D))
    both = np.concatenate([layer.B.real, layer.B.imag])
    if scales is None:
        return matrix(Dense(both), row)
    return matrix(Dense(both, scale=np.tile(scales.B, 2), bits=scales.bits), row)


def readout(layer: LayerNumbers, direction: int) -> Matrix:
    """Return the real matrix from [Re x, Im x] to y of an S5 layer."""
    scales, row = layer.state_scales, padded(2 * len(layer.poles))
    both = np.concatenate([layer.C[direction].real, -layer.C[direction].imag], axis=1)
    if scales is None:
        return matrix(Dense(both), row)
    return matrix(Dense(both, scale=scales.C[direction], bits=scales.bits), row)


@dataclass(frozen=True)
class Groups:
    """The states of an S4D layer: PANEL channels a group, so many slots in each, a state of every channel in a slot."""

    slots: Array  # (groups,)
    modes: Array  # (all slots, 2 + 2 directions, PANEL): pole and weights, real and imaginary parts


def groups(layer: LayerNumbers) -> Groups:
    """Return an S4D layer's states in groups of PANEL neighbouring channels.

    The state is counted in units of B, so that C B is the only weight: x_k / B = pole x_{k-1} / B + u_k.
    """
    assert layer.channel is not None
    counts = padded_row(np.bincount(layer.channel, minlength=len(layer.D)))
    slots = counts.reshape(-1, PANEL).max(axis=1)
    rank = np.arange(len(layer.poles)) - (np.cumsum(counts) - counts)[layer.channel]
    slot = (np.cumsum(slots) - slots)[layer.channel // PANEL] + rank
    parts = [layer.poles, *(layer.C * layer.B)]
    modes = np.zeros((int(slots.sum()), 2 * len(parts), PANEL))
    for i, values in enumerate(parts):
        modes[slot, 2 * i, layer.channel % PANEL] = values.real
        modes[slot, 2 * i + 1, layer.channel % PANEL] = values.imag
    return Groups(slots, modes)


def order_channels_by_states(numbers: Numbers) -> Numbers:
    """Return an S4D model with its features in another order, in which neighbours have about as many states.

    A group has room for as many states as its largest channel has, in every layer; so a channel joins the group that
    it makes least larger. Which feature is which makes no difference to a model.
    """
    channels = [layer.channel for layer in numbers.layers]
    width = numbers.config.width
    counts = np.array([np.bincount(channel, minlength=width) for channel in channels if channel is not None])
    left, order = list(np.argsort(-counts.sum(axis=0), kind="stable")), []
    while left:
        room = counts[:, left[0]]
        for _ in range(min(PANEL, len(left))):
            larger = np.maximum(room[:, None], counts[:, left]).sum(axis=0)
            order.append(left.pop(int(larger.argmin())))
            room = np.maximum(room, counts[:, order[-1]])
    return _reordered(numbers, np.array(order))


def _reordered(numbers: Numbers, order: Array) -> Numbers:
    """Return the same model with feature order[i] in place i."""
    blocks = np.concatenate([part * len(order) + order for part in range(4)])  # of what a retrieval head compares
    encoder, hidden, decoder = numbers.encoder, numbers.hidden, numbers.decoder
    return replace(
        numbers,
        encoder=(
            replace(encoder, vectors=encoder.vectors[:, order])
            if isinstance(encoder, Embedding)
            else _dense(encoder, rows=order)
        ),
        layers=tuple(_reordered_layer(layer, order) for layer in numbers.layers),
        hidden=None if hidden is None else _dense(hidden, columns=blocks),
        decoder=_dense(decoder, columns=order) if hidden is None else decoder,
    )


def _reordered_layer(layer: LayerNumbers, order: Array) -> LayerNumbers:
    channel = np.argsort(order)[layer.channel]
    states = np.argsort(channel, kind="stable")
    return LayerNumbers(
        poles=layer.poles[states],
        B=layer.B[states],
        C=layer.C[:, states],
        D=layer.D[order],
        scale=layer.scale[order],
        shift=layer.shift[order],
        gate=None if layer.gate is None else _dense(layer.gate, order, order),
        value=None if layer.value is None else _dense(layer.value, order, order),
        channel=channel[states],
    )


def _dense(dense: Dense, rows: Array | None = None, columns: Array | None = None) -> Dense:
    if columns is not None:
        dense = replace(dense, weight=dense.weight[:, columns])
    if rows is None:
        return dense
    bias, scale = (None if values is None else values[rows] for values in (dense.bias, dense.scale))
    return replace(dense, weight=dense.weight[rows], bias=bias, scale=scale)
