"""How weights start: poles at HiPPO-N, dense weights as truncated normal numbers whose variance undoes the fan-in."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CUT_DEVIATION = 0.87962566103423978  # of a standard normal variable cut at -2 and 2


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
