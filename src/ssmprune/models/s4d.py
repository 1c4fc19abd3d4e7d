"""The S4D layer: a diagonal system of its own for every channel."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from .config import LayerOptions
from .layer import DiagonalLayer, continuous_poles, discretize, hippo_n
from .s4d_kernel import fast_length, kernel
from .s5_kernel import groups, keep_freed_memory, scan, steps_at_once


class S4DLayer(DiagonalLayer):
    """y_k = sum_i gain Re(C_i x_k,i) + D u_k with x_k,i = λ_i x_k-1,i + B_i u_k, in every channel [Gu2022b].

    All channels' states lie in one flat list with their owner in `channel`, ascending; a channel may own any number of
    them, or none. A bidirectional layer reads states that run backwards with a second C, `backward_delay` steps later.

    >>> S4DLayer(width=3, n=12)(torch.zeros(2, 16, 3)).shape
    torch.Size([2, 16, 3])
    """

    channel: Tensor

    def __init__(self, width: int, n: int, options: LayerOptions = LayerOptions()) -> None:  # noqa: B008 (frozen)
        """Start with poles at S4D-LegS, shared out evenly to the channels; B = 1, random C, D and steps."""
        poles, channel = legs_poles(n, width, options.conj_sym)
        super().__init__(poles, options)
        self.backward_delay = options.backward_delay
        ones = torch.view_as_real(torch.ones(n, dtype=torch.complex64))
        if options.train_B:
            self.B = nn.Parameter(ones)
        else:
            self.register_buffer("B", ones)
        self.C = nn.Parameter(torch.randn(1 + options.bidirectional, n, 2) * 0.5**0.5)
        self.D = nn.Parameter(torch.randn(width))
        log_step = torch.empty(width).uniform_(math.log(options.step_min), math.log(options.step_max))
        self.log_step = nn.Parameter(log_step)
        self.register_buffer("channel", channel)
        self.register_buffer("mask", torch.ones(n, dtype=torch.bool))

    def discretized(self) -> tuple[Tensor, Tensor]:
        """Return log λ_bar (n,) and B_bar (n,), complex, differentiable; masked states have no input."""
        log_poles, B_bar = self._exact()
        return log_poles.to(self._readout.dtype), B_bar.to(self._readout.dtype)

    def kernel(self, length: int) -> Tensor:
        """Return K[d, h, l] = gain Re sum_{i in h} C_i B_bar_i λ_bar_i^l for each direction d."""
        log_poles, B_bar = self._exact()
        weights = (self.gain * B_bar * self._readout).to(self._readout.dtype)
        return kernel(log_poles, weights, self.channel, len(self.D), length)

    def forward(self, u: Tensor) -> Tensor:  # (batch, length, H) -> the same
        """Return the layer's output for whole sequences that start from a silent state, by convolution."""
        return torch.addcmul(convolve(u, self.kernel(u.shape[1]), self.backward_delay), self.D, u)

    def stream(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, chunk, H)
        """Return the outputs for the next chunk of a sequence and the state after it."""
        self.check_streaming()
        poles, B_bar = self._matrices()
        outputs = []
        for part in torch.split(u, steps_at_once(max(1, len(u) * len(poles))), dim=1):
            x = scan(self._drive(part, B_bar), poles, state)
            outputs.append(torch.addcmul(self._read_out(x), self.D, part))
            state = x[:, -1]
        return torch.cat(outputs, dim=1), state

    def step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, H)
        """Return the output for the next token and the state after it."""
        self.check_streaming()
        poles, B_bar = self._matrices()
        state = torch.addcmul(self._drive(u, B_bar), poles, state)
        return torch.addcmul(self._read_out(state), self.D, u), state

    @property
    def _readout(self) -> Tensor:
        return torch.view_as_complex(self.C)  # (directions, n)

    def _exact(self) -> tuple[Tensor, Tensor]:
        """Return `discretized` in double precision: a long sequence multiplies the error of a phase."""
        step = self.log_step.double().exp().index_select(0, self.channel) * self.step_rescale
        poles = continuous_poles(self.pole_re.double(), self.pole_im.double(), self.pole_form)
        log_poles, factor = discretize(poles, step, self.discretization)
        return log_poles, factor * self.mask * torch.view_as_complex(self.B)

    def _matrices(self) -> tuple[Tensor, Tensor]:
        """Return λ_bar (n,) and B_bar (n,)."""
        log_poles, B_bar = self._exact()
        return log_poles.exp().to(self._readout.dtype), B_bar.to(self._readout.dtype)

    def _drive(self, u: Tensor, B_bar: Tensor) -> Tensor:
        """Return what u (..., H) feeds into each state (..., n)."""
        return B_bar * u.gather(-1, self._owners(u))

    def _read_out(self, x: Tensor) -> Tensor:
        """Return gain Re(C x) summed over the states (..., n) of each channel: (..., H)."""
        parts = self.gain * (self._readout[0] * x).real
        return parts.new_zeros(*x.shape[:-1], len(self.D)).scatter_add(-1, self._owners(x), parts)

    def _owners(self, like: Tensor) -> Tensor:
        return self.channel.expand(*like.shape[:-1], -1)


def legs_poles(n: int, width: int, conj_sym: bool) -> tuple[Tensor, Tensor]:
    """Share n states out evenly to the channels; return S4D-LegS poles (n,) complex64 and owners (n,), ascending.

    Every channel gets the poles of HiPPO-N, on Re = -1/2; with `conj_sym` the half with Im > 0, slowest first.
    """
    state = torch.arange(n)
    channel = state * width // max(n, 1)
    rank = state - (channel * n + width - 1) // width  # within the channel
    most = -(-n // width)
    poles, _ = hippo_n(2 * most if conj_sym else most)
    return poles[:most].flip(0)[rank].to(torch.complex64), channel


def convolve(u: Tensor, kernels: Tensor, backward_delay: int = 0) -> Tensor:
    """Return y_k = sum_j K[0, j] u_{k-j} and, with a second kernel, + sum_j K[1, j] u_{k+j+backward_delay}.

    u is (batch, length, H), kernels (1 or 2, H, length); done channel by channel in the frequency domain.
    """
    length = u.shape[1]
    size = fast_length(2 * length)  # so that nothing comes round the circle
    circular = pad(kernels[0], (0, size - length))
    if len(kernels) == 2:
        # What reaches back from later inputs stands at the end of the circle, K[1, 0] at -backward_delay.
        circular = circular + pad(kernels[1].flip(-1), (size - length, 0)).roll(1 - backward_delay, -1)
    y: Tensor = _Circular.apply(u, circular)  # type: ignore[no-untyped-call]
    return y


class _Circular(torch.autograd.Function):
    """y_k = sum_j K_j u_{k-j} round a circle, u and y (batch, length, H), K (H, size), a few sequences at a time.

    Gradients are convolutions against time, by transforms of real numbers, where torch's own would be of complex ones.
    Sequences are transposed while they are in the cache and leave as the next layer reads them; otherwise activations
    and their gradients would step through memory.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, circular: Tensor) -> Tensor:
        size = ctx.size = circular.shape[1]
        keep_freed_memory()
        response, spectra = torch.fft.rfft(circular), []
        y = torch.empty_like(u, dtype=torch.promote_types(u.dtype, circular.dtype))
        for rows in groups(len(u), size, len(circular)):
            spectra.append(torch.fft.rfft(u[rows].mT, size))
            y[rows] = torch.fft.irfft(spectra[-1] * response, size)[..., : u.shape[1]].mT
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
            total += (adjoint * spectrum.conj()).sum(0)
            du[rows] = torch.fft.irfft(adjoint.mul_(response), ctx.size)[..., : dy.shape[1]].mT
        return du, torch.fft.irfft(total, ctx.size)
