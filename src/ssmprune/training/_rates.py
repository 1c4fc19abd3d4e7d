"""Learning rates: which parameters learn how fast, and when."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from .recipes import Recipe

SSM_PARAMETERS = {"pole_re", "pole_im", "log_step", "B"}


def parameter_groups(model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """The paper's two groups: poles, steps and B at the SSM rate without decay, all else at the usual rate."""
    ssm: list[Tensor] = []
    rest: list[Tensor] = []
    for name, parameter in model.named_parameters():
        *owners, leaf = name.split(".")
        (ssm if "ssm" in owners and leaf in SSM_PARAMETERS else rest).append(parameter)
    return [
        {"params": ssm, "lr": recipe.ssm_lr, "peak": recipe.ssm_lr, "weight_decay": 0.0},
        {"params": rest, "lr": recipe.lr, "peak": recipe.lr, "weight_decay": recipe.weight_decay},
    ]


def rate(step: int, steps: int, warmup: float) -> float:
    """Share of the peak learning rate at `step`: linear for the first `warmup` steps, then half a cosine to zero.

    >>> [round(rate(step, 10, 2), 2) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return min(1.0, (step + 1) / warmup)
    return 0.5 + 0.5 * math.cos(math.pi * (step - warmup) / max(1.0, steps - warmup))
