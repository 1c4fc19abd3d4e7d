"""What a forward pass must compute, counted from the config: the yardstick beside every measured time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ssmprune.models.config import Config
from ssmprune.models.s4d_kernel import fast_length


class Product(NamedTuple):
    """A matrix product (rows, inner) x (inner, outer) of a forward pass."""

    part: str
    rows: int
    inner: int
    outer: int


def products(config: Config, batch: int, length: int) -> Iterator[Product]:
    """Yield the matrix products of a forward pass over `batch` sequences (documents, for retrieval).

    A stored state is two real numbers, so that B u is (H, 2n) and C x is (2n, H) for each direction. An S4D layer has
    no such products; what it does instead is in `multiply_adds`.
    """
    width, steps = config.width, batch * length
    if not config.tokens:  # an embedding looks its rows up
        yield Product("encoder", steps, config.inputs, width)
    for n in config.states:
        if config.family == "s5":
            yield Product("B u", steps, width, 2 * n)
            yield from [Product("C x", steps, 2 * n, width)] * _directions(config)
        gates = {"gelu": 0, "full_glu": 2}.get(config.activation, 1)
        yield from [Product("GLU", steps, width, width)] * gates
    answers = steps if config.pooling == "none" else batch
    if config.retrieval:
        answers = batch // 2
        yield Product("head", answers, 4 * width, width)
    yield Product("decoder", answers, width, config.outputs)


def multiply_adds(config: Config, batch: int, length: int) -> dict[str, int]:
    """Return the multiply-adds of a forward pass over `batch` sequences, by part.

    Counted are the matrix products and, for S4D, the convolution: per layer the kernel's product (2 n per step and
    direction), its two tables of sqrt(length) powers per state and their weights (4 per complex product), and
    Fourier transforms of N points (5/4 N log2 N each, two per sequence and channel and one per kernel) with the
    product of the spectra. Left out is what is elementwise everywhere: norms, activations, D u, and the recurrence
    of S5 (4 n per step and direction).

    >>> text = Config("s5", inputs=129, outputs=2, width=256, states=(96,) * 6, tokens=True, bidirectional=True)
    >>> multiply_adds(text, 1, 1)
    {'B u': 294912, 'C x': 589824, 'GLU': 393216, 'decoder': 512}
    """
    counts: dict[str, int] = {}
    for product in products(config, batch, length):
        counts[product.part] = counts.get(product.part, 0) + product.rows * product.inner * product.outer
    if config.family == "s4d":
        counts |= _convolutions(config, batch, length)
    return counts


def _convolutions(config: Config, batch: int, length: int) -> dict[str, int]:
    states, directions = sum(config.states), _directions(config)
    root = math.isqrt(length - 1) + 1
    size = fast_length(2 * length - 1)
    transform = math.ceil(1.25 * size * math.log2(size))
    spectra = config.depth * config.width * ((2 * batch + 1) * transform + batch * 4 * (size // 2 + 1))
    return {"kernel": states * (2 * directions * length + 4 * (2 + directions) * root), "convolution": spectra}


def _directions(config: Config) -> int:
    return 2 if config.bidirectional else 1
