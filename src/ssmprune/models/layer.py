"""What the S5 and the S4D layer share: poles as parameters, and their way into discrete time, differentiably."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import InputError
from .config import CLIP, LayerOptions


class DiagonalLayer(nn.Module):
    """A diagonal system whose poles are parameters; states whose `mask` is False get no input and stay silent.

    Subclasses have the methods `discretized`, `forward` for whole sequences, `stream` for chunks and `step`.
    """

    B: Tensor
    C: Tensor
    D: Tensor
    log_step: Tensor
    mask: Tensor

    def __init__(self, poles: Tensor, options: LayerOptions) -> None:
        """Take over the options and store poles (n,) in the form that the options name."""
        super().__init__()
        self.bidirectional, self.conj_sym = options.bidirectional, options.conj_sym
        self.discretization, self.pole_form = options.discretization, options.pole_form
        self.step_rescale = options.step_rescale
        self.pole_re = nn.Parameter(stored_real_part(poles.real, self.pole_form))
        self.pole_im = nn.Parameter(poles.imag.clone())

    @property
    def gain(self) -> float:
        """2 where a stored state stands for a conjugate pair, otherwise 1."""
        return 2.0 if self.conj_sym else 1.0

    def initial_state(self, batch: int) -> Tensor:
        """Return the silent state (batch, n)."""
        return self.pole_re.new_zeros(batch, len(self.pole_re), dtype=self.pole_re.dtype.to_complex())

    def _refuse_streaming_both_ways(self) -> None:
        if self.bidirectional:
            raise InputError("A bidirectional layer needs the whole sequence; only unidirectional models stream.")


def continuous_poles(pole_re: Tensor, pole_im: Tensor, form: str) -> Tensor:
    """Return poles λ (n,); Re λ = -exp(pole_re) for "exp", min(pole_re, -1e-4) for "clip", pole_re for "free"."""
    if form == "exp":
        return torch.complex(-pole_re.exp(), pole_im)
    return torch.complex(pole_re.clamp(max=CLIP) if form == "clip" else pole_re, pole_im)


def stored_real_part(real: Tensor, form: str) -> Tensor:
    """Return the `pole_re` from which `continuous_poles` makes poles with these real parts."""
    return (-real).log() if form == "exp" else real.clone()


def discretize(poles: Tensor, step: Tensor, method: str) -> tuple[Tensor, Tensor]:
    """Return log λ_bar and the factor B_bar / B of x' = λ x + B u sampled every `step`, all of shape (n,).

    "zoh": λ_bar = e^{λ step}, factor (λ_bar - 1) / λ.
    "bilinear": λ_bar = (1 + λ step/2) / (1 - λ step/2), factor step / (1 - λ step/2).

    >>> log_poles, factor = discretize(torch.tensor([-1 + 0j]), torch.tensor([0.1]), "zoh")
    >>> log_poles.real, factor.real
    (tensor([-0.1000]), tensor([0.0952]))
    """
    z = poles * step
    if method == "bilinear":
        a, b = z.real / 2, z.imag / 2
        decay = 0.5 * torch.log1p(4 * a / ((1 - a) ** 2 + b**2))  # log |λ_bar|, exact for slow poles too
        angle = torch.atan2(b, 1 + a) + torch.atan2(b, 1 - a)
        return torch.complex(decay, angle), step / (1 - z / 2)
    still = poles == 0
    return z, torch.where(still, step.to(z.dtype), torch.expm1(z) / torch.where(still, 1, poles))
