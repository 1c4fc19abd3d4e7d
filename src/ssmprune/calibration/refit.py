"""Re-fitting a pruned model layer by layer, each on what the pruned layers before it let through.

A fit can only be trusted as far as the data go. So some sequences are held out, and say how far each layer's new C and
D move: from the old ones towards those that fit the layer for the inputs that the whole model gives it, and from there
towards those that also mend what earlier layers lost.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..adapters import Adapter, Layer, layers_of
from ..apply import shrink
from ..arrays import Complex, Mask, Real
from ..core.layout import ChannelLayout
from ..core.least_squares import WeightChange, fit_shrunk, most_cautious
from ..core.moments import readout, weights
from ..core.system import DiagonalSystem
from ..errors import need_torch
from ..planning.plan import Plan
from .batches import SEQUENCES, Padded, Unlabelled, count, take

if TYPE_CHECKING:
    from torch import nn

    from .passes import Passes
    from .recording import MomentSums, Sequences

    Sums: TypeAlias = tuple[MomentSums, MomentSums]  # of what is to be fitted, and of what is held out

HELD_OUT = 5  # one pair of sequences in so many is held out
FEW = 40  # sequences, fewer than which are split in halves


def refit_in_sequence(
    plan: Plan,
    model: Any,
    batches: Iterable[Any],
    *,
    sequences: int | None = SEQUENCES,
    every: int | None = None,
    ridge: float | None = None,
    adapter: Adapter | None = None,
) -> Plan:
    """Return any method's plan with C and D re-fitted on data, so that each layer also mends what earlier ones lost.

    Layer by layer in the order of the forward pass: the kept states are driven by what comes through the pruned and
    re-fitted layers before, and their C and D are fitted to the output of the unpruned model's layer on the same
    sequences. A fifth of these is held out and says how far to trust the fit: where it does not help on them, a layer
    stays as `refit` has it, or as it was; and so does the whole model. Of forty sequences or more, those held out
    choose the ridge and are then fitted as well.

    The data are those of `collect`, as are `sequences` and `every`.
    ridge: the share of each regressor's energy that counts as noise, as in `refit`; all data are then fitted and none
        held out.
    """
    need_torch()
    import torch

    from .recording import refuse_what_cannot_run, takes_pairs

    plan.check({path: layer.read() for path, layer in layers_of(model, adapter).items()})
    refuse_what_cannot_run(model)
    taken = take(batches, sequences)
    seen, held_out = (taken, []) if ridge is not None else split(taken, pairs=takes_pairs(model))
    with torch.no_grad():
        fitted = _fit_layers(plan, model, _Data(seen, held_out, every), ridge, adapter)
    return replace(fitted, sequences=count(taken))


def split(batches: list[Unlabelled], *, pairs: bool = False) -> tuple[list[Unlabelled], list[Unlabelled]]:
    """Return batches of the sequences to fit, and of those that are held out: every fifth pair of sequences.

    Of fewer than forty sequences it is every second pair, of two or three the last sequence, of a single one nothing.
    A model that compares sequences can spare none of a single pair.

    >>> import torch
    >>> fitted, held_out = split([torch.arange(4)[:, None], torch.arange(4, 7)[:, None]])
    >>> [batch.ravel().tolist() for batch in fitted], [batch.ravel().tolist() for batch in held_out]
    ([[0, 1], [4, 5]], [[2, 3], [6]])
    """
    import torch

    total = count(batches)
    if total == 1 or (pairs and total < 4):
        return batches, []
    every, size = (HELD_OUT, 2) if total >= FEW else (2, 2) if total >= 4 else (total, 1)
    held = torch.arange(total) // size % every == every - 1
    parts: tuple[list[Unlabelled], list[Unlabelled]] = [], []
    for batch, own in zip(batches, torch.split(held, [count([batch]) for batch in batches]), strict=True):
        for part, rows in zip(parts, (~own, own), strict=True):
            if rows.any():
                part.append(Padded(batch.x[rows], batch.lengths[rows]) if isinstance(batch, Padded) else batch[rows])
    return parts


class _Data:
    """Slices of the sequences to fit, and of those that are held out."""

    def __init__(self, seen: list[Unlabelled], held_out: list[Unlabelled], every: int | None) -> None:
        from .recording import in_slices

        self.seen, self.held_out, self.every = list(in_slices(seen)), list(in_slices(held_out)), every
        self.slices = [*self.seen, *self.held_out]
        self.sequences = sum(len(part.x) for part in self.slices)

    def sums(self, system: DiagonalSystem) -> Sums:
        """Return empty sums for both."""
        from .recording import MomentSums

        return MomentSums(system, self.every, self.sequences), MomentSums(system, self.every, self.sequences)


def _fit_layers(plan: Plan, model: Any, data: _Data, ridge: float | None, adapter: Adapter | None) -> Plan:
    """Return the plan with what was fitted, as far as it does better on what was held out."""
    from .passes import Passes
    from .recording import order_of_layers

    whole, pruned = copy.deepcopy(model).eval(), copy.deepcopy(model).eval()
    layers = layers_of(pruned, adapter)
    alone, in_sequence = _Fitted(), _Fitted()
    order = order_of_layers(whole, data.slices[0], layers)
    with (
        Passes(whole, layers, data.slices, again=False) as wholes,
        Passes(pruned, layers, data.slices, again=True) as smalls,
    ):
        for path in order:
            layer = layers[path]
            layer.shrink(plan.keep[path])
            system = layer.read()
            own, sequential = _measure(wholes, smalls, path, system, data)
            refittable = ChannelLayout.of(system).spread(~system.unstable_states)
            changes = _changes(sequential if path == order[0] else own, sequential, refittable, ridge)
            for fitted, change in zip((alone, in_sequence), changes, strict=True):
                fitted.take(path, system, change)
            in_sequence.write(layer)
    plans = [replace(plan, C=fitted.C, D_change=fitted.D_change) for fitted in (_Fitted(), alone, in_sequence)]
    return _best(plans, model, data.held_out, adapter) if data.held_out else plans[-1]


def _measure(wholes: Passes, smalls: Passes, path: str, system: DiagonalSystem, data: _Data) -> tuple[Sums, Sums]:
    """Take all passes to a layer; return what its output lacks for the whole model's inputs and for the pruned one's.

    Both on what is to be fitted and on what is held out.
    """
    own, sequential = data.sums(system), data.sums(system)
    for number in range(len(data.slices)):
        part = number >= len(data.seen)
        for whole, small in zip(wholes.reach(number, path), smalls.reach(number, path), strict=True):
            sequential[part].add(small.u, small.y, small.lengths, whole.y - small.y)
            own[part].add(whole.u, whole.y, whole.lengths, whole.y - smalls.call(path, whole))
    return own, sequential


def _changes(own: Sums, sequential: Sums, refittable: Mask, ridge: float | None) -> tuple[WeightChange, WeightChange]:
    """Return the change of a layer that suits the whole model's inputs, and the one that suits the pruned one's."""
    if ridge is not None:
        return own[0].sample().fit(refittable, ridge), sequential[0].sample().fit(refittable, ridge)
    if not own[1].samples:  # nothing says what a fit to the pruned model's inputs is worth
        alone = own[0].sample().fit(refittable)
        return alone, alone
    (own_seen, own_held_out), (seen, held_out) = ([sums.sample() for sums in both] for both in (own, sequential))
    few = seen.sequences + held_out.sequences < FEW  # what was held out of few is also to judge the whole model by
    every = [None if few else (sums[0] + sums[1]).sample() for sums in (own, sequential)]
    alone = fit_shrunk(own_seen, own_held_out, refittable, own_seen.no_change, every[0])
    best = alone if own is sequential else fit_shrunk(seen, held_out, refittable, alone, every[1])
    helps = held_out.after(best).error <= held_out.error
    return alone, best if helps else seen.no_change


class _Fitted:
    """The C and D of re-fitted layers."""

    def __init__(self) -> None:
        self.C: dict[str, Complex] = {}
        self.D_change: dict[str, Real] = {}

    def take(self, path: str, system: DiagonalSystem, change: WeightChange) -> None:
        """Note what a change makes of a layer; one without any stays out."""
        if change.weights.any() or change.D.any():
            self.C[path] = readout(system, weights(system) + change.weights)
            self.D_change[path] = change.D.ravel()

    def write(self, layer: Layer) -> None:
        """Put it into a layer that has been shrunk."""
        if layer.path in self.C:
            C = self.C[layer.path]
            layer.refit(np.ones(C.shape[2], bool), C, self.D_change[layer.path])


def _best(plans: list[Plan], model: nn.Module, held_out: list[Sequences], adapter: Adapter | None) -> Plan:
    """Return the plan whose model comes nearest to the answers of the whole one, by `most_cautious`."""
    from .recording import answer

    whole = copy.deepcopy(model).eval()
    candidates = [shrink(whole, plan, adapter=adapter) for plan in plans]
    errors = np.zeros(len(plans))
    for part in held_out:
        expected = answer(whole, part)
        if expected is None:  # a model whose answers cannot be compared: each layer has been judged by its own
            return plans[-1]
        for place, small in enumerate(candidates):
            given = answer(small, part)
            errors[place] += np.inf if given is None else float((given - expected).abs().square().sum())
    return plans[most_cautious(errors.tolist(), sum(len(part.x) for part in held_out))]
