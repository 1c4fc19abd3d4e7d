"""Re-fitting a pruned model layer by layer, each on what the pruned layers before it let through."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..adapters import Adapter, layers_of
from ..errors import need_torch
from ..layout import ChannelLayout
from ..plan import Plan
from ..regression.least_squares import RIDGE, fit_residual
from ..regression.weights import readout, weights
from .batches import SEQUENCES, take


def refit_in_sequence(
    plan: Plan,
    model: Any,
    batches: Iterable[Any],
    *,
    sequences: int | None = SEQUENCES,
    every: int | None = None,
    ridge: float = RIDGE,
    adapter: Adapter | None = None,
) -> Plan:
    """Return any method's plan with C and D re-fitted on data, so that each layer also mends what earlier ones lost.

    Layer by layer in the order of the forward pass: the kept states are driven by what comes through the pruned and
    re-fitted layers before, and their C and D are fitted to the output of the unpruned model's layer on the same
    sequences. The data are those of `collect`, as are `sequences` and `every`; `ridge` is that of `refit`.
    """
    need_torch()
    from .recording import MomentSums, in_slices, order_of_layers, record_residual, refuse_what_cannot_run

    plan.check({path: layer.read() for path, layer in layers_of(model, adapter).items()})
    refuse_what_cannot_run(model)
    parts = list(in_slices(take(batches, sequences)))
    whole, pruned = copy.deepcopy(model).eval(), copy.deepcopy(model).eval()
    layers = layers_of(pruned, adapter)
    C, D_change = {}, {}
    for path in order_of_layers(whole, parts[0], layers):
        layer = layers[path]
        layer.shrink(plan.keep[path])
        system = layer.read()
        sums = MomentSums(system, every)
        for part in parts:
            record_residual(whole, pruned, layer, part, sums)
        refittable = ChannelLayout.of(system).spread(~system.unstable_states)
        change, D = fit_residual(sums.moments(), sums.residual(), refittable, ridge)
        C[path], D_change[path] = readout(system, weights(system) + change), D.ravel()
        layer.refit(np.ones(system.n, bool), C[path], D_change[path])
    return replace(plan, C=C, D_change=D_change, sequences=sum(len(part.x) for part in parts))
