"""Twins of a model's layers that compute the same in real arithmetic.

A state is two real ones, (batch, 2, n): real parts, then imaginary parts. A batch norm in front of an S5 layer is a
scale and a shift of its input, which go into B and D: fewer operations for the runtime to call.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan  # becomes ONNX's Scan, whose length is free
from torch.nn import functional as F

from ..models.block import BatchNorm, Block
from ..models.classifier import Classifier
from ..models.s4d import S4DLayer
from ..models.s5 import S5Layer


class Affine(NamedTuple):
    """What becomes of a layer's input first: scale * u + shift, (H,) each, in double precision."""

    scale: Tensor
    shift: Tensor


def with_real_layers(model: Classifier) -> Classifier:
    """Return a copy in evaluation mode whose layers compute the same in real arithmetic alone."""
    twin = copy.deepcopy(model).eval().requires_grad_(False)
    blocks: list[Any] = list(twin.blocks)
    for block in blocks:
        block.ssm = RealS5(block.ssm, _fold_norm(block)) if isinstance(block.ssm, S5Layer) else RealS4D(block.ssm)
    return twin


def _fold_norm(block: Block) -> Affine:
    """Take a batch norm in front of the layer out of a block and return what it does."""
    norm, D = block.norm, block.ssm.D.double()
    if not (block.prenorm and isinstance(norm, BatchNorm)):
        return Affine(torch.ones_like(D), torch.zeros_like(D))
    scale = norm.weight.double() * (norm.running_var.double() + norm.eps).rsqrt()
    block.norm = nn.Identity()  # type: ignore[assignment]
    return Affine(scale, norm.bias.double() - norm.running_mean.double() * scale)


class RealLayer(nn.Module):
    """A diagonal layer with the real and imaginary parts of everything apart."""

    decay: Tensor  # (n,): the real parts of the poles
    turn: Tensor  # (2, n): minus their imaginary parts, and plus
    D: Tensor  # (H,)

    def __init__(self, poles: Tensor, C: Iterable[Tensor], D: Tensor, dtype: torch.dtype, delay: int = 0) -> None:
        """Keep poles (n,), a C for each direction and D, rounded to `dtype`."""
        super().__init__()
        self.dtype, self.delay = dtype, delay
        self._keep(decay=poles.real, turn=torch.stack([-poles.imag, poles.imag]), D=D)
        self.C = nn.ParameterList([nn.Parameter(C_d.to(dtype).contiguous(), requires_grad=False) for C_d in C])

    def _keep(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor.to(self.dtype).contiguous())

    def blank(self, batch: int) -> Tensor:
        """Return the silent state (batch, 2, n)."""
        return self.turn.new_zeros(batch, *self.turn.shape)

    def forward(self, u: Tensor) -> Tensor:  # (batch, length, H) -> the same
        """Return the layer's output for whole sequences."""
        drive = self.drive(u).movedim(1, 0)  # (length, batch, 2, n)
        y = self.observe(self._run(drive), 0)
        if len(self.C) == 2:
            later = self._run(drive.flip(0)).flip(0)
            if self.delay:
                later = torch.cat([later[1:], torch.zeros_like(later[:1])])
            y = y + self.observe(later, 1)
        return y.movedim(0, 1) + self.D * u

    def step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, H)
        """Return the output for the next step and the state after it."""
        state = self.advance(state, self.drive(u))
        return self.observe(state, 0) + self.D * u, state

    def advance(self, state: Tensor, drive: Tensor) -> Tensor:
        """Return pole times state plus drive, all (batch, 2, n): one step of the recurrence."""
        return self.decay * state + self.turn * state.flip(1) + drive

    @abstractmethod
    def drive(self, u: Tensor) -> Tensor:  # (..., H) -> (..., 2, n)
        """Return what the input feeds into the states."""

    @abstractmethod
    def observe(self, x: Tensor, direction: int) -> Tensor:  # (..., 2, n) -> (..., H)
        """Return gain Re(C x)."""

    def _run(self, drive: Tensor) -> Tensor:
        def step(state: Tensor, drive: Tensor) -> tuple[Tensor, Tensor]:
            state = self.advance(state, drive)
            return state, state.clone()  # a scan may not return the same memory twice

        states: Tensor = scan(step, drive.new_zeros(drive.shape[1:]), drive)[1]
        return states


class RealS5(RealLayer):
    """An S5 layer: one real product from the input to both parts of all states, one back."""

    B: Tensor  # (2n, H)
    B_shift: Tensor  # (2n,): what B makes of the shift of the input
    D_shift: Tensor  # (H,): what D makes of it

    def __init__(self, layer: S5Layer, before: Affine) -> None:
        """Discretise once, in double precision."""
        log_poles, B = copy.deepcopy(layer).double().discretized()
        C = torch.view_as_complex(layer.C.double()) * layer.gain  # (directions, H, n)
        B, D = torch.cat([B.real, B.imag]), layer.D.double()
        super().__init__(log_poles.exp(), torch.cat([C.real, -C.imag], -1), D * before.scale, layer.D.dtype)
        self._keep(B=B * before.scale, B_shift=B @ before.shift, D_shift=D * before.shift)

    def drive(self, u: Tensor) -> Tensor:  # (..., H) -> (..., 2, n)
        """Return what the input feeds into the states."""
        return torch.unflatten(F.linear(u, self.B, self.B_shift), -1, (2, len(self.decay)))

    def observe(self, x: Tensor, direction: int) -> Tensor:  # (..., 2, n) -> (..., H)
        """Return gain Re(C x), for the first direction with what D makes of the shift."""
        return F.linear(x.flatten(-2), self.C[direction], None if direction else self.D_shift)


class RealS4D(RealLayer):
    """An S4D layer, its states flat as in the model; B is part of C, so that every state gets its channel's input."""

    channel: Tensor  # (n,)
    real_part: Tensor  # (2, 1): the input is real

    def __init__(self, layer: S4DLayer) -> None:
        """Discretise once, in double precision."""
        log_poles, B = copy.deepcopy(layer).double().discretized()
        C = torch.view_as_complex(layer.C.double()) * layer.gain * B  # (directions, n)
        silent = 0 if len(B) else 1  # runtimes stumble over a layer without any state
        poles, parts = F.pad(log_poles.exp(), (0, silent)), torch.stack([C.real, -C.imag], 1)  # (directions, 2, n)
        super().__init__(poles, F.pad(parts, (0, silent)), layer.D, layer.D.dtype, layer.backward_delay)
        self._keep(real_part=torch.tensor([[1.0], [0.0]]))
        self.register_buffer("channel", F.pad(layer.channel, (0, silent)))
        counts = torch.bincount(layer.channel, minlength=len(layer.D))
        self.shared_out_evenly = bool(0 < counts[0] == counts.min() == counts.max())

    def drive(self, u: Tensor) -> Tensor:  # (..., H) -> (..., 2, n)
        """Return what the input feeds into the states."""
        return u.index_select(-1, self.channel)[..., None, :] * self.real_part

    def observe(self, x: Tensor, direction: int) -> Tensor:  # (..., 2, n) -> (..., H)
        """Return gain Re(C x), summed over the states of each channel."""
        parts: Tensor = x * self.C[direction]
        if self.shared_out_evenly:  # as before pruning: a sum is faster than a scatter
            return torch.unflatten(parts, -1, (len(self.D), -1)).sum((-3, -1))
        parts = parts.sum(-2)
        return parts.new_zeros(*parts.shape[:-1], len(self.D)).scatter_add(-1, self.channel.expand_as(parts), parts)
