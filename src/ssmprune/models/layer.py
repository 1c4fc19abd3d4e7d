"""What layers share: poles as parameters, their way into discrete time, differentiably, and how weights start.

Poles start at HiPPO-N, dense weights as truncated normal numbers whose variance undoes the fan-in.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..errors import InputError
from .config import CLIP, LayerOptions

CUT_DEVIATION = 0.87962566103423978  # of a standard normal variable cut at -2 and 2


class DiagonalLayer(nn.Module):
    """A diagonal system whose poles are parameters; states whose `mask` is False get no input and stay silent.

    `n` counts stored states; with `conj_sym` each stands for a conjugate pair and the gain is 2.
    Subclasses have the methods `discretized`, `forward` for whole sequences, `stream` for chunks and `step`.
    """

    B: Tensor
    mask: Tensor

    def __init__(self, width: int, poles: Tensor, B: Tensor, C: Tensor, options: LayerOptions) -> None:
        """Store poles (n,), B and C as real numbers; D and the steps, of states or of channels, are drawn."""
        super().__init__()
        self.bidirectional, self.conj_sym = options.bidirectional, options.conj_sym
        self.discretization, self.pole_form = options.discretization, options.pole_form
        self.step_rescale = options.step_rescale
        self.pole_re = nn.Parameter(stored_real_part(poles.real, self.pole_form))
        self.pole_im = nn.Parameter(poles.imag.clone())
        for_channels = B.dim() == 1  # then B stays 1 unless it is asked to learn
        if for_channels and not options.train_B:
            self.register_buffer("B", torch.view_as_real(B))
        else:
            self.B = nn.Parameter(torch.view_as_real(B).contiguous())
        self.C = nn.Parameter(torch.view_as_real(C).contiguous())
        self.D = nn.Parameter(torch.randn(width))
        steps = torch.empty(width if for_channels else len(poles))
        self.log_step = nn.Parameter(steps.uniform_(math.log(options.step_min), math.log(options.step_max)))
        self.register_buffer("mask", torch.ones(len(poles), dtype=torch.bool))

    @property
    def gain(self) -> float:
        """2 where a stored state stands for a conjugate pair, otherwise 1."""
        return 2.0 if self.conj_sym else 1.0

    def initial_state(self, batch: int) -> Tensor:
        """Return the silent state (batch, n), which a stream starts from."""
        self.check_streaming()
        return self.pole_re.new_zeros(batch, len(self.pole_re), dtype=self.pole_re.dtype.to_complex())

    def check_streaming(self) -> None:
        """Refuse to stream a layer that also reads backwards."""
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


def truncated_normal(*shape: int, deviation: float) -> Tensor:
    """Draw normal numbers cut at two deviations and widened so that what remains has the deviation asked for."""
    wide = deviation / CUT_DEVIATION
    return nn.init.trunc_normal_(torch.empty(shape), std=wide, a=-2 * wide, b=2 * wide)


def dense(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer with weights of variance 1/inputs and no bias to begin with."""
    layer = nn.Linear(inputs, outputs)
    layer.weight = nn.Parameter(truncated_normal(outputs, inputs, deviation=inputs**-0.5))
    nn.init.zeros_(layer.bias)
    return layer


def embedding(tokens: int, width: int) -> nn.Embedding:
    """Return what `dense` without a bias would make of one-hot tokens."""
    layer = nn.Embedding(tokens, width)
    layer.weight = nn.Parameter(truncated_normal(tokens, width, deviation=tokens**-0.5))
    return layer


def hippo_n(n: int) -> tuple[Tensor, Tensor]:
    """Return poles (n,) and orthonormal eigenvectors V (n, n) of HiPPO-N, complex128, by descending imaginary part.

    HiPPO-N, the normal part of HiPPO-LegS, is where the poles of S5 and S4D start. With A the HiPPO-LegS matrix and
    p_i = sqrt(i + 1/2), the matrix A + p p^T = V diag(poles) V^H is -1/2 plus a skew-symmetric one, so its poles are
    conjugate pairs on the line Re = -1/2. The first n/2 poles are the half with Im > 0; the pole n-1-k is the
    conjugate of the pole k.

    >>> poles, V = hippo_n(4)
    >>> poles[:2].imag > 0
    tensor([True, True])
    >>> torch.allclose(poles.flip(0), poles.conj())
    True
    """
    p = (torch.arange(n, dtype=torch.float64) + 0.5).sqrt()
    # A is -2 p_i p_k below the diagonal, so A + p p^T is -p_i p_k there, +p_i p_k above it, and -1/2 on it.
    outer = torch.outer(p, p)
    skew = outer.triu(1) - outer.tril(-1)
    imaginary, V = torch.linalg.eigh(-1j * skew)  # ascending
    return torch.complex(torch.full_like(imaginary, -0.5), imaginary).flip(0), V.flip(1)
