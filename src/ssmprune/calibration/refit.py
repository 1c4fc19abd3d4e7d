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
from ..arrays import Complex, Mask, Real
from ..core.layout import ChannelLayout
from ..core.least_squares import WeightChange, fit_shrunk, most_cautious
from ..core.moments import readout, weights
from ..core.system import DiagonalSystem
from ..errors import need_torch
from ..planning.plan import Plan
from .data import SEQUENCES, Sequences, count, in_slices, take

if TYPE_CHECKING:
    from torch import nn

    from .record import Walk
    from .sums import MomentSums

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
    plan.check({path: layer.read() for path, layer in layers_of(model, adapter).items()})
    return refit_on(take(batches, sequences), plan, model, every=every, ridge=ridge, adapter=adapter)


def refit_on(
    batches: list[Sequences],
    plan: Plan,
    model: Any,
    *,
    every: int | None = None,
    ridge: float | None = None,
    adapter: Adapter | None = None,
) -> Plan:
    """Do what `refit_in_sequence` does, on data that were taken, with a plan that is known to be the model's."""
    need_torch()
    import torch

    from .record import evaluating, refuse_what_cannot_run, takes_pairs

    refuse_what_cannot_run(model)
    seen, held_out = (batches, []) if ridge is not None else split(batches, pairs=takes_pairs(model))
    with torch.no_grad(), evaluating(model):
        fitted = _fit_layers(plan, model, _Data(seen, held_out, every), ridge, adapter)
    return replace(fitted, sequences=count(batches))


def split(batches: list[Sequences], *, pairs: bool = False) -> tuple[list[Sequences], list[Sequences]]:
    """Return batches of the sequences to fit, and of those that are held out: every fifth pair of sequences.

    Of fewer than forty sequences it is every second pair, of two or three the last sequence, of a single one nothing.
    A model that compares sequences can spare none of a single pair.

    >>> import torch
    >>> fitted, held_out = split([Sequences(torch.arange(4)[:, None]), Sequences(torch.arange(4, 7)[:, None])])
    >>> [batch.x.ravel().tolist() for batch in fitted], [batch.x.ravel().tolist() for batch in held_out]
    ([[0, 1], [4, 5]], [[2, 3], [6]])
    """
    import torch

    total = count(batches)
    if total == 1 or (pairs and total < 4):
        return batches, []
    every, size = (HELD_OUT, 2) if total >= FEW else (2, 2) if total >= 4 else (total, 1)
    held = torch.arange(total) // size % every == every - 1
    masks = torch.split(held, [len(batch.x) for batch in batches])
    pairs_of_parts = [(batch.rows(~mask), batch.rows(mask)) for batch, mask in zip(batches, masks, strict=True)]
    fitted, held_out = ([part for part in parts if len(part.x)] for parts in zip(*pairs_of_parts, strict=True))
    return fitted, held_out


class _Data:
    """Slices of the sequences to fit, and of those that are held out."""

    def __init__(self, seen: list[Sequences], held_out: list[Sequences], every: int | None) -> None:
        self.seen, self.held_out, self.every = list(in_slices(seen)), list(in_slices(held_out)), every
        self.slices = [*self.seen, *self.held_out]
        self.sequences = count(self.slices)

    def sums(self, system: DiagonalSystem) -> Sums:
        """Return empty sums for both."""
        from .sums import MomentSums

        return MomentSums(system, self.every, self.sequences), MomentSums(system, self.every, self.sequences)


def _fit_layers(plan: Plan, model: nn.Module, data: _Data, ridge: float | None, adapter: Adapter | None) -> Plan:
    """Return the plan with what was fitted, as far as it does better on what was held out."""
    from .record import Walk, order_of_layers

    pruned = copy.deepcopy(model).eval()
    layers = layers_of(pruned, adapter)
    alone, in_sequence = _Fitted(), _Fitted()
    order = order_of_layers(model, data.slices[0], layers)
    whole, small = Walk(model, layers, data.slices), Walk(pruned, layers, data.slices)
    for path in order:
        layer = layers[path]
        layer.shrink(plan.keep[path])
        system = layer.read()
        own, sequential = _measure(whole, small, path, system, data)
        refittable = ChannelLayout.of(system).spread(~system.unstable_states)
        changes = _changes(sequential if path == order[0] else own, sequential, refittable, ridge)
        for fitted, change in zip((alone, in_sequence), changes, strict=True):
            fitted.take(path, system, change)
        in_sequence.write(layer)
    if data.held_out:
        best = _best(model, pruned, alone, plan, data.held_out, adapter)
        return (_Fitted(), alone, in_sequence)[best].put_into(plan)
    return in_sequence.put_into(plan)


def _measure(whole: Walk, small: Walk, path: str, system: DiagonalSystem, data: _Data) -> tuple[Sums, Sums]:
    """Take all slices to a layer; return what its output lacks for the whole model's inputs and for the pruned one's.

    Both on what is to be fitted and on what is held out.
    """
    own, sequential = data.sums(system), data.sums(system)
    for number in range(len(data.slices)):
        part = number >= len(data.seen)
        for before, after in zip(whole.reach(number, path), small.reach(number, path), strict=True):
            sequential[part].add(after, before.y - after.y)
            own[part].add(before, before.y - small.call(path, before))
    return own, sequential


def _changes(own: Sums, sequential: Sums, refittable: Mask, ridge: float | None) -> tuple[WeightChange, WeightChange]:
    """Return the change of a layer that suits the whole model's inputs, and the one that suits the pruned one's."""
    if ridge is not None:
        return own[0].sample().fit(refittable, ridge), sequential[0].sample().fit(refittable, ridge)
    if not own[1].samples:  # nothing says what a fit to the pruned model's inputs is worth
        alone = own[0].sample().fit(refittable)
        return alone, alone
    (own_seen, own_held_out), (seen, held_out) = ([sums.sample() for sums in both] for both in (own, sequential))
    few = seen.sequences + held_out.sequences < FEW  # then the held-out ones also choose between the plans
    all_data = [None if few else (sums[0] + sums[1]).sample() for sums in (own, sequential)]
    alone = fit_shrunk(own_seen, own_held_out, refittable, own_seen.no_change, all_data[0])
    best = alone if own is sequential else fit_shrunk(seen, held_out, refittable, alone, all_data[1])
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

    def put_into(self, plan: Plan) -> Plan:
        """Return a plan with it."""
        return replace(plan, C=self.C, D_change=self.D_change)


def _best(
    whole: nn.Module,
    in_sequence: nn.Module,
    alone: _Fitted,
    plan: Plan,
    held_out: list[Sequences],
    adapter: Adapter | None,
) -> int:
    """Return which model comes nearest to the whole one's answers, by `most_cautious`.

    0 is the pruned model without any fit, 1 that whose layers were fitted alone, 2 that whose were fitted in sequence.
    """
    from .record import answer

    answers = [answer(whole, sequences) for sequences in held_out]
    expected = [wanted for wanted in answers if wanted is not None]
    if len(expected) < len(answers):  # they cannot be compared: each layer has been judged by its own
        return 2

    def error(model: nn.Module) -> float:
        total = 0.0
        for sequences, wanted in zip(held_out, expected, strict=True):
            given = answer(model, sequences)
            total += np.inf if given is None else float((given - wanted).abs().square().sum())
        return total

    candidate = copy.deepcopy(whole).eval()
    layers = layers_of(candidate, adapter)
    for path, layer in layers.items():
        layer.shrink(plan.keep[path])
    errors = [error(candidate)]
    for layer in layers.values():
        alone.write(layer)
    return most_cautious([*errors, error(candidate), error(in_sequence)], count(held_out))
