"""Re-fitting a pruned model layer by layer, each on what the pruned layers before it let through."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from .adapters import layers_of
from .checkpoint import need_torch
from .features import Layout, readout, weights
from .plan import Plan
from .surgeon import take_over


def refit_in_sequence(plan: Plan, model: Any, batches: Iterable[Any]) -> Plan:
    """Return any method's plan with C and D re-fitted on data, so that each layer also mends what earlier ones lost.

    Layer by layer in the order of the forward pass: the kept states are driven by what comes through the pruned and
    re-fitted layers before, and their C and D are fitted to the output of the unpruned model's layer on the same
    sequences. The batches are those of `collect`; labels are not needed.
    """
    need_torch()
    from .sampling import Tally, compare, order_of_layers, slices

    plan.check({path: adapter.read(layer, "keep") for path, (adapter, layer) in layers_of(model).items()})
    parts = list(slices(batches))
    whole, pruned = copy.deepcopy(model).eval(), copy.deepcopy(model).eval()
    C, D_change = {}, {}
    for path in order_of_layers(whole, parts[0], plan.keep):
        adapter, layer = layers_of(pruned)[path]
        adapter.shrink(layer, plan.keep[path])
        system = adapter.read(layer, "keep")
        tally = Tally(system)
        for part in parts:
            compare(whole, pruned, path, part, tally)
        change, D = take_over(tally.moments(), tally.residual(), Layout.of(system).spread(~system.unstable_states))
        C[path], D_change[path] = readout(system, weights(system) + change), D.ravel()
        adapter.refit(layer, np.ones(system.n, bool), C[path], D_change[path])
    return replace(plan, C=C, D_change=D_change)
