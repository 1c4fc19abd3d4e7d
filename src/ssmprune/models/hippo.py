"""HiPPO-N, the normal part of HiPPO-LegS, in diagonal form: where the poles of S5 and S4D start."""

from __future__ import annotations

import torch
from torch import Tensor


def hippo_n(n: int) -> tuple[Tensor, Tensor]:
    """Poles (n,) and orthonormal eigenvectors V (n, n) of HiPPO-N, complex128, by descending imaginary part.

    With A the HiPPO-LegS matrix and p_i = sqrt(i + 1/2), the matrix A + p p^T = V diag(poles) V^H is -1/2 plus
    a skew-symmetric one, so its poles are conjugate pairs on the line Re = -1/2. The first n/2 poles are the half
    with Im > 0; the pole n-1-k is the conjugate of the pole k.

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
