"""A layer of many states and few inputs and outputs over whole sequences: one kernel for each input and output.

A scan carries all states through time for every sequence of a batch. Here kernels are made once for the batch, and
states appear nowhere else, so that training a layer of 256 states and width 8 takes a seventh of the time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .s4d import fast_length
from .s4d_kernel import kernel

FEWEST_STATES = 128


def convolution_pays(n: int, width: int) -> bool:
    """Tell whether a layer has so many states for its width that kernels beat a scan.

    >>> convolution_pays(256, 8), convolution_pays(64, 96)
    (True, False)
    """
    return n >= max(FEWEST_STATES, width * width)


def convolve(u: Tensor, log_poles: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """Return y_k = Re sum_j C λ^j B u_{k-j} + D u_k (batch, length, H), differentiable.

    u is (batch, length, H), log_poles (n,), B (n, H), C (H, n), complex, D (H,).
    """
    length, width = u.shape[1:]
    pairs = (C[:, None] * B.mT).flatten(0, 1)  # (H H, n): output by input
    owner = torch.zeros(len(log_poles), dtype=torch.long, device=u.device)
    kernels = kernel(log_poles, pairs, owner, 1, length).view(width, width, length)
    y: Tensor = _Convolution.apply(u.mT, kernels)  # type: ignore[no-untyped-call]
    return torch.addcmul(y.mT, D, u)


class _Convolution(torch.autograd.Function):
    """y_k = sum_j K_j u_{k-j}, u and y (batch, H, length), K (outputs, inputs, length), in the frequency domain.

    Gradients are convolutions against time, so that transforms of real numbers do here, too.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, kernels: Tensor) -> Tensor:
        size = fast_length(2 * u.shape[2])  # so that nothing comes round the circle
        spectrum, response = torch.fft.rfft(u, size), torch.fft.rfft(kernels, size)
        ctx.save_for_backward(spectrum, response)
        ctx.length, ctx.size = u.shape[2], size
        y: Tensor = torch.fft.irfft(_product(spectrum, response.transpose(0, 1)), size)[..., : u.shape[2]]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        spectrum, response = ctx.saved_tensors
        adjoint = torch.fft.rfft(dy, ctx.size)
        du = torch.fft.irfft(_product(adjoint, response.conj()), ctx.size)[..., : ctx.length]
        dK = torch.fft.irfft(_product(adjoint.transpose(0, 1), spectrum.conj()), ctx.size)[..., : ctx.length]
        return du, dK


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right at each frequency, complex (., ., frequencies), by a real product: complex ones are slow."""
    left, right = left.permute(2, 0, 1).contiguous(), right.permute(2, 0, 1).resolve_conj()
    rows = torch.view_as_real(torch.stack([right, 1j * right], dim=2)).flatten(1, 2).flatten(2)
    both = torch.bmm(torch.view_as_real(left).flatten(2), rows)  # real and imaginary parts in turns
    return torch.view_as_complex(both.view(*both.shape[:2], -1, 2)).permute(1, 2, 0)
