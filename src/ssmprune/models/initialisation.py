"""How dense weights start: truncated normal numbers whose variance undoes the fan-in."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CUT_DEVIATION = 0.87962566103423978  # of a standard normal variable cut at -2 and 2


def truncated_normal(*shape: int, deviation: float) -> Tensor:
    """Normal numbers cut at two deviations and widened so that what remains has the deviation asked for."""
    wide = deviation / CUT_DEVIATION
    return nn.init.trunc_normal_(torch.empty(shape), std=wide, a=-2 * wide, b=2 * wide)


def dense(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer with weights of variance 1/inputs and no bias to begin with."""
    layer = nn.Linear(inputs, outputs)
    layer.weight = nn.Parameter(truncated_normal(outputs, inputs, deviation=inputs**-0.5))
    nn.init.zeros_(layer.bias)
    return layer


def embedding(tokens: int, width: int) -> nn.Embedding:
    """What `dense` without a bias would make of one-hot tokens."""
    layer = nn.Embedding(tokens, width)
    layer.weight = nn.Parameter(truncated_normal(tokens, width, deviation=tokens**-0.5))
    return layer
