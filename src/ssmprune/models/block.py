"""One residual block: norm, state space layer, gate."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import Config
from .s5 import S5Layer, truncated_normal


class Block(nn.Module):
    """x + gate(gelu(ssm(norm(x)))), or norm(x + gate(gelu(ssm(x)))) when `prenorm` is off.

    The gates, with y = ssm(...) and g = gelu(y): gelu: g; half_glu1: g * sigmoid(W g + b);
    half_glu2: y * sigmoid(W g + b); full_glu: (V g + c) * sigmoid(W g + b).
    """

    def __init__(self, config: Config, n: int) -> None:
        """Random weights for a layer of n stored states."""
        super().__init__()
        self.prenorm, self.activation, self.dropout = config.prenorm, config.activation, config.dropout
        self.gelu = "none" if config.exact_gelu else "tanh"
        self.ssm = ssm_layer(config, n)
        self.norm = BatchNorm(config) if config.norm == "batch" else nn.LayerNorm(config.width, config.norm_eps)
        if config.activation != "gelu":
            self.gate = dense(config.width, config.width)
        if config.activation == "full_glu":
            self.value = dense(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:  # (batch, length, width) -> the same
        """The block's output for whole sequences."""
        return self._after(x, self.ssm(self._before(x)))

    def stream(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # x (batch, chunk, width)
        """The outputs for the next chunk and the state after it."""
        y, state = self.ssm.stream(self._before(x), state)
        return self._after(x, y), state

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # x (batch, width)
        """The output for the next token and the state after it."""
        y, state = self.ssm.step(self._before(x), state)
        return self._after(x, y), state

    def _before(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x) if self.prenorm else x
        return normed

    def _after(self, x: Tensor, y: Tensor) -> Tensor:
        x = x + self._activate(y)
        return x if self.prenorm else self.norm(x)

    def _activate(self, y: Tensor) -> Tensor:
        g = self._drop(F.gelu(y, approximate=self.gelu))
        if self.activation == "gelu":
            return g
        value = {"half_glu1": g, "half_glu2": y}.get(self.activation)
        if value is None:
            value = self.value(g)
        return self._drop(value * self.gate(g).sigmoid())

    def _drop(self, x: Tensor) -> Tensor:
        """Dropout of whole features: one decision per sequence and feature, kept over time as in S5."""
        if not (self.training and self.dropout):
            return x
        return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), self.dropout)


class BatchNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight + bias per feature, over batch and time.

    Padded steps count as well. In evaluation the running statistics make it one multiply-add.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, config: Config) -> None:
        """Statistics of standard normal features."""
        super().__init__()
        self.eps, self.momentum = config.norm_eps, config.norm_momentum
        self.weight = nn.Parameter(torch.ones(config.width))
        self.bias = nn.Parameter(torch.zeros(config.width))
        self.register_buffer("running_mean", torch.zeros(config.width))
        self.register_buffer("running_var", torch.ones(config.width))

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> the same
        """Normalise every feature."""
        if not self.training:
            scale = self.weight * (self.running_var + self.eps).rsqrt()
            return torch.addcmul(self.bias - self.running_mean * scale, x, scale)
        flat = F.batch_norm(
            x.flatten(0, -2), self.running_mean, self.running_var, self.weight, self.bias,
            training=True, momentum=self.momentum, eps=self.eps,
        )  # fmt: skip
        return flat.view_as(x)


def ssm_layer(config: Config, n: int) -> nn.Module:
    """The state space layer of the config's family with n stored states."""
    common = {
        "bidirectional": config.bidirectional,
        "conj_sym": config.conj_sym,
        "discretization": config.discretization,
        "pole_form": config.pole_form,
        "step_min": config.step_min,
        "step_max": config.step_max,
        "step_rescale": config.step_rescale,
    }
    if config.family == "s5":
        return S5Layer(config.width, n, blocks=config.blocks, **common)
    from .s4d import S4DLayer

    return S4DLayer(config.width, n, train_B=config.train_B, backward_delay=config.backward_delay, **common)


def dense(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer with truncated normal weights of variance 1/inputs and no bias to begin with."""
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(truncated_normal(outputs, inputs, deviation=inputs**-0.5))
        layer.bias.zero_()
    return layer
