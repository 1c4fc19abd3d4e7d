"""The matrix products of a forward pass alone: what no implementation that uses torch's products can beat."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ssmprune.models.config import Config
from work import products


def bare_products(config: Config, batch: int, length: int) -> Callable[[], None]:
    """Return a call that does the float32 matrix products of a forward pass and nothing else.

    Operands are whole (batch * length, H) matrices and results go to memory that is there already, so no
    implementation that uses torch's products can be expected to take less.
    """
    needed = list(products(config, batch, length))
    left = {(p.rows, p.inner): torch.randn(p.rows, p.inner) for p in needed}
    right = [torch.randn(p.inner, p.outer) for p in needed]
    results = {(p.rows, p.outer): torch.empty(p.rows, p.outer) for p in needed}

    def run() -> None:
        for p, weight in zip(needed, right, strict=True):
            torch.mm(left[p.rows, p.inner], weight, out=results[p.rows, p.outer])

    return run
