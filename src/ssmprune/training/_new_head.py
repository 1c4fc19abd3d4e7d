"""A new head on layers that have learned to read: fitted alone first, while the features stay as they are.

A random head on trained layers sends them noise for gradients, and they forget what they know before it has learned
anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from ..models.block import measure_statistics
from ..models.classifier import Classifier
from ..tasks._task import Split
from .evaluate import loss_of, tensors

BATCH = 32
EPOCHS = 8
RATE = 0.001
DECAY = 1.0  # features are few, examples are not many: a head can learn these by heart
MEASURED = 64  # batches that batch norms take their statistics from
SMALLEST = 1e-3  # of the largest deviation: a feature that hardly moves is not blown up to the size of the others


def fit_head(model: Classifier, split: Split) -> None:
    """Fit the head of a model to the features that its layers give for the examples of a split."""
    with torch.no_grad():
        measure_statistics(model, ((x, lengths) for x, _, lengths in _batches(split, MEASURED)))
        model.eval()
        parts = [(model.features(x, lengths), labels) for x, labels, lengths in _batches(split)]
        model.train()
    features, labels = torch.stack([features for features, _ in parts]), torch.stack([labels for _, labels in parts])
    scale, shift = torch.std_mean(features, dim=(0, 1))
    scale = scale.clamp(min=SMALLEST * float(scale.max()))
    features = (features - shift) / scale  # so that one rate suits them all
    head = [parameter for part in (model.hidden, model.decoder) if part is not None for parameter in part.parameters()]
    optimizer = torch.optim.AdamW(head, weight_decay=DECAY)
    steps = EPOCHS * len(parts)
    order = np.random.default_rng(0).permuted(np.tile(np.arange(len(parts)), (EPOCHS, 1)), axis=1).ravel()
    for step, number in enumerate(order):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(model.head(features[number]), labels[number]).mean())
        optimizer.step()
    take_raw_features(model, shift, scale)


@torch.no_grad()
def take_raw_features(model: Classifier, shift: Tensor, scale: Tensor) -> None:
    """Let a head that was fitted to (features - shift) / scale take the features themselves, for the same answers."""
    if model.hidden is None:
        _absorb(model.decoder, model.decoder.weight / scale, model.decoder.weight @ (shift / scale))
        return
    a, b, difference, product = model.hidden.weight.chunk(4, dim=1)
    # (a - s)(b - s) = ab - sa - sb + s²
    linear, quadratic, offset = shift / scale, product / scale**2, (a + b) @ (shift / scale)
    weight = [a / scale - quadratic * shift, b / scale - quadratic * shift, difference / scale, quadratic]
    _absorb(model.hidden, torch.cat(weight, dim=1), offset - product @ linear**2)


def _absorb(layer: nn.Linear, weight: Tensor, offset: Tensor) -> None:
    layer.weight.copy_(weight)
    layer.bias.sub_(offset)


def _batches(split: Split, count: int | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield whole batches of examples in a random order that is always the same."""
    order = np.random.default_rng(0).permutation(len(split))
    size = min(BATCH, len(split))
    for batch in order[: len(order) // size * size].reshape(-1, size)[:count]:
        yield tensors(split.batch(batch), torch.device("cpu"))
