"""What a classifier computes with, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...models.config import Config

Array = NDArray[Any]


@dataclass(frozen=True)
class Dense:
    """y = weight x + bias."""

    weight: Array  # (outputs, inputs)
    bias: Array | None = None  # (outputs,)


@dataclass(frozen=True)
class LayerNumbers:
    """One block: x_k = poles x_{k-1} + B u_k and y_k = Re(C x_k) + D u_k between a norm and a gate."""

    poles: Array  # (n,) complex
    B: Array  # (n, H), or (n,) for S4D
    C: Array  # (directions, H, n), or (directions, n); the gain of conjugate pairs is in it
    D: Array  # (H,)
    scale: Array  # (H,), as is shift: the norm's, with a batch norm's statistics
    shift: Array
    gate: Dense | None
    value: Dense | None
    channel: Array | None  # (n,), S4D only


@dataclass(frozen=True)
class Numbers:
    """All that a model computes with."""

    config: Config
    encoder: Dense  # tokens: weight (H, vocabulary)
    layers: tuple[LayerNumbers, ...]
    hidden: Dense | None
    decoder: Dense
