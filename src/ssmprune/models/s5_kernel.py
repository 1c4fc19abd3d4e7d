"""A diagonal system with many inputs and outputs over whole sequences: two real products around a scan.

Complex states are kept as interleaved real numbers [Re x_1, Im x_1, Re x_2, ...], so that B u and C x are real matrix
products and the scan works on the same memory through `view_as_complex`. A few sequences at a time go through the
products and the scan, so that each finds its data in the cache.

The scan, x_k = a x_{k-1} + v_k blocked in time, carries all states through every sequence of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

CHUNK = 8, 28  # least and most steps that run one after the other, for all chunks of the sequence at once
WORTHWHILE = 40_000  # numbers that an operation should have so that several threads share it
NUMBERS_AT_ONCE = 1 << 21  # of an activation that is worked on while it is in the cache: 8 MB in single precision
FAST_MULTIPLE = 4  # matrix products with other numbers of states run at 70 % of the speed
FEWEST_STATES = 128  # of a layer whose kernels may beat a scan


def respond(
    u: Tensor, poles: Tensor, B: Tensor, C: Tensor, D: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return y = C_0 x_0 + C_1 x_1 + D u (batch, length, H) and the last states of x_0 (batch, n), differentiable.

    x_0 runs forwards, x_k = a x_{k-1} + B u_k, from `state` (batch, n) or zero; x_1, where C has a second direction,
    runs backwards over the same B u. u is (batch, length, H), poles a (n,) complex, B (2n, H) and C (directions, H, 2n)
    real and interleaved, D (H,).
    """
    n = len(poles)
    if state is None:
        state = poles.new_zeros(len(u), n)
    if missing := -n % FAST_MULTIPLE:
        poles, state = pad(poles, (0, missing)), pad(state, (0, missing))
        B, C = pad(B, (0, 0, 0, 2 * missing)), pad(C, (0, 2 * missing))
    if torch.is_grad_enabled():
        y, last = _Respond.apply(u.contiguous(), poles, B, C, D, state)  # type: ignore[no-untyped-call]
    else:
        y, last, _ = _run(u.contiguous(), poles, B, C, D, state, keep=False)
    return y, last[:, :n]


def convolution_pays(n: int, width: int) -> bool:
    """Tell whether a layer has so many states for its width that kernels beat a scan.

    Kernels are made once for a batch, and states appear nowhere else: training a layer of 256 states and width 8 takes
    a seventh of the time.
    """
    return n >= max(FEWEST_STATES, width * width)


def _run(
    u: Tensor, poles: Tensor, B: Tensor, C: Tensor, D: Tensor, state: Tensor, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs, last forward states and all states (directions, batch, length, 2n), or scratch unless `keep`."""
    batch, length, width = u.shape
    y, last = torch.empty_like(u), poles.new_empty(batch, len(poles))
    room = batch if keep else next(groups(*u.shape)).stop
    states = u.new_empty(len(C), room, length, len(B))
    for rows in groups(*u.shape):
        x = states[:, rows] if keep else states[:, : rows.stop - rows.start]
        torch.mm(u[rows].view(-1, width), B.mT, out=x[0].view(-1, len(B)))
        if len(C) == 2:
            x[1].copy_(x[0])
        _complex(x[0])[:, 0].addcmul_(poles, state[rows])
        torch.mul(u[rows], D, out=y[rows])
        for direction, x_d in enumerate(x):
            scan_(_complex(x_d), poles, reverse=direction == 1)
            y[rows].view(-1, width).addmm_(x_d.view(-1, len(B)), C[direction].mT)
        last[rows] = _complex(x[0])[:, -1]
    return y, last, states


class _Respond(torch.autograd.Function):
    """`respond` with gradients: the adjoint states h run against time, h_k = conj(a) h_{k+1} + dy_k C^H for x_0.

    They are kept conjugated, which is free because B and C can be conjugated beforehand: no pass over the sequence
    conjugates anything, and the scan has the same poles.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, *system: Tensor) -> tuple[Tensor, Tensor]:
        y, last, states = _run(u, *system, keep=True)
        ctx.save_for_backward(u, *system, states)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dlast: Tensor) -> tuple[Tensor, ...]:
        u, poles, B, C, D, state, states = ctx.saved_tensors
        dy = dy.contiguous()
        conjugate = B.new_tensor([1.0, -1.0]).repeat(len(poles))
        B_adjoint, C_adjoint = B * conjugate[:, None], C * conjugate
        du, dB, dC = torch.empty_like(u), torch.zeros_like(B), torch.zeros_like(C)
        dpoles, dD = torch.zeros_like(poles), torch.zeros_like(D)
        first = poles.new_empty(dlast.shape)  # the adjoint of the first forward states
        for rows in groups(*u.shape):
            u_rows, dy_rows = u[rows].flatten(0, 1), dy[rows].flatten(0, 1)
            h = u.new_empty(states[:, rows].shape)
            for direction, (x_d, h_d) in enumerate(zip(states[:, rows], h, strict=True)):
                dC[direction].addmm_(dy_rows.mT, x_d.flatten(0, 1))
                torch.mm(dy_rows, C_adjoint[direction], out=h_d.view(-1, len(conjugate)))
                if direction == 0:
                    _complex(h_d)[:, -1] += dlast[rows].conj()
                early, late = _complex(x_d), scan_(_complex(h_d), poles, reverse=direction == 0)
                if direction == 1:
                    early, late = late, early
                dpoles += (early[:, :-1] * late[:, 1:]).sum((0, 1))
            first[rows] = _complex(h[0])[:, 0]
            h_rows = (h[0] if len(h) == 1 else h[0].add_(h[1])).flatten(0, 1)
            dB.addmm_(h_rows.mT, u_rows)
            torch.mul(dy[rows], D, out=du[rows])
            du[rows].flatten(0, 1).addmm_(h_rows, B_adjoint)
            dD += (u_rows * dy_rows).sum(0)
        dpoles += (state * first).sum(0)
        return du, dpoles.conj(), dB * conjugate[:, None], dC, dD, (poles * first).conj()


def scan(v: Tensor, poles: Tensor, state: Tensor) -> Tensor:
    """Return states x_k = a x_{k-1} + v_k of the recurrence, x_{-1} = state, differentiable.

    v is complex (batch, length, n), poles a (n,), state (batch, n); the result has the shape of v.
    """
    states: Tensor = _Scan.apply(v, poles, state)  # type: ignore[no-untyped-call]
    return states


def scan_(v: Tensor, poles: Tensor, reverse: bool = False) -> Tensor:
    """Overwrite v (batch, length, n) with its scan from a zero state, without recording gradients.

    With `reverse` time runs backwards: x_k = a x_{k+1} + v_k.
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
    def forward(ctx: Any, v: Tensor, poles: Tensor, state: Tensor) -> Tensor:
        x = v.clone()
        x[:, 0].addcmul_(poles, state)
        scan_(x, poles)
        ctx.save_for_backward(x, poles, state)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, poles, state = ctx.saved_tensors
        grad_v = scan_(grad.clone(), poles.conj().resolve_conj(), reverse=True)
        first = grad_v[:, 0]
        grad_poles = (x[:, :-1].conj() * grad_v[:, 1:]).sum((0, 1)) + (state.conj() * first).sum(0)
        return grad_v, grad_poles, poles.conj() * first


def _complex(x: Tensor) -> Tensor:
    """View (..., 2n) interleaved real numbers as (..., n) complex ones on the same memory."""
    return torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))


def steps_at_once(width: int) -> int:
    """Return the longest part of a sequence (length, width) that is worked on at a time."""
    return max(1, NUMBERS_AT_ONCE // width)


def groups(batch: int, length: int, width: int) -> Iterator[slice]:
    """Yield the rows of a batch (batch, length, width) that go together.

    >>> list(groups(5, 8000, 128))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = steps_at_once(length * width)
    return (slice(start, min(start + size, batch)) for start in range(0, batch, size))


def keep_freed_memory() -> None:
    """Let the C library keep the memory that a layer frees for the next.

    glibc returns large freed blocks to the system, which then has to clear every page again: a third of the time of
    an evaluation. It stops for blocks up to the largest one, of at most 32 MB, that it has seen come and go.
    """
    torch.empty(31 << 20, dtype=torch.uint8)  # never touched, so it costs microseconds
