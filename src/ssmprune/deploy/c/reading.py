"""From a trained classifier to its numbers: discretised in double precision, norms folded, silent states left out."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from ...arrays import from_parts
from ...errors import InputError
from ...models.block import BatchNorm, Block
from ...models.classifier import Classifier
from ...models.config import Config
from ...models.s4d import S4DLayer
from ...models.s5 import S5Layer
from ...quantisation.grid import bits_of

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


def numbers_of(model: Classifier) -> Numbers:
    """Return the numbers of a model, whole ones where its weights are on a grid; what is not finite is an error."""
    if not isinstance(model, Classifier):
        raise InputError(f"Only ssmprune's own classifiers can be written as C; got {type(model).__name__}.")
    if bad := [name for name, tensor in model.state_dict().items() if not bool(torch.isfinite(tensor).all())]:
        raise InputError(f"{bad[0]} has numbers that are not finite; the model cannot be written as C.")
    return _Reader(model).read()


class _Reader:
    """Reads a model in double precision."""

    def __init__(self, model: Classifier) -> None:
        self.whole, self.grid, self.model = model.whole_numbers(), model.grid, model

    def read(self) -> Numbers:
        """Return all numbers of the model."""
        model = self.model
        return Numbers(
            model.config,
            self._embedding() if model.config.tokens else self._dense("encoder"),
            tuple(self._layer(f"layers.{i}", copy.deepcopy(block).double()) for i, block in enumerate(model.blocks)),
            None if model.hidden is None else self._dense("hidden"),
            self._dense("decoder"),
            None if self.whole is None or self.grid is None else self.grid.bits,
        )

    def _weights(self, name: str) -> tuple[Array, Array | None, int]:
        """Return a parameter as it is, or as whole numbers; their scales; how many bits they have."""
        if self.whole is None or self.grid is None:
            return _array(self.model.get_parameter(name)), None, 8
        whole, scales = self.whole[name], self.grid.scales[name]
        return whole.astype(float), scales.astype(float), bits_of(name, whole.shape, self.grid.bits)

    def _dense(self, path: str) -> Dense:
        weight, scale, bits = self._weights(f"{path}.weight")
        bias = self.model.get_submodule(path).bias
        return Dense(weight, None if bias is None else _array(bias), None if scale is None else scale[:, 0], bits)

    def _embedding(self) -> Embedding:
        vectors, scale, _ = self._weights("encoder.weight")
        return Embedding(vectors, None if scale is None else scale[:, 0])

    def _layer(self, path: str, block: Block) -> LayerNumbers:
        ssm = block.ssm
        log_poles, B = ssm.discretized()
        C = ssm.gain * torch.view_as_complex(ssm.C)
        heard = _array(ssm.mask)  # a masked state gets no input, so it is silent for ever
        if not isinstance(ssm, S4DLayer):
            heard[:1] |= not heard.any()  # an S5 layer keeps at least one state
        # All that a batch norm does, or what a layer norm does after it has normalised.
        norm = block.norm
        scale, shift = norm.scale_and_shift() if isinstance(norm, BatchNorm) else (norm.weight, norm.bias)
        layer = LayerNumbers(
            poles=_array(log_poles.exp())[heard],
            B=_array(B)[heard],
            C=_array(C)[..., heard],
            D=_array(ssm.D),
            scale=_array(scale),
            shift=_array(shift),
            gate=None if block.gate is None else self._dense(f"{path}.gate"),
            value=None if block.value is None else self._dense(f"{path}.value"),
            channel=_array(ssm.channel)[heard] if isinstance(ssm, S4DLayer) else None,
        )
        # S4D's C stays multiplied by B, in floats: whole numbers with a complex B beside them would take more room.
        return self._on_grid(layer, f"{path}.ssm", ssm, heard) if isinstance(ssm, S5Layer) else layer

    def _on_grid(self, layer: LayerNumbers, path: str, ssm: S5Layer, heard: Array) -> LayerNumbers:
        """Return an S5 layer with whole numbers in B and C, if they are on a grid."""
        B, B_scale, bits = self._weights(f"{path}.B")
        C, C_scale, _ = self._weights(f"{path}.C")
        if B_scale is None or C_scale is None:
            return layer
        factor = _array(ssm.discretization_factors()[1])
        scales = StateScales(bits, B_scale[heard, 0, 0], factor[heard], ssm.gain * C_scale[..., 0, 0])
        return replace(layer, B=from_parts(B)[heard], C=from_parts(C)[..., heard], state_scales=scales)


def _array(tensor: Any) -> Array:
    assert isinstance(tensor, Tensor)
    exact = tensor.double() if tensor.is_floating_point() else tensor
    return exact.detach().cpu().resolve_conj().numpy().copy()
