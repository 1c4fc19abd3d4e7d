"""The classifier: an encoder, a stack of residual blocks around state space layers, pooling over time and a head."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ..arrays import to_numpy
from ..errors import InputError
from ..quantisation.grid import Grid
from .config import Config, check_lengths
from .layers import S4DLayer, S5Layer, dense, embedding
from .s5_kernel import groups, keep_freed_memory, steps_at_once


@dataclass(frozen=True)
class StreamState:
    """Where a stream stands: the states of all layers, how many steps went by, the sum of their features.

    The sum comes with what its rounding has added so far, so that millions of steps lose nothing.
    """

    layers: tuple[Tensor, ...]  # (batch, n) complex each
    steps: int
    total: Tensor  # (batch, 2, width)


class Classifier(nn.Module):
    """Sequences (batch, length, inputs), or tokens (batch, length), to logits (batch, outputs).

    With pooling "none" there are logits for every step, (batch, length, outputs). A retrieval model takes 2 b
    documents, compares document i with document b + i, and returns b rows of logits.

    >>> model = Classifier(Config("s5", inputs=3, outputs=5, width=8, states=(4, 4)))
    >>> model(torch.zeros(2, 16, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._built_as = config  # its `states` and `step_rescale` are out of date after a shrink: see `config`
        self.grid: Grid | None = None  # of a quantised model
        self.history: tuple[str, ...] = ()  # what was done to the model since its training, a sentence each
        width = config.width
        self.encoder = (embedding if config.tokens else dense)(config.inputs, width)
        self.layers = nn.ModuleList(Block(config, n) for n in config.states)
        self.hidden = dense(4 * width, width) if config.retrieval else None
        self.decoder = dense(width, config.outputs)

    @property
    def config(self) -> Config:
        """The architecture, with the numbers of states and the rate the layers have now."""
        layers = [block.ssm for block in self.blocks]
        states = tuple(len(layer.pole_re) for layer in layers)
        return replace(self._built_as, states=states, step_rescale=layers[0].step_rescale)

    @property
    def layer_states(self) -> dict[str, int]:
        """The states of each layer, by its path; a conjugate pair counts as two."""
        each = 2 if self._built_as.conj_sym else 1
        return {f"layers.{place}.ssm": each * len(block.ssm.pole_re) for place, block in enumerate(self.blocks)}

    @property
    def blocks(self) -> Iterable[Block]:
        """The layers, typed."""
        return cast("Iterable[Block]", self.layers)

    def at_rate(self, factor: float) -> Classifier:
        """Return a copy for sequences sampled `factor` times more coarsely: each step is that much longer."""
        other = copy.deepcopy(self)
        for block in other.blocks:
            block.ssm.step_rescale *= factor
        return other

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what a checkpoint holds, parameters and buffers, by name."""
        return {name: to_numpy(name, tensor) for name, tensor in self.state_dict().items()}

    def take_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Make copies of these arrays the parameters and buffers, in place of those there are, on the CPU.

        Copies lie at addresses that torch chose: what a product gives can depend on how its operands are aligned. They
        are contiguous, so that they have strides even when they are empty.
        """
        copies = {
            name: torch.from_numpy(array).clone(memory_format=torch.contiguous_format) for name, array in arrays.items()
        }
        self.load_state_dict(copies, assign=True)

    def whole_numbers(self) -> dict[str, NDArray[np.int8]] | None:
        """Return the large weights as whole numbers by name; None for a model that is not on a grid."""
        return None if self.grid is None else self.grid.whole_numbers(self.arrays())

    def record(self, sentence: str) -> None:
        """Add to the history what was just done to the model; if that took weights off their grid, the grid goes.

        Ranges of activations are those of the model before, so they go in any case.
        """
        if self.grid is not None:
            self.grid = replace(self.grid, ranges=None)
        if self.grid is not None and self.whole_numbers() is None:
            self.grid, sentence = None, f"{sentence}, in floats again"
        self.history = (*self.history, sentence)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return logits; `lengths` (batch,) keeps padding out of the pooling, and out of the backward scans.

        A model whose config says padding "seen" keeps it out of the pooling alone.
        """
        return self.head(self.features(x, lengths))

    def features(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return what the head takes: pooled features (batch, width), or those of every step."""
        lengths = self._checked(x, lengths)
        if torch.is_grad_enabled() or self.training:
            return self.pool(self.encode(x, self.padding(x, lengths)), lengths)
        # Sequences do not depend on each other here: a few at a time go through all layers while in the cache.
        keep_freed_memory()
        parts = []
        for rows in groups(len(x), x.shape[1], self._built_as.width):
            part, until = x[rows], None if lengths is None else lengths[rows]
            parts.append(self.pool(self._encode_in_chunks(part, self.padding(part, until)), until))
        return torch.cat(parts)

    def stages(self, x: Tensor, lengths: Tensor | None = None) -> list[Callable[[Tensor], Tensor]]:
        """Return the functions that take these inputs to the features of all steps: the encoder, then each block."""
        padding = self.padding(x, self._checked(x, lengths))
        return [self.encoder, *(partial(block, padding=padding) for block in self.blocks)]

    def initial_state(self, batch: int) -> StreamState:
        """Return the state before the first step of `batch` sequences."""
        total = self.decoder.weight.new_zeros(batch, 2, self._built_as.width)
        return StreamState(tuple(block.ssm.initial_state(batch) for block in self.blocks), 0, total)

    def stream(self, x: Tensor, state: StreamState | None = None) -> tuple[Tensor, StreamState]:
        """Return, for the next chunk (batch, chunk, ...), the logits of the sequence up to each step and the new state.

        Chunks may have any size; after the last one the last logits are those of `forward`.
        """
        self._checked(x)
        state = state or self.initial_state(len(x))
        x, layers = self._advance(x, state.layers)
        steps, total = state.steps + x.shape[1], state.total
        if self._built_as.pooling == "mean":
            sums = x.cumsum(1)
            counts = torch.arange(state.steps + 1, steps + 1, dtype=x.dtype, device=x.device)
            x = (total[:, :1] + sums) / counts[:, None]
            total = kahan_sum(total, sums[:, -1])
        return self.head(x), StreamState(layers, steps, total)

    def step(self, x: Tensor, state: StreamState) -> tuple[Tensor, StreamState]:
        """Return, for one more step, (batch, inputs) or tokens (batch,), the logits so far and the new state."""
        x, layers = self._advance(x, state.layers)
        steps, total = state.steps + 1, state.total
        if self._built_as.pooling == "mean":
            total = kahan_sum(total, x)
            x = total[:, 0] / steps
        return self.head(x), StreamState(layers, steps, total)

    def head(self, x: Tensor) -> Tensor:
        """Return the logits of pooled features (batch, width), or of those of every step."""
        logits: Tensor = self.decoder(x if self.hidden is None else self.compare(x))
        return logits

    def compare(self, x: Tensor) -> Tensor:
        """Return what the hidden layer of a retrieval model makes of pooled features (2 pairs, width)."""
        gelu = "none" if self._built_as.exact_gelu else "tanh"
        return F.gelu(cast("nn.Linear", self.hidden)(self.pairs(x)), approximate=gelu)

    def pairs(self, x: Tensor) -> Tensor:
        """Return both documents of each pair beside their difference and product, (pairs, 4 width)."""
        a, b = torch.unflatten(x, 0, (2, -1)).unbind(0)  # not `chunk` or slices, at which torch's ONNX exporter stops
        return torch.cat([a, b, a - b, a * b], dim=-1)

    def encode(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Return the features (batch, length, width) of all steps."""
        x = self.encoder(x)
        for block in self.blocks:
            x = block(x, padding)
        return x

    def pool(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return what the head takes of the features of all steps."""
        if self._built_as.pooling == "none":
            return x
        if lengths is None:
            return x.mean(1) if self._built_as.pooling == "mean" else x[:, -1]
        if self._built_as.pooling == "last":
            return x[torch.arange(len(x), device=x.device), lengths - 1]
        valid = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        return torch.einsum("blh,bl->bh", x, valid / lengths[:, None].to(x.dtype))

    def padding(self, x: Tensor, lengths: Tensor | None) -> Tensor | None:
        """Mark the steps (batch, length) that layers must not see: forward scans have not met them before the end."""
        if lengths is None or not self._built_as.bidirectional or self._built_as.padding == "seen":
            return None
        return torch.arange(x.shape[1], device=x.device) >= lengths[:, None]

    def _encode_in_chunks(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """Return what `encode` does, with long sequences cut into chunks where layers go on from a state.

        S4D convolves whole sequences.
        """
        steps = steps_at_once(self._built_as.width)
        if x.shape[1] <= steps or self._built_as.bidirectional or self._built_as.family == "s4d":
            return self.encode(x, padding)
        layers, chunks = self.initial_state(len(x)).layers, []
        for chunk in torch.split(x, steps, dim=1):
            features, layers = self._advance(chunk, layers)
            chunks.append(features)
        return torch.cat(chunks, dim=1)

    def _advance(self, x: Tensor, layers: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the features of the next chunk or step and the states of all layers after it."""
        if self.training:
            raise InputError("Streaming needs evaluation mode; call model.eval() first.")
        x, after = self.encoder(x), []
        for block, before in zip(self.blocks, layers, strict=True):
            x, state = block.advance(x, before)
            after.append(state)
        return x, tuple(after)

    def _checked(self, x: Tensor, lengths: Tensor | None = None) -> Tensor | None:
        """Refuse what is no batch; return the lengths where the inputs are."""
        self._built_as.check_inputs(x, whole=not (x.is_floating_point() or x.is_complex()))
        if not (self._built_as.tokens or x.is_floating_point()):
            raise InputError(f"Expected real numbers, got {x.dtype}; convert them, as by x.float().")
        if lengths is None:
            return None
        check_lengths(lengths, *x.shape[:2])
        return lengths.to(x.device).long()


class Block(nn.Module):
    """x + gate(gelu(ssm(norm(x)))), or norm(x + gate(gelu(ssm(x)))) when `prenorm` is off.

    The gates, with y = ssm(...) and g = gelu(y): gelu: g; half_glu1: g * sigmoid(W g + b);
    half_glu2: y * sigmoid(W g + b); full_glu: (V g + c) * sigmoid(W g + b).
    """

    def __init__(self, config: Config, n: int) -> None:
        super().__init__()
        self.prenorm, self.activation, self.dropout = config.prenorm, config.activation, config.dropout
        self.gelu_form = "none" if config.exact_gelu else "tanh"
        family = S5Layer if config.family == "s5" else S4DLayer
        self.ssm: S5Layer | S4DLayer = family(config.width, n, config)
        width, eps = config.width, config.norm_eps
        self.norm = BatchNorm(width, eps, config.norm_momentum) if config.norm == "batch" else nn.LayerNorm(width, eps)
        self.gate = dense(width, width) if config.activation != "gelu" else None
        self.value = dense(width, width) if config.activation == "full_glu" else None

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:  # (batch, length, width) -> the same
        """Return the block's output for whole sequences; steps that are `padding` (batch, length) excite no state."""
        return self.leave(x, self.ssm(self.enter(x, padding)))

    def enter(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Return what the state space layer takes of the residual stream x."""
        u: Tensor = self.norm(x) if self.prenorm else x
        return u if padding is None else u.masked_fill(padding[..., None], 0)

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the residual stream after the block; y is what the state space layer gave."""
        gated = self._gated(x, y)
        output: Tensor = gated if self.prenorm else self.norm(gated)
        return output

    def gelu(self, y: Tensor) -> Tensor:
        """Return what gate and value read."""
        return F.gelu(y, approximate=self.gelu_form)

    def advance(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs for the next chunk (batch, chunk, width) or step (batch, width), and the state after."""
        layer = self.ssm.step if x.dim() == 2 else self.ssm.stream
        y, state = layer(self.enter(x), state)
        return self.leave(x, y), state

    def _gated(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the residual stream x plus what the gate lets through of the state space layer's output y."""
        g = self._drop(self.gelu(y))
        if self.gate is None:
            return x + g
        value = self.value(g) if self.value else {"half_glu1": g, "half_glu2": y}[self.activation]
        gate: Tensor = self.gate(g)
        if torch.is_grad_enabled():  # working in place would cost the backward pass more than it saves
            return x + self._drop(value) * gate.sigmoid()
        return torch.addcmul(x, self._drop(value), gate.sigmoid_(), out=gate)

    def _drop(self, x: Tensor) -> Tensor:
        """Drop whole features: one decision per sequence and feature, kept over time as in S5."""
        if not (self.training and self.dropout):
            return x
        return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), self.dropout)


class BatchNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias for every feature, over batch and time, padding included."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, eps: float, momentum: float) -> None:
        """Start with running statistics of a standard normal, and neither scale nor shift."""
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> the same
        """Normalise with the batch's statistics in training, with the running ones in evaluation."""
        statistics = self.running_mean, self.running_var, self.weight, self.bias
        return F.batch_norm(x.flatten(0, -2), *statistics, self.training, self.momentum, self.eps).view_as(x)

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """Return what evaluation does, scale * x + shift, in double precision."""
        scale = self.weight.double() / (self.running_var.double() + self.eps).sqrt()
        return scale, self.bias.double() - self.running_mean.double() * scale


@torch.no_grad()
def measure_statistics(model: Classifier, batches: Iterable[tuple[Tensor, Tensor | None]]) -> None:
    """Set the mean and variance of every batch norm to their averages over `batches` of inputs and lengths.

    Running averages are of models that training has left behind, and of few examples where batches are small. Errors
    grow from layer to layer: a Speech model with 73 % right by measured statistics had 16 % by the running ones.
    """
    norms = {module: module.momentum for module in model.modules() if isinstance(module, BatchNorm)}
    if not norms:
        return
    was_training = model.training
    model.eval()  # dropout is no part of what evaluation sees
    try:
        for count, (x, lengths) in enumerate(batches, start=1):
            for norm in norms:
                norm.train()
                norm.momentum = 1 / count  # the running average becomes that of all batches so far
            for stage in model.stages(x, lengths):  # a whole batch at a time, which evaluation may cut
                x = stage(x)
    finally:
        model.train(was_training)
        for norm, momentum in norms.items():
            norm.momentum = momentum


def kahan_sum(total: Tensor, features: Tensor) -> Tensor:
    """Return a sum and its rounding error (batch, 2, width) after features (batch, width) are added, as Kahan does."""
    before, excess = total.unbind(1)
    more = features - excess
    after = before + more
    return torch.stack([after, (after - before) - more], dim=1)
