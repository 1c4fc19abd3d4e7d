"""From a trained classifier to its numbers: discretised in double precision, norms folded, silent states left out."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import InputError
from ...models.block import BatchNorm, Block
from ...models.classifier import Classifier
from ...models.s4d import S4DLayer
from .numbers import Array, Dense, LayerNumbers, Numbers


def check_kind(model: Any) -> Classifier:
    """Return a model that can become C; any other is an error."""
    if not isinstance(model, Classifier):
        raise InputError(f"Only ssmprune's own classifiers become C; got {type(model).__name__}.")
    return model


def numbers_of(model: Classifier) -> Numbers:
    """Return the numbers of a model; what is not finite is an error."""
    check_kind(model)
    if bad := [name for name, tensor in model.state_dict().items() if not bool(torch.isfinite(tensor).all())]:
        raise InputError(f"{bad[0]} has numbers that are not finite; the model cannot become C.")
    model = copy.deepcopy(model).double().eval().requires_grad_(False)
    encoder = Dense(_array(model.encoder.weight).T) if model.config.tokens else _dense(model.encoder)
    layers = tuple(_layer(block) for block in model.blocks)
    hidden = None if model.hidden is None else _dense(model.hidden)
    return Numbers(model.config, encoder, layers, hidden, _dense(model.decoder))


def _layer(block: Block) -> LayerNumbers:
    ssm = block.ssm
    log_poles, B = ssm.discretized()
    C = ssm.gain * torch.view_as_complex(ssm.C)
    heard = _array(ssm.mask)  # a masked state gets no input, so it is silent for ever
    if not isinstance(ssm, S4DLayer):
        heard[:1] |= not heard.any()  # an S5 layer keeps at least one state
    scale, shift = _norm(block.norm)
    return LayerNumbers(
        poles=_array(log_poles.exp())[heard],
        B=_array(B)[heard],
        C=_array(C)[..., heard],
        D=_array(ssm.D),
        scale=scale,
        shift=shift,
        gate=None if block.gate is None else _dense(block.gate),
        value=None if block.value is None else _dense(block.value),
        channel=_array(ssm.channel)[heard] if isinstance(ssm, S4DLayer) else None,
    )


def _norm(norm: nn.Module) -> tuple[Array, Array]:
    """Scale and shift: of a batch norm altogether, of a layer norm after it has normalised."""
    weight, bias = _array(norm.weight), _array(norm.bias)
    if not isinstance(norm, BatchNorm):
        return weight, bias
    scale = weight / np.sqrt(_array(norm.running_var) + norm.eps)
    return scale, bias - _array(norm.running_mean) * scale


def _dense(layer: Any) -> Dense:
    return Dense(_array(layer.weight), None if layer.bias is None else _array(layer.bias))


def _array(tensor: Any) -> Array:
    assert isinstance(tensor, Tensor)
    return tensor.detach().cpu().resolve_conj().numpy().copy()
