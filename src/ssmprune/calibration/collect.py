"""Collecting the second moments of every layer of a model, in one pass over unlabelled inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..adapters import Adapter, layers_of
from ..core.moments import Moments
from ..core.system import DiagonalSystem
from .data import SEQUENCES, Sequences, count, in_slices, take


def collect(
    model: Any,
    batches: Iterable[Any],
    *,
    sequences: int | None = SEQUENCES,
    every: int | None = None,
    adapter: Adapter | None = None,
) -> dict[str, Moments]:
    """Run a torch model on unlabelled inputs and return the moments of every SSM layer, in one pass.

    batches: a list or a DataLoader of what the model takes, x (batch, length, ...); of tuples and lists the first
        member is x and the rest, such as labels, is ignored. `Sequences(x, lengths)` says where padding begins.
    sequences: how many to look at; None for all.
    every: count one step in this many; chosen by `sums.stride` unless given.

    >>> import torch
    >>> from ssmprune.models.s5 import S5Layer
    >>> x, labels = torch.randn(300, 20, 2), torch.zeros(300)
    >>> moments = collect(torch.nn.Sequential(torch.nn.Linear(2, 3), S5Layer(3, 4)), [(x, labels)])
    >>> moments["1"].gram.shape, moments["1"].sequences
    ((1, 4, 2, 4, 2), 200)
    """
    systems = {path: layer.read() for path, layer in layers_of(model, adapter).items()}
    return collect_states(model, systems, take(batches, sequences), every=every, adapter=adapter)


def collect_states(
    model: Any,
    systems: Mapping[str, DiagonalSystem],
    batches: list[Sequences],
    *,
    every: int | None = None,
    adapter: Adapter | None = None,
) -> dict[str, Moments]:
    """Return the moments of the states of these systems, whichever they are, at the inputs of the model's layers."""
    import torch

    from .record import evaluating, record, refuse_what_cannot_run
    from .sums import MomentSums

    refuse_what_cannot_run(model)
    layers, total = layers_of(model, adapter), count(batches)
    sums = {path: MomentSums(system, every, total) for path, system in systems.items()}
    with torch.no_grad(), evaluating(model):
        for sequences in in_slices(batches):
            record(model, sequences, layers, {path: layer_sums.add for path, layer_sums in sums.items()})
    return {path: layer_sums.moments() for path, layer_sums in sums.items()}
