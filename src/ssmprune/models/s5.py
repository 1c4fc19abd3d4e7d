"""The S5 layer: one diagonal system with many inputs and outputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .config import LayerOptions
from .layer import DiagonalLayer, continuous_poles, discretize, hippo_n, truncated_normal
from .s4d_kernel import convolve, kernel
from .s5_kernel import convolution_pays, respond


class S5Layer(DiagonalLayer):
    """y_k = gain Re(C x_k) + D u_k with x_k = λ_bar x_{k-1} + B_bar u_k [Smith2023].

    A bidirectional layer runs a second scan backwards in time over the same B_bar u and reads it with a second C.

    >>> S5Layer(width=3, n=4)(torch.zeros(2, 16, 3)).shape
    torch.Size([2, 16, 3])
    """

    def __init__(self, width: int, n: int, options: LayerOptions = LayerOptions()) -> None:  # noqa: B008 (frozen)
        """Start with poles at HiPPO-N or on a ring, random B, C, D and steps between step_min and step_max, or of 1."""
        ring = options.initial_poles == "ring"
        poles, B, C = (ring_system if ring else hippo_system)(width, n, options)
        super().__init__(width, poles, B, C, options)
        if ring:
            torch.nn.init.zeros_(self.log_step)

    def discretized(self) -> tuple[Tensor, Tensor]:
        """Return log λ_bar (n,) and B_bar (n, H), complex, differentiable; masked states have no input."""
        log_poles, factor = self.discretization_factors()
        return log_poles, factor[:, None] * torch.view_as_complex(self.B)

    def discretization_factors(self) -> tuple[Tensor, Tensor]:
        """Return log λ_bar (n,) and B_bar / B (n,), complex, differentiable; zero for masked states."""
        poles = continuous_poles(self.pole_re, self.pole_im, self.pole_form)
        log_poles, factor = discretize(poles, self.log_step.exp() * self.step_rescale, self.discretization)
        return log_poles, factor * self.mask

    def forward(self, u: Tensor) -> Tensor:  # (batch, length, H) -> the same
        """Return the layer's output for whole sequences that start from a silent state."""
        if not self.bidirectional and convolution_pays(len(self.pole_re), u.shape[2]):
            return torch.addcmul(convolve(u, self._kernels(u.shape[1])), self.D, u)
        return respond(u, *self._matrices(), self.D)[0]

    def stream(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, chunk, H)
        """Return the outputs for the next chunk of a sequence and the state after it."""
        self.check_streaming()
        return respond(u, *self._matrices(), self.D, state)

    def step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, H)
        """Return the output for the next token and the state after it."""
        self.check_streaming()
        poles, B, C = self._matrices()
        state = torch.addcmul(torch.view_as_complex((u @ B.mT).view(len(u), -1, 2)), poles, state)
        return torch.addcmul(torch.view_as_real(state).flatten(1) @ C[0].mT, self.D, u), state

    def _kernels(self, length: int) -> Tensor:
        """Return gain Re C λ_bar^l B_bar for l below the length: (1, H, H, length), output by input."""
        log_poles, B_bar = self.discretized()
        C = self.gain * torch.view_as_complex(self.C[0])
        pairs, owner = (C[:, None] * B_bar.mT).flatten(0, 1), torch.zeros_like(self.mask, dtype=torch.long)
        return kernel(log_poles, pairs, owner, 1, length).view(1, len(C), len(C), length)

    def _matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return λ_bar (n,) and real B (2n, H), C (directions, H, 2n) that act on [Re x_1, Im x_1, Re x_2, ...]."""
        log_poles, B_bar = self.discretized()
        C = self.gain * torch.view_as_complex(self.C).conj()  # Re(c x) is the scalar product of conj(c) and x
        return log_poles.exp(), torch.view_as_real(B_bar).mT.flatten(0, 1), torch.view_as_real(C).flatten(2)


def hippo_system(width: int, n: int, options: LayerOptions) -> tuple[Tensor, Tensor, Tensor]:
    """Return poles (n,), B (n, H), C (directions, H, n) in complex64: random B and C seen by HiPPO-N's states.

    `blocks` copies of HiPPO-N share the states; with `conj_sym` the states of a block with Im > 0 are kept.
    B_bar = V^-1 B and C_bar = C V with real B and complex C, truncated normal of variance 1 / (states before halving).
    """
    blocks = min(options.blocks, n)
    kept = -(-n // blocks)  # states of a block that are stored; the last block is cut when n is no multiple
    size = 2 * kept if options.conj_sym else kept
    poles, V = hippo_n(size)
    poles, V = poles[:kept].to(torch.complex64), V[:, :kept].to(torch.complex64)
    deviation = (blocks * size) ** -0.5
    B = V.mH @ truncated_normal(blocks, size, width, deviation=deviation).to(V.dtype)
    parts = truncated_normal(1 + options.bidirectional, width, blocks, size, 2, deviation=deviation)
    C = torch.view_as_complex(parts) @ V
    return poles.repeat(blocks)[:n], B.flatten(0, 1)[:n], C.flatten(2)[..., :n]


def ring_system(width: int, n: int, options: LayerOptions) -> tuple[Tensor, Tensor, Tensor]:
    """Return poles (n,), B (n, H), C (directions, H, n) in complex64, started as in LRU [Orvieto2023].

    The poles λ_bar of a step of 1 are spread evenly over the area of a ring, or of its half with Im > 0 with
    `conj_sym`, where a state decays by e^-step_max to e^-step_min in a step. B_bar = sqrt(1 - |λ_bar|^2) times normal
    numbers, so that white noise drives all states alike; B is what the zero-order hold turns into that.
    """
    slowest, fastest = math.exp(-2 * options.step_min), math.exp(-2 * options.step_max)
    squared = torch.empty(n).uniform_(fastest, slowest)
    angle = torch.empty(n).uniform_(0 if options.conj_sym else -math.pi, math.pi)
    poles = torch.complex(squared.log() / 2, angle)
    B_bar = (1 - squared).sqrt()[:, None] * torch.randn(n, width, dtype=torch.complex64) / math.sqrt(width)
    C = torch.randn(1 + options.bidirectional, width, n, dtype=torch.complex64) * math.sqrt(2 / n)
    return poles, B_bar / discretize(poles, torch.ones(n), "zoh")[1][:, None], C
