"""How large the activations of a model become on real inputs: what its whole numbers must hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from ..calibration.data import Sequences, count, in_slices
from ..calibration.record import answer
from ..errors import InputError
from ..models.classifier import Classifier
from ..models.layers import S5Layer
from ..models.s5_kernel import scan_
from ..quantisation.grid import Ranges
from .reference import Reference
from .whole import LARGEST, MARGIN, whole_of

Raw = tuple[float | Sequence[float], float | Sequence[float]]  # scale and offset, for all inputs or for each

CHECKED = 16_384  # steps that the reference computes, which is slow, to count what saturates


@torch.no_grad()
def compute_in_integers(model: Classifier, batches: list[Sequences], raw: Raw | None = None) -> None:
    """Give a model on a grid of 8 bits the ranges of its activations; its history says how well they fit."""
    assert model.grid is not None
    grid = replace(model.grid, ranges=find_ranges(model, batches, raw))
    model.grid = grid
    reference, parts = Reference(whole_of(model)), list(in_slices(batches, model))
    few = parts[: max(1, int((np.cumsum([part.x.shape[0] * part.x.shape[1] for part in parts]) <= CHECKED).sum()))]
    same = []
    for part in few:
        ours = reference(reference.whole.units.samples(part.x.cpu().numpy()), part.lengths).argmax(-1)
        floats = cast(Tensor, answer(model, part))  # a classifier's is never None
        same += (ours == floats.argmax(-1).numpy(force=True)).ravel().tolist()
    model.record(
        f"in whole numbers by the ranges of {count(batches)} sequences times {MARGIN}: on {count(few)} of them "
        f"{reference.saturated} of {reference.activations} numbers saturate, {sum(same)} of {len(same)} answers are "
        "the same"
    )
    model.grid = grid  # with the ranges, which go whenever something is recorded


@torch.no_grad()
def find_ranges(model: Classifier, batches: list[Sequences], raw: Raw | None) -> Ranges:
    """Return the largest activations on these sequences; raw: the scale and the offset of the samples of a sensor."""
    largest: dict[str, float] = {}
    for part in in_slices(batches, model):
        for name, values in _activations(model, part):
            largest[name] = max(largest.get(name, 0.0), float(values.abs().max()))
    scale, offset = _raw(model, MARGIN * max(largest.pop("input"), 1e-6) / LARGEST, raw)
    return Ranges(largest, scale, offset)


def _activations(model: Classifier, part: Sequences) -> Iterator[tuple[str, Tensor]]:
    """Yield what a model computes of some sequences, by name; the residual stream comes between all blocks."""
    device = next(model.parameters()).device
    inputs, lengths = part.x.to(device), None if part.lengths is None else part.lengths.to(device).long()
    padding = model.padding(inputs, lengths)
    yield "input", inputs
    x = model.encoder(inputs)
    for place, block in enumerate(model.blocks):
        path, u = f"layers.{place}", block.enter(x, padding)
        y = block.ssm(u)
        yield from (("stream", x), (f"{path}.u", u), (f"{path}.y", y))
        for name in ("gate", "value"):
            if (layer := getattr(block, name)) is not None:
                yield f"{path}.{name}", layer(block.gelu(y))
        if isinstance(block.ssm, S5Layer):
            log_poles, B = block.ssm.discretized()
            for backward in (False, True)[: 1 + block.ssm.bidirectional]:
                states = scan_(u.to(B.dtype) @ B.mT, log_poles.exp(), backward)
                yield f"{path}.state", torch.view_as_real(states)
        x = block.leave(x, y)
    yield "stream", x
    pooled = model.pool(x, lengths)
    yield "pooled", pooled
    if model.hidden is not None:
        joint = model.pairs(pooled)
        yield from (("joint", joint), ("hidden", model.hidden(joint)))
    yield "logits", model.head(pooled)


def _raw(model: Classifier, unit: float, raw: Raw | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the scale and the offset of each input."""
    if model.config.tokens:
        if raw is not None:
            raise InputError("Tokens are whole numbers already; raw=(scale, offset) is for models that take samples.")
        return (), ()
    scale, offset = np.broadcast_arrays(*(unit, 0.0) if raw is None else raw, np.zeros(model.config.inputs))[:2]
    if not (np.isfinite(scale) & (scale > 0) & np.isfinite(offset)).all():
        raise InputError(f"raw is a positive scale and an offset, for all inputs or for each; got {raw!r}.")
    return tuple(scale.tolist()), tuple(offset.tolist())
