"""How large a model is, one of ours or any other of torch."""

from __future__ import annotations

from torch import nn


def parameters(model: nn.Module) -> int:
    """Return how many numbers training changes."""
    return sum(parameter.numel() for parameter in model.parameters())


def stored_bytes(model: nn.Module) -> int:
    """Return the bytes of all tensors, the parameters and what else a checkpoint holds."""
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))
