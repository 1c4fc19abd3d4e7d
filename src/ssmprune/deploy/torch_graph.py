"""A classifier as a torch graph in real arithmetic, for whole sequences or step by step, and as torch.export's file."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..models.classifier import Classifier, added
from ._real_layers import RealLayer, with_real_layers


@dataclass(frozen=True)
class Graph:
    """A module that can be traced, arguments to trace it with, and which of their axes are free."""

    module: nn.Module
    example: tuple[Any, ...]
    free: tuple[Any, ...]


def sequence_graph(model: Classifier) -> Graph:
    """Return the graph from whole sequences to logits."""
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    return Graph(OverSequence(with_real_layers(model), model.config.pooling), (_zeros(model, 2, 3),), (free,))


def stream_graph(model: Classifier) -> Graph:
    """Return the graph from one step to the logits of the prefix, with the state as input and output."""
    steps, total, states = blank_state(model, 2)
    batch = {0: torch.export.Dim.DYNAMIC}
    module = OverStep(with_real_layers(model), model.config.pooling)
    return Graph(module, (_zeros(model, 2), steps, total, states), (batch, {}, batch, [batch] * len(states)))


def blank_state(model: Classifier, batch: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return steps, total and the states of all layers before the first step of a stream graph."""
    layers = [cast(RealLayer, block.ssm) for block in with_real_layers(model).blocks]
    total = model.initial_state(batch).total
    return torch.zeros((), dtype=torch.int64), total, [layer.blank(batch) for layer in layers]


def to_bytes(graph: Graph) -> bytes:
    """Return the file that `torch.export.load` reads."""
    content = io.BytesIO()
    with quiet():
        torch.export.save(torch.export.export(graph.module, graph.example, dynamic_shapes=graph.free), content)
    return content.getvalue()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep torch's exporter from telling of its own deprecations and of packages it does without."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


class OverSequence(nn.Module):
    """Whole sequences to logits."""

    def __init__(self, model: Classifier, pooling: str) -> None:
        """Take over a model whose layers are real."""
        super().__init__()
        self.model, self.pooling = model, pooling

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (batch, outputs), or (batch, length, outputs) without pooling."""
        x = self.model.encoder(x)
        for block in self.model.blocks:
            x = block(x)
        return self.model.head(x.mean(1) if self.pooling == "mean" else x[:, -1] if self.pooling == "last" else x)


class OverStep(nn.Module):
    """One step to the logits of the prefix, with the state as input and output."""

    def __init__(self, model: Classifier, pooling: str) -> None:
        """Take over a model whose layers are real."""
        super().__init__()
        self.model, self.pooling = model, pooling

    def forward(
        self, x: Tensor, steps: Tensor, total: Tensor, states: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """Return logits, steps, total, states."""
        renewed, steps = [], steps + 1
        x = self.model.encoder(x)
        for block, before in zip(self.model.blocks, states, strict=True):
            x, after = block.step(x, before)
            renewed.append(after)
        total = added(total, x)
        if self.pooling == "mean":
            x = total[:, 0] / steps
        return self.model.head(x), steps, total, renewed


def _zeros(model: Classifier, *shape: int) -> Tensor:
    """Return an input of this shape without its features: tokens, or zeros."""
    if model.config.tokens:
        return torch.zeros(shape, dtype=torch.int64)
    return model.decoder.weight.new_zeros(*shape, model.config.inputs)
