"""The S5 layer: one diagonal system with many inputs and outputs."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor, nn

from ..errors import InputError
from ._memo import Remembered
from .config import check_choices
from .hippo import hippo_n
from .initialisation import truncated_normal
from .parametrisation import continuous_poles, discretize
from .s5_kernel import respond

Matrices: TypeAlias = tuple[Tensor, Tensor, Tensor]


class S5Layer(nn.Module):
    """y_k = gain Re(C x_k) + D u_k with x_k = λ_bar x_{k-1} + B_bar u_k (Smith et al., 2023).

    `n` counts stored states; with `conj_sym` each stands for a conjugate pair and the gain is 2. A bidirectional
    layer runs a second scan backwards in time over the same B_bar u and reads it with a second C. States whose `mask`
    is False get no input and stay silent.
    """

    mask: Tensor

    def __init__(
        self,
        width: int,
        n: int,
        *,
        blocks: int = 1,
        bidirectional: bool = False,
        conj_sym: bool = True,
        discretization: str = "zoh",
        pole_form: str = "exp",
        step_min: float = 1e-3,
        step_max: float = 1e-1,
        step_rescale: float = 1.0,
    ) -> None:
        """Poles at HiPPO-N, random B, C, D and steps between step_min and step_max."""
        super().__init__()
        check_choices(discretization=discretization, pole_form=pole_form)
        self.bidirectional, self.conj_sym = bidirectional, conj_sym
        self.discretization, self.pole_form = discretization, pole_form
        self.step_rescale = step_rescale
        poles, B, C = initial_system(width, n, blocks, 2 if bidirectional else 1, conj_sym)
        self.pole_re = nn.Parameter((-poles.real).log() if pole_form == "exp" else poles.real.clone())
        self.pole_im = nn.Parameter(poles.imag.clone())
        self.B = nn.Parameter(torch.view_as_real(B).contiguous())  # (n, H, 2)
        self.C = nn.Parameter(torch.view_as_real(C).contiguous())  # (directions, H, n, 2)
        self.D = nn.Parameter(torch.randn(width))
        self.log_step = nn.Parameter(torch.empty(n).uniform_(math.log(step_min), math.log(step_max)))
        self.register_buffer("mask", torch.ones(n, dtype=torch.bool))
        self._memory: Remembered[Matrices] = Remembered()

    @property
    def gain(self) -> float:
        """2 where a stored state stands for a conjugate pair, otherwise 1."""
        return 2.0 if self.conj_sym else 1.0

    def discretized(self) -> tuple[Tensor, Tensor]:
        """log λ_bar (n,) and B_bar (n, H), complex, differentiable; masked states have no input."""
        poles = continuous_poles(self.pole_re, self.pole_im, self.pole_form)
        log_poles, factor = discretize(poles, self.log_step.exp() * self.step_rescale, self.discretization)
        return log_poles, (factor * self.mask)[:, None] * torch.view_as_complex(self.B)

    def forward(self, u: Tensor) -> Tensor:  # (batch, length, H) -> the same
        """The layer's output for whole sequences that start from a silent state."""
        return respond(u, *self._matrices(), self.D)[0]

    def initial_state(self, batch: int) -> Tensor:
        """The silent state (batch, n)."""
        self._memory.forget()
        return self.B.new_zeros(batch, len(self.pole_re), dtype=self.B.dtype.to_complex())

    def stream(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, chunk, H)
        """The outputs for the next chunk of a sequence and the state after it."""
        self._refuse_streaming_both_ways()
        return respond(u, *self._matrices(), self.D, state)

    def step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # u (batch, H)
        """The output for the next token and the state after it."""
        self._refuse_streaming_both_ways()
        poles, B, C = self._matrices() if torch.is_grad_enabled() else self._remembered_matrices()
        state = torch.addcmul(torch.view_as_complex((u @ B.mT).view(len(u), -1, 2)), poles, state)
        return torch.addcmul(torch.view_as_real(state).flatten(1) @ C[0].mT, self.D, u), state

    def _refuse_streaming_both_ways(self) -> None:
        if self.bidirectional:
            raise InputError("A bidirectional layer needs the whole sequence; only unidirectional models stream.")

    def _remembered_matrices(self) -> Matrices:
        tensors = (self.pole_re, self.pole_im, self.B, self.C, self.log_step, self.mask)
        return self._memory.get(tensors, self.step_rescale, self._matrices)

    def _matrices(self) -> Matrices:
        """λ_bar (n,) and the real B (2n, H), C (directions, H, 2n) that act on [Re x_1, Im x_1, Re x_2, ...]."""
        log_poles, B_bar = self.discretized()
        C = self.gain * torch.view_as_complex(self.C).conj()  # Re(c x) is the scalar product of conj(c) and x
        return log_poles.exp(), torch.view_as_real(B_bar).mT.flatten(0, 1), torch.view_as_real(C).flatten(2)


def initial_system(width: int, n: int, blocks: int, directions: int, conj_sym: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Poles (n,), B (n, H), C (directions, H, n) in complex64: random real B and complex C seen by HiPPO-N's states.

    `blocks` copies of HiPPO-N share the states; with `conj_sym` the states of a block with Im > 0 are kept.
    B_bar = V^-1 B and C_bar = C V with truncated normal B, C of variance 1 / (states before halving).
    """
    blocks = min(blocks, n)
    kept = -(-n // blocks)  # states of a block that are stored; the last block is cut when n is no multiple
    size = 2 * kept if conj_sym else kept
    poles, V = hippo_n(size)
    poles, V = poles[:kept].to(torch.complex64), V[:, :kept].to(torch.complex64)
    deviation = (blocks * size) ** -0.5
    B = V.mH @ truncated_normal(blocks, size, width, deviation=deviation).to(V.dtype)
    C = torch.view_as_complex(truncated_normal(directions, width, blocks, size, 2, deviation=deviation)) @ V
    return poles.repeat(blocks)[:n], B.flatten(0, 1)[:n], C.flatten(2)[..., :n]
