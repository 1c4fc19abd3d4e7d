"""How large a model is, one of ours or any other of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import nn

from ._grid import Grid, to_file

if TYPE_CHECKING:
    from .classifier import Classifier


def parameters(model: nn.Module) -> int:
    """Return how many numbers training changes."""
    return sum(parameter.numel() for parameter in model.parameters())


def stored_bytes(model: nn.Module) -> int:
    """Return the bytes of all tensors, the parameters and what else a checkpoint holds, as it holds them.

    Weights on a grid of 8 or 4 bits count as such, with their scales.
    """
    if isinstance(getattr(model, "grid", None), Grid):
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in model.state_dict().items()}
        return sum(array.nbytes for array in to_file(cast("Classifier", model), arrays)[0].values())
    return sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))
