"""Starting from a model that is trained already, also for another kind of question.

Then its layers stay and the head is new. It is fitted alone first, while the features stay as they are: a random head
on trained layers sends them noise for gradients, and they forget what they know before it has learned anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InputError
from ..models.block import measure_statistics
from ..models.classifier import Classifier
from ..models.config import Config
from ..tasks.task import Split
from .evaluation import Tick, loss_of, tensors

BATCH = 32
EPOCHS = 8
RATE = 0.001
DECAY = 1.0  # strong: a head can learn some thousand examples by heart
MEASURED = 64  # batches that batch norms take their statistics for evaluation from
# A feature that hardly moves is not blown up to the size of the others: its deviation counts as at least these shares
# of the largest one, and of its own mean, which raw features make the head subtract in single precision.
OF_LARGEST, OF_MEAN = 1e-3, 0.02


def tunable(start: Classifier, wanted: Config) -> Classifier:
    """Return a copy of `start` to train for what a recipe wants: with its dropout, not that of the old training.

    A model that compares documents, made of one that does not, keeps what that has learned up to its last layer; its
    head has random weights until `fit_head`. The same the other way round.
    """
    had = start.config
    if had.family != wanted.family:
        raise InputError(f"The recipe is for {wanted.family}, the model to start from is an {had.family}.")
    same = had.retrieval == wanted.retrieval
    outputs = had.outputs if same else wanted.outputs
    model = Classifier(dataclasses.replace(had, outputs=outputs, retrieval=wanted.retrieval, dropout=wanted.dropout))
    names = [name for name, _ in start.named_children()] if same else ["encoder", "layers"]
    for name in names:
        model.get_submodule(name).load_state_dict(start.get_submodule(name).state_dict())
    return model


def fit_head(model: Classifier, split: Split, tick: Tick = lambda count: None) -> None:
    """Fit the head of a model to the features that its layers give for the examples of a split."""
    device = next(model.parameters()).device
    with torch.no_grad():
        measure_statistics(model, ((x, lengths) for x, _, lengths in _batches(split, device, MEASURED)))
        model.eval()
        parts = []
        for x, labels, lengths in _batches(split, device):
            parts.append((model.features(x, lengths), labels))
            tick(len(labels))
        model.train()
    features, labels = torch.stack([features for features, _ in parts]), torch.stack([labels for _, labels in parts])
    scale, shift = torch.std_mean(features, dim=(0, 1), correction=0)
    scale = torch.maximum(scale.clamp(min=OF_LARGEST * float(scale.max())), OF_MEAN * shift.abs())
    scale[scale == 0] = 1
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
    of_a, of_b, of_difference, of_product = model.hidden.weight.chunk(4, dim=1)
    product, shifted = of_product / scale**2, shift / scale  # (a - s)(b - s) = ab - sa - sb + s²
    weight = [of_a / scale - product * shift, of_b / scale - product * shift, of_difference / scale, product]
    _absorb(model.hidden, torch.cat(weight, dim=1), (of_a + of_b) @ shifted - of_product @ shifted**2)


def _absorb(layer: nn.Linear, weight: Tensor, offset: Tensor) -> None:
    layer.weight.copy_(weight)
    layer.bias.sub_(offset)


def _batches(
    split: Split, device: torch.device, count: int | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield whole batches of examples in a random order that is always the same."""
    order = np.random.default_rng(0).permutation(len(split))
    size = min(BATCH, len(split))
    for batch in order[: len(order) // size * size].reshape(-1, size)[:count]:
        yield tensors(split.batch(batch), device)
