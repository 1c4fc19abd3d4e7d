"""The diagonal recurrence x_k = a x_{k-1} + v_k over whole sequences, blocked in time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 8, 28  # least and most steps that run one after the other, for all chunks of the sequence at once
WORTHWHILE = 40_000  # numbers that an operation should have so that several threads share it


def scan(v: Tensor, poles: Tensor, state: Tensor | None = None, reverse: bool = False) -> Tensor:
    """Return states x_k = a x_{k-1} + v_k of the recurrence, x_{-1} = state (zero by default), differentiable.

    v is complex (batch, length, n), poles a (n,), state (batch, n); the result has the shape of v.
    With `reverse` time runs backwards: x_k = a x_{k+1} + v_k, x_length = state.

    >>> scan(torch.ones(1, 4, 1, dtype=torch.complex64), torch.tensor([0.5 + 0j])).real.flatten()
    tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    states: Tensor = _Scan.apply(v, poles, state, reverse)  # type: ignore[no-untyped-call]
    return states


def scan_(v: Tensor, poles: Tensor, reverse: bool = False) -> Tensor:
    """Overwrite v (batch, length, n) with its scan from a zero state, without recording gradients.

    The sequence is cut into chunks of T steps: a loop inside the chunks over all of them at once, the same scan over
    their last states with the poles a^T, and one pass that adds a^{t+1} times the state before the chunk.
    """
    batch, length, n = v.shape
    chunk = min(max(CHUNK[0], v.numel() // WORTHWHILE), CHUNK[1])
    if length < 2 * chunk:
        _loop_(v, poles, reverse)
        return v
    chunks = length // chunk
    rest = length - chunks * chunk  # steps beyond the last whole chunk
    body = (v[:, rest:] if reverse else v[:, : length - rest]).view(batch, chunks, chunk, n)
    _loop_(body, poles, reverse)
    powers = poles.expand(chunk, n).cumprod(0)  # a^1 ... a^T
    carry = scan_(body[:, :, 0 if reverse else -1].clone(), powers[-1], reverse)[:, :, None]
    if reverse:
        body[:, :-1].addcmul_(powers.flip(0), carry[:, 1:])
    else:
        body[:, 1:].addcmul_(powers, carry[:, :-1])
    if rest:
        _loop_(v[:, : rest + 1] if reverse else v[:, length - rest - 1 :], poles, reverse)
    return v


def _loop_(v: Tensor, poles: Tensor, reverse: bool) -> None:
    """Run the recurrence along the last axis but one, a step at a time."""
    steps = v.unbind(-2)
    for before, now in pairwise(reversed(steps) if reverse else steps):
        now.addcmul_(poles, before)


class _Scan(torch.autograd.Function):
    """The scan and its adjoint, which is the scan with the conjugate poles in the other direction."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, poles: Tensor, state: Tensor | None, reverse: bool) -> Tensor:
        x = v.clone()
        if state is not None:
            x[:, -1 if reverse else 0].addcmul_(poles, state)
        scan_(x, poles, reverse)
        ctx.save_for_backward(x, poles, state)
        ctx.reverse = reverse
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, poles, state = ctx.saved_tensors
        grad_v = scan_(grad.clone(), poles.conj().resolve_conj(), not ctx.reverse)
        before, now = (x[:, 1:], grad_v[:, :-1]) if ctx.reverse else (x[:, :-1], grad_v[:, 1:])
        grad_poles = (before.conj() * now).sum((0, 1))
        if state is None:
            return grad_v, grad_poles, None, None
        first = grad_v[:, -1 if ctx.reverse else 0]
        grad_poles = grad_poles + (state.conj() * first).sum(0)
        return grad_v, grad_poles, poles.conj() * first, None
