"""Convolution kernels of diagonal systems, a Vandermonde product that is never written out, and convolution with them.

Exponents are split as l = aT + b with T near the root of the length, so that

    K[l] = Re sum_i w_i λ_i^l = Re sum_i (w_i λ_i^{aT}) (λ_i^b)

is one small real matrix product per channel between two tables of T powers, instead of a sum over as many powers
as the sequence is long. Channels that own about equally many states share a batched product, so that a channel costs
what it holds, however unevenly pruning has left them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import hardshrink, pad

from .s5_kernel import groups, keep_freed_memory

TABLE = 1 << 17  # entries of a table of powers: bounds the memory at any length, and fits a cache
GROUPS = np.array([0, *sorted(odd << k for odd in (1, 3) for k in range(40))])  # bounds of counts that share a run
ODD_FACTORS = (1, 3, 5, 9, 15, 25, 27)  # of lengths whose Fourier transform is fast


def kernel(log_poles: Tensor, weights: Tensor, channel: Tensor, channels: int, length: int) -> Tensor:
    """Return kernels of single-input, single-output systems: K[d, h, l] = Re sum_{i in h} w_{d,i} exp(l log λ_i).

    log_poles is (n,), weights (directions, n), both complex; channel (n,) holds the owners in ascending order.
    Powers are taken in double precision, which keeps the phases exact over long sequences; the products are in
    the precision of the weights. Differentiable in poles and weights.

    >>> log_poles, weights = torch.tensor([0.5, 0.25]).log() + 0j, torch.ones(1, 2, dtype=torch.complex64)
    >>> kernel(log_poles, weights, torch.tensor([0, 2]), channels=3, length=3)
    tensor([[[1.0000, 0.5000, 0.2500],
             [0.0000, 0.0000, 0.0000],
             [1.0000, 0.2500, 0.0625]]])
    """
    kernels: Tensor = _Kernel.apply(log_poles, weights, channel, channels, length)  # type: ignore[no-untyped-call]
    return kernels


def convolve(u: Tensor, kernels: Tensor, backward_delay: int = 0) -> Tensor:
    """Return y_k = sum_j K[0, j] u_{k-j} and, with a second kernel, + sum_j K[1, j] u_{k+j+backward_delay}.

    u is (batch, length, H), kernels (1 or 2, H, length) for channels of their own, or (1 or 2, H, H, length), output by
    input; done in the frequency domain.
    """
    length = u.shape[1]
    size = fast_length(2 * length)  # so that nothing comes round the circle
    circular = pad(kernels[0], (0, size - length))
    if len(kernels) == 2:
        # What reaches back from later inputs stands at the end of the circle, K[1, 0] at -backward_delay.
        circular = circular + pad(kernels[1].flip(-1), (size - length, 0)).roll(1 - backward_delay, -1)
    y: Tensor = _Circular.apply(u, circular)  # type: ignore[no-untyped-call]
    return y


def fast_length(least: int) -> int:
    """Return the smallest power of two times a small odd factor of threes and fives that is not below `least`."""
    return min(odd << (-(-least // odd) - 1).bit_length() for odd in ODD_FACTORS)


class _Kernel(torch.autograd.Function):
    """The factored product; the tables are made again for the gradients rather than kept."""

    @staticmethod
    def forward(ctx: Any, log_poles: Tensor, weights: Tensor, channel: Tensor, channels: int, length: int) -> Tensor:
        log_poles, weights = pad(log_poles, (0, 1)), pad(weights, (0, 1))  # the silent state that fills gaps
        span = 1 << math.ceil(math.log2(length) / 2)  # T, a power of two near the root of the length
        blocks = -(-length // span)  # that cover the length
        layout = _lay_out(channel.long().cpu().numpy().tobytes(), channels, TABLE // span, channel.device)
        ctx.save_for_backward(log_poles, weights)
        ctx.span, ctx.blocks, ctx.layout = span, blocks, layout
        kernels = weights.real.new_empty(channels, len(weights) * blocks, span)
        kernels[: layout.empty] = 0
        for states, runs in layout.chunks:
            near, far = _tables(log_poles.index_select(0, states), span, weights.dtype)
            # Re(p q) is the inner product of conj(p) and q as pairs of real numbers.
            heads = (weights.index_select(1, states)[:, None] * far[:blocks]).conj_physical_().flatten(0, 1)
            for run in runs:
                torch.bmm(run.planes(heads), run.planes(near).mT, out=kernels[run.rows])
        kernels = kernels.index_select(0, layout.rank)
        return kernels.view(channels, len(weights), -1)[..., :length].movedim(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """With S_a = sum_b G[aT + b] λ^b: dw = conj(sum_a λ^{aT} S_a); a factor l = aT + b more is d log λ."""
        log_poles, weights = ctx.saved_tensors
        span, blocks, layout = ctx.span, ctx.blocks, ctx.layout
        directions, channels, length = grad.shape
        grad = grad.movedim(1, 0).index_select(0, layout.order)
        grad = pad(grad, (0, blocks * span - length)).view(channels, -1, span)
        exponents = torch.arange(span, dtype=grad.dtype, device=grad.device)[:, None]
        grad_log, grad_weights = torch.zeros_like(log_poles), torch.zeros_like(weights)
        for states, runs in layout.chunks:
            near, far = _tables(log_poles.index_select(0, states), span, weights.dtype)
            slope = exponents * near
            sums, slopes = near.new_empty(2, directions * blocks, len(states))
            for run in runs:
                run.planes(sums).copy_(torch.bmm(grad[run.rows], run.planes(near)))
                run.planes(slopes).copy_(torch.bmm(grad[run.rows], run.planes(slope)))
            sums, slopes = sums.unflatten(0, (-1, blocks)), slopes.unflatten(0, (-1, blocks))
            slopes += span * exponents[:blocks] * sums
            grad_weights[:, states] = (far[:blocks] * sums).sum(1).conj()
            by_direction = weights[:, states] * (far[:blocks] * slopes).sum(1)
            grad_log[states] = by_direction.sum(0).conj().to(grad_log.dtype)
        return grad_log[:-1], grad_weights[:, :-1], None, None, None


def _tables(log_poles: Tensor, span: int, dtype: torch.dtype) -> Tensor:
    """Return λ^b and λ^{aT} for a, b below T = span, a power of two, by doubling: (n,) -> (2, span, n).

    The factors λ^(2^j) are squared in double precision, so that an entry sees no more than log2 T roundings.
    """
    bits = span.bit_length() - 1
    squares = [log_poles.to(torch.complex128).exp()]
    while len(squares) < 2 * bits:
        squares.append(squares[-1] * squares[-1])
    # Products of vanishing powers would be denormal numbers, which many processors multiply very slowly.
    vanishing = torch.finfo(dtype).tiny ** 0.25
    planes = hardshrink(torch.view_as_real(torch.stack(squares).to(dtype)), vanishing)
    factors = torch.view_as_complex(planes)[: 2 * bits].view(2, bits, 1, len(log_poles))
    table = factors.new_empty(2, span, len(log_poles))
    table[:, 0] = 1
    for bit in range(bits):
        half = 1 << bit
        torch.mul(table[:, :half], factors[:, bit], out=table[:, half : 2 * half])
    return table


class _Run(NamedTuple):
    """Channels with equally many places for their states, side by side in a table."""

    rows: slice  # the channels, in the order of the layout
    places: int  # of each channel
    column: int  # of the first place in the table

    def planes(self, table: Tensor) -> Tensor:
        """View these places in a contiguous complex table (m, states) as real matrices (rows, m, 2 places)."""
        height, states = table.shape
        size = (self.rows.stop - self.rows.start, height, 2 * self.places)
        start = 2 * (table.storage_offset() + self.column)
        return torch.view_as_real(table).as_strided(size, (2 * self.places, 2 * states, 1), start)


class _Layout(NamedTuple):
    """Channels ordered by how many states they own, in runs, and the runs in chunks."""

    order: Tensor  # (channels,)
    rank: Tensor  # (channels,) where each went
    empty: int  # channels without a state, which come first
    chunks: list[tuple[Tensor, list[_Run]]]  # indices of states that are tabled at the same time; n: no state


@lru_cache(maxsize=128)  # by value, so that it holds whatever becomes of the tensor
def _lay_out(owners: bytes, channels: int, budget: int, device: torch.device) -> _Layout:
    """Lay out states by their int64 owners (n,), ascending, in chunks of about `budget` states."""
    bounds = np.searchsorted(np.frombuffer(owners, np.int64), np.arange(channels + 1))
    order = np.diff(bounds).argsort(kind="stable")
    begin, end = bounds[order], bounds[order + 1]
    parts: list[tuple[list[Any], list[_Run]]] = []
    room = 0  # left in the last chunk
    for rows, places in _similar(end - begin, budget):
        states = begin[rows, None] + np.arange(places)
        states[states >= end[rows, None]] = bounds[-1]
        if states.size > room:
            parts.append(([], []))
            room = budget
        parts[-1][0].append(states.ravel())
        parts[-1][1].append(_Run(rows, places, budget - room))
        room -= states.size
    chunks = [(torch.from_numpy(np.concatenate(part)).to(device), runs) for part, runs in parts]
    ordered, rank = (torch.from_numpy(places).to(device) for places in (order, order.argsort()))
    return _Layout(ordered, rank, int(np.sum(begin == end)), chunks)


def _similar(counts: np.ndarray[Any, Any], budget: int) -> Iterator[tuple[slice, int]]:
    """Group neighbours among ascending counts that share a run of at most `budget` places, and the places each gets.

    Similar counts (5 and 6, 7 and 8, 9 to 12, 13 to 16, ...) go together, with as many places as the largest needs: a
    few batched products do for all channels, and few places are left empty.

    >>> list(_similar(np.array([0, 2, 5, 6, 9, 9]), budget=100))
    [(slice(1, 2, None), 2), (slice(2, 4, None), 6), (slice(4, 6, None), 9)]
    """
    group = np.searchsorted(GROUPS, counts)
    edges = np.flatnonzero(group[1:] != group[:-1]) + 1
    for first, end in pairwise([0, *edges.tolist(), len(counts)]):
        places = int(counts[end - 1])
        if places:
            most = max(1, budget // places)
            yield from ((slice(top, min(top + most, end)), places) for top in range(first, end, most))


class _Circular(torch.autograd.Function):
    """y_k = sum_j K_j u_{k-j} round a circle, a few sequences at a time.

    u and y are (batch, length, H), K (H, size) or (H, H, size), output by input.

    Gradients are convolutions against time, by transforms of real numbers, where torch's own would be of complex ones.
    Sequences are transposed while they are in the cache and leave as the next layer reads them; otherwise activations
    and their gradients would step through memory.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, circular: Tensor) -> Tensor:
        size = ctx.size = circular.shape[-1]
        keep_freed_memory()
        response, spectra = torch.fft.rfft(circular), []
        y = torch.empty_like(u, dtype=torch.promote_types(u.dtype, circular.dtype))
        for rows in groups(len(u), size, len(circular)):
            spectra.append(torch.fft.rfft(u[rows].mT, size))
            mixed = response.dim() == 3
            product = _product(spectra[-1], response.transpose(0, 1)) if mixed else spectra[-1] * response
            y[rows] = torch.fft.irfft(product, size)[..., : u.shape[1]].mT
        ctx.save_for_backward(response, *spectra)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        response, *spectra = ctx.saved_tensors
        du, total = torch.empty_like(dy), torch.zeros_like(response)
        response = response.conj_physical()
        for rows, spectrum in zip(groups(len(dy), ctx.size, len(response)), spectra, strict=True):
            adjoint = torch.fft.rfft(dy[rows].mT, ctx.size)
            if response.dim() == 3:
                total += _product(adjoint.transpose(0, 1), spectrum.conj())
                adjoint = _product(adjoint, response)
            else:
                total += (adjoint * spectrum.conj()).sum(0)
                adjoint.mul_(response)
            du[rows] = torch.fft.irfft(adjoint, ctx.size)[..., : dy.shape[1]].mT
        return du, torch.fft.irfft(total, ctx.size)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right at each frequency, complex (., ., frequencies), by a real product: complex ones are slow."""
    left, right = left.permute(2, 0, 1).contiguous(), right.permute(2, 0, 1).resolve_conj()
    rows = torch.view_as_real(torch.stack([right, 1j * right], dim=2)).flatten(1, 2).flatten(2)
    both = torch.bmm(torch.view_as_real(left).flatten(2), rows)  # real and imaginary parts in turns
    return torch.view_as_complex(both.view(*both.shape[:-1], -1, 2)).permute(1, 2, 0)
