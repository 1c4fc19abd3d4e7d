"""Arrays laid out for the loops of `engine/` that read them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...integers.numbers import Array, Dense, LayerNumbers, Numbers, S4DSystem

ALL = slice(None)
PANEL = 8  # outputs, or channels, that are computed side by side
WORD = 32  # bits


def padded(size: int) -> int:
    """Return `size` rounded up to whole panels.

    >>> padded(8), padded(9)
    (8, 16)
    """
    return -(-size // PANEL) * PANEL


def padded_row(values: Array, size: int | None = None) -> Array:
    """Return a vector with zeros behind it, up to `size` or to whole panels."""
    return np.pad(values, (0, (size or padded(len(values))) - len(values)))


def panels(weight: Array) -> Array:
    """Return a matrix (outputs, inputs) as panels (panels, inputs, PANEL) of outputs, the last one filled up.

    >>> panels(np.ones((3, 5))).shape
    (1, 5, 8)
    """
    outputs, inputs = weight.shape
    filled = np.pad(weight, ((0, padded(outputs) - outputs), (0, 0)))
    return filled.reshape(-1, PANEL, inputs).transpose(0, 2, 1)


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


def groups(system: S4DSystem, width: int) -> tuple[Array, Array]:
    """Return an S4D layer's states in groups of PANEL neighbouring channels, a state of every channel in a slot.

    First how many slots each group has, (groups,), then the real and imaginary parts of pole and weights:
    (all slots, 2 + 2 directions, PANEL).
    """
    channel = system.channel
    counts = np.bincount(channel, minlength=padded(width))
    slots = counts.reshape(-1, PANEL).max(axis=1)
    rank = np.arange(len(channel)) - (np.cumsum(counts) - counts)[channel]
    slot = (np.cumsum(slots) - slots)[channel // PANEL] + rank
    parts = [system.poles, *system.weights]
    modes = np.zeros((int(slots.sum()), 2 * len(parts), PANEL))
    for i, values in enumerate(parts):
        modes[slot, 2 * i, channel % PANEL] = values.real
        modes[slot, 2 * i + 1, channel % PANEL] = values.imag
    return slots, modes


def order_channels_by_states(numbers: Numbers) -> Numbers:
    """Return an S4D model with its features in another order, in which neighbours have about as many states.

    A group has room for as many states as its largest channel has, in every layer; so a channel joins the group that
    it makes least larger. Which feature is which makes no difference to a model.
    """
    systems = [layer.system for layer in numbers.layers if isinstance(layer.system, S4DSystem)]
    counts = np.array([np.bincount(system.channel, minlength=numbers.config.width) for system in systems])
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
        encoder=_dense(encoder, columns=order) if numbers.config.tokens else _dense(encoder, rows=order),
        layers=tuple(_reordered_layer(layer, order) for layer in numbers.layers),
        hidden=None if hidden is None else _dense(hidden, columns=blocks),
        decoder=_dense(decoder, columns=order) if hidden is None else decoder,
    )


def _reordered_layer(layer: LayerNumbers, order: Array) -> LayerNumbers:
    system = layer.system
    assert isinstance(system, S4DSystem)
    channel = np.argsort(order)[system.channel]
    states = np.argsort(channel, kind="stable")
    return LayerNumbers(
        S4DSystem(system.poles[states], system.weights[:, states], channel[states]),
        D=layer.D[order],
        scale=layer.scale[order],
        shift=layer.shift[order],
        gate=None if layer.gate is None else _dense(layer.gate, order, order),
        value=None if layer.value is None else _dense(layer.value, order, order),
    )


def _dense(dense: Dense, rows: Array | slice = ALL, columns: Array | slice = ALL) -> Dense:
    bias, scale = (None if values is None else values[rows] for values in (dense.bias, dense.scale))
    return replace(dense, weight=dense.weight[rows][:, columns], bias=bias, scale=scale)
