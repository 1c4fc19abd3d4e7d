"""What a classifier computes with, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...models.config import Config

Array = NDArray[Any]


@dataclass(frozen=True)
class Dense:
    """y = scale (weight x) + bias; with a scale, the weights are whole numbers of so many bits."""

    weight: Array  # (outputs, inputs)
    bias: Array | None = None  # (outputs,)
    scale: Array | None = None  # (outputs,)
    bits: int = 8


@dataclass(frozen=True)
class Embedding:
    """Features of each token: scale vector; with a scale, the vectors are whole numbers of 8 bits."""

    vectors: Array  # (vocabulary, H)
    scale: Array | None = None  # (vocabulary,)


@dataclass(frozen=True)
class StateScales:
    """What B and C of an S5 layer are multiplied by where they are whole numbers."""

    bits: int
    B: Array  # (n,)
    factor: Array  # (n,) complex: the discretisation's, for B
    C: Array  # (directions, H); the gain of conjugate pairs is in it


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
    state_scales: StateScales | None = None  # B and C are then whole numbers


@dataclass(frozen=True)
class Numbers:
    """All that a model computes with."""

    config: Config
    encoder: Dense | Embedding
    layers: tuple[LayerNumbers, ...]
    hidden: Dense | None
    decoder: Dense
    bits: int | None = None  # of the layers' weights; None: floats
