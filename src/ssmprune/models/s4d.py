"""The S4D layer: a diagonal system of its own for every channel."""

from __future__ import annotations

import torch
from torch import Tensor

from .config import LayerOptions
from .layer import DiagonalLayer, continuous_poles, discretize, hippo_n
from .s4d_kernel import convolve, kernel
from .s5_kernel import scan, steps_at_once


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
        state = torch.arange(n)
        channel = state * width // max(n, 1)
        rank = state - (channel * n + width - 1) // width  # within the channel
        most = -(-n // width)
        poles, _ = hippo_n(2 * most if options.conj_sym else most)
        poles = poles[:most].flip(0)[rank].to(torch.complex64)  # slowest first
        C = torch.view_as_complex(torch.randn(1 + options.bidirectional, n, 2) * 0.5**0.5)
        super().__init__(width, poles, torch.ones_like(poles), C, options)
        self.backward_delay = options.backward_delay
        self.register_buffer("channel", channel)

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
