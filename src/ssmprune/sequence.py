"""Re-fitting a pruned model layer by layer, each on what the pruned layers before it let through."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from .adapters import Adapter, layers_of
from .errors import need_torch
from .features import Layout, readout, weights
from .plan import Plan
from .surgeon import take_over


def refit_in_sequence(plan: Plan, model: Any, batches: Iterable[Any], *, adapter: Adapter | None = None) -> Plan:
    """Return any method's plan with C and D re-fitted on data, so that each layer also mends what earlier ones lost.

    Layer by layer in the order of the forward pass: the kept states are driven by what comes through the pruned and
    re-fitted layers before, and their C and D are fitted to the output of the unpruned model's layer on the same
    sequences. The batches are those of `collect`; labels are not needed.
    """
    need_torch()
    from .sampling import Tally, compare, order_of_layers, refuse_what_cannot_run, slices

    layers = layers_of(model, adapter)
    plan.check({path: layer.read() for path, layer in layers.items()})
    refuse_what_cannot_run(model)
    parts = list(slices(batches))
    whole, pruned = copy.deepcopy(model).eval(), copy.deepcopy(model).eval()
    C, D_change = {}, {}
    places = {layer.calling_module: path for path, layer in layers.items()}
    families = {layer.calling_module: layer.family for layer in layers.values()}
    layers = layers_of(pruned, adapter)
    for place in order_of_layers(whole, parts[0], families):
        path = places[place]
        layer = layers[path]
        layer.shrink(plan.keep[path])
        system = layer.read()
        tally = Tally(system)
        for part in parts:
            compare(whole, pruned, {place: layer.family}, part, tally)
        change, D = take_over(tally.moments(), tally.residual(), Layout.of(system).spread(~system.unstable_states))
        C[path], D_change[path] = readout(system, weights(system) + change), D.ravel()
        layer.refit(np.ones(system.n, bool), C[path], D_change[path])
    return replace(plan, C=C, D_change=D_change)
