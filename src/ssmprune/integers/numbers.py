"""From a trained classifier to its numbers: discretised in double precision, norms folded, silent states left out."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..arrays import from_parts
from ..errors import InputError
from ..models.classifier import BatchNorm, Block, Classifier
from ..models.config import Config
from ..models.layers import S4DLayer, S5Layer
from ..quantisation.grid import bits_of

Array = NDArray[Any]


@dataclass(frozen=True)
class Dense:
    """y = scale (weight x) + bias; with a scale, the weights are whole numbers of so many bits.

    An embedding is one, with a row of features for each token.
    """

    weight: Array  # (outputs, inputs)
    bias: Array | None = None  # (outputs,)
    scale: Array | None = None  # (outputs,)
    bits: int = 8


@dataclass(frozen=True)
class S5System:
    """x_k = poles x_{k-1} + factor (drive u_k) and y_k = readout x_k, by real matrices on [Re x, Im x]."""

    poles: Array  # (n,) complex
    drive: Dense  # (2n, H)
    readouts: tuple[Dense, ...]  # (H, 2n), one for each direction; the gain of conjugate pairs is in them
    factor: Array | None  # (n,) complex: the discretisation's, where the drive has whole numbers


@dataclass(frozen=True)
class S4DSystem:
    """x_k = poles x_{k-1} + u_k of the state's channel, and y_k = Re(weights x_k), summed over a channel's states.

    The state is counted in units of B, so that C B is the only weight.
    """

    poles: Array  # (n,) complex
    weights: Array  # (directions, n) complex; the gain of conjugate pairs is in them
    channel: Array  # (n,)


@dataclass(frozen=True)
class LayerNumbers:
    """One block: a system, to whose output D u_k is added, between a norm and a gate."""

    system: S5System | S4DSystem
    D: Array  # (H,)
    scale: Array  # (H,), as is shift: the norm's, with a batch norm's statistics
    shift: Array
    gate: Dense | None
    value: Dense | None


@dataclass(frozen=True)
class Numbers:
    """All that a model computes with."""

    config: Config
    encoder: Dense
    layers: tuple[LayerNumbers, ...]
    hidden: Dense | None
    decoder: Dense
    bits: int | None = None  # of the layers' weights; None: floats


def numbers_of(model: Classifier) -> Numbers:
    """Return the numbers of a model, whole ones where its weights are on a grid; what is not finite is an error."""
    if not isinstance(model, Classifier):
        raise InputError(
            f"Models that can be written as C are ssmprune's own classifiers; got {type(model).__name__}. Its layers "
            "can be written one by one: sp.export_c(sp.read(model)[path], file, D=layer.D)."
        )
    if bad := [name for name, tensor in model.state_dict().items() if not bool(torch.isfinite(tensor).all())]:
        raise InputError(f"{bad[0]} has numbers that are not finite; the model cannot be written as C.")
    reader = _Reader(model)
    return Numbers(
        model.config,
        reader.dense("encoder"),
        tuple(reader.layer(f"layers.{i}", copy.deepcopy(block).double()) for i, block in enumerate(model.blocks)),
        None if model.hidden is None else reader.dense("hidden"),
        reader.dense("decoder"),
        None if reader.grid is None else reader.grid.bits,
    )


class _Reader:
    """Reads a model in double precision."""

    def __init__(self, model: Classifier) -> None:
        self.model, self.whole = model, model.whole_numbers() or {}
        self.grid = model.grid if self.whole else None  # which the weights may have left

    def _weights(self, name: str) -> tuple[Array, Array | None, int]:
        """Return a parameter as it is, or as whole numbers; their scales; how many bits they have."""
        if self.grid is None:
            return _array(self.model.get_parameter(name)), None, 8
        whole, scales = self.whole[name], self.grid.scales[name]
        return whole.astype(float), scales.astype(float), bits_of(name, whole.shape, self.grid.bits)

    def dense(self, path: str) -> Dense:
        weight, scale, bits = self._weights(f"{path}.weight")
        bias = getattr(self.model.get_submodule(path), "bias", None)  # an embedding has none
        return Dense(weight, None if bias is None else _array(bias), None if scale is None else scale[:, 0], bits)

    def layer(self, path: str, block: Block) -> LayerNumbers:
        ssm, norm = block.ssm, block.norm
        # All that a batch norm does, or what a layer norm does after it has normalised.
        scale, shift = norm.scale_and_shift() if isinstance(norm, BatchNorm) else (norm.weight, norm.bias)
        return LayerNumbers(
            self._s5(f"{path}.ssm", ssm) if isinstance(ssm, S5Layer) else _s4d(ssm),
            _array(ssm.D),
            _array(scale),
            _array(shift),
            None if block.gate is None else self.dense(f"{path}.gate"),
            None if block.value is None else self.dense(f"{path}.value"),
        )

    def _s5(self, path: str, layer: S5Layer) -> S5System:
        heard = _array(layer.mask)  # a masked state gets no input, so it is silent for ever
        heard[:1] |= not heard.any()  # an S5 layer keeps at least one state
        log_poles, factor = map(_array, layer.discretization_factors())
        B, B_scale, bits = self._weights(f"{path}.B")
        C, C_scale, _ = self._weights(f"{path}.C")
        B, C = from_parts(B)[heard], from_parts(C)[..., heard]
        if B_scale is None or C_scale is None:
            B, C = factor[heard, None] * B, layer.gain * C
        drive_scale = None if B_scale is None else np.tile(B_scale[heard, 0, 0], 2)
        readout_scales = [None] * len(C) if C_scale is None else list(layer.gain * C_scale[..., 0, 0])
        readouts = [np.concatenate([direction.real, -direction.imag], axis=1) for direction in C]
        return S5System(
            np.exp(log_poles)[heard],
            Dense(np.concatenate([B.real, B.imag]), None, drive_scale, bits),
            tuple(Dense(weight, None, scale, bits) for weight, scale in zip(readouts, readout_scales, strict=True)),
            None if B_scale is None else factor[heard],
        )


def _s4d(layer: S4DLayer) -> S4DSystem:
    """Return what a layer computes with, in floats: whole numbers with a complex B beside them would take more room."""
    heard = layer.mask
    log_poles, B = layer.discretized()
    weights = layer.gain * torch.view_as_complex(layer.C) * B
    return S4DSystem(_array(log_poles.exp()[heard]), _array(weights[:, heard]), _array(layer.channel[heard]))


def _array(tensor: Tensor) -> Array:
    exact = tensor.double() if tensor.is_floating_point() else tensor
    return exact.detach().cpu().resolve_conj().numpy().copy()
