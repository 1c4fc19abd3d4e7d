"""Re-fitting a pruned model layer by layer, each on what the pruned layers before it let through.

A fit can only be trusted as far as the data go. So some sequences are held out, and say how far each layer's new C and
D move: from the old ones towards those that fit the layer for the inputs that the whole model gives it, and from there
towards those that also mend what earlier layers lost.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from ..adapters import Adapter, layers_of
from ..arrays import Complex, Mask, Real
from ..core.least_squares import WeightChange, fit_shrunk, most_cautious
from ..core.moments import readout, weights
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..planning.plan import Plan
from .collect import MomentSums
from .data import Sequences, compares_pairs, count, in_slices
from .record import Call, Walk, answer, evaluating, order_of_layers, refuse_what_cannot_run

Sums: TypeAlias = list[MomentSums]  # two: of what is to be fitted, and of what is held out
Readouts: TypeAlias = dict[str, tuple[Complex, Real]]  # the new C of a layer and what to add to its D
HELD_OUT = 5  # one pair of sequences in so many is held out
FEW = 40  # sequences, fewer than which are split in halves


def refit_in_sequence(
    plan: Plan,
    model: nn.Module,
    systems: Mapping[str, DiagonalSystem],
    batches: list[Sequences],
    *,
    adapter: Adapter | None = None,
) -> Plan:
    """Return any method's plan for this model with C and D re-fitted, so that each layer mends what earlier ones lost.

    Layer by layer in the order of the forward pass: the kept states are driven by what comes through the pruned and
    re-fitted layers before, and their C and D are fitted to the output of the unpruned model's layer on the same
    sequences. A fifth of these is held out and says how far to trust the fit: where it does not help on them, a layer
    stays as it suits the unpruned model's inputs, or as it was; and so does the whole model. Of forty sequences or
    more, those held out choose the ridge and are then fitted as well.
    """
    refuse_what_cannot_run(model)
    seen, held_out = (list(in_slices(part, model)) for part in split(batches, pairs=compares_pairs(model)))
    kept = {path: system.select(plan.keep[path]) for path, system in systems.items()}
    with torch.no_grad(), evaluating(model):
        pruned = _PrunedCopy(model, plan, adapter)
        for_whole, for_pruned = _fit_layers(model, pruned, kept, [*seen, *held_out], len(seen))
        fitted = _nearest(model, pruned, [{}, for_whole, for_pruned], held_out)
    C = {path: new_C for path, (new_C, _) in fitted.items()}
    D_change = {path: change for path, (_, change) in fitted.items()}
    return replace(plan, C=C, D_change=D_change, sequences=count(batches))


def split(batches: list[Sequences], *, pairs: bool = False) -> tuple[list[Sequences], list[Sequences]]:
    """Return batches of the sequences to fit, and of those that are held out: every fifth pair of sequences.

    Of fewer than forty sequences it is every second pair, of two or three the last sequence, of a single one nothing.
    A model that compares sequences can spare none of a single pair.

    >>> import torch
    >>> fitted, held_out = split([Sequences(torch.arange(4)[:, None]), Sequences(torch.arange(4, 7)[:, None])])
    >>> [batch.x.ravel().tolist() for batch in fitted], [batch.x.ravel().tolist() for batch in held_out]
    ([[0, 1], [4, 5]], [[2, 3], [6]])
    """
    total = count(batches)
    if total == 1 or (pairs and total < 4):
        return batches, []
    every, size = (HELD_OUT, 2) if total >= FEW else (2, 2) if total >= 4 else (total, 1)
    held = torch.arange(total) // size % every == every - 1
    masks = torch.split(held, [len(batch.x) for batch in batches])
    pairs_of_parts = [(batch.rows(~mask), batch.rows(mask)) for batch, mask in zip(batches, masks, strict=True)]
    fitted, held_out = ([part for part in parts if len(part.x)] for parts in zip(*pairs_of_parts, strict=True))
    return fitted, held_out


class _PrunedCopy:
    """A copy of a model without the pruned states, for trying what its layers may read out."""

    def __init__(self, model: nn.Module, plan: Plan, adapter: Adapter | None) -> None:
        self.model = copy.deepcopy(model).eval()
        self.layers = layers_of(self.model, adapter)
        for path, layer in self.layers.items():
            layer.shrink(plan.keep[path])
        self.unfitted = copy.deepcopy(self.model.state_dict())

    def write(self, readouts: Readouts) -> None:
        """Give layers a new C and D, and all others those they had."""
        self.model.load_state_dict(self.unfitted)
        for path, (C, D_change) in readouts.items():
            self.layers[path].refit(np.ones(C.shape[2], bool), C, D_change)


def _fit_layers(
    model: nn.Module, pruned: _PrunedCopy, kept: Mapping[str, DiagonalSystem], slices: list[Sequences], seen: int
) -> tuple[Readouts, Readouts]:
    """Return the readouts that suit each layer for the whole model's inputs, and for those of the pruned model.

    The first `seen` slices are fitted, the others held out.
    """
    for_whole: Readouts = {}
    for_pruned: Readouts = {}
    order = order_of_layers(model, slices[0], pruned.layers)
    whole, small = Walk(model, pruned.layers, slices), Walk(pruned.model, pruned.layers, slices)
    for path in order:
        system = kept[path]
        on_whole, on_pruned, last = _measure(whole, small, path, system, seen)
        refittable = system.layout.spread(~system.unstable_states)
        changes = _changes(on_pruned if path == order[0] else on_whole, on_pruned, refittable)
        for readouts, change in zip((for_whole, for_pruned), changes, strict=True):
            if change.weights.any() or change.D.any():
                readouts[path] = readout(system, weights(system) + change.weights), change.D.ravel()
        pruned.write(for_pruned)
        _refuse_infinite(path, small.call(path, last), "re-fitted")
    return for_whole, for_pruned


def _measure(whole: Walk, small: Walk, path: str, system: DiagonalSystem, seen: int) -> tuple[Sums, Sums, Call]:
    """Take all slices to a layer; sum up what its output lacks on the whole model's inputs and on the pruned model's.

    Each sum is for the slices to fit, the first `seen`, and for those that are held out. The last call is that of the
    pruned model.
    """
    total = count(whole.slices)
    on_whole, on_pruned = ([MomentSums(system, total), MomentSums(system, total)] for _ in range(2))
    for number in range(len(whole.slices)):
        is_held_out = number >= seen
        for before, after in zip(whole.reach(number, path), small.reach(number, path), strict=True):
            _refuse_infinite(path, before.y, "unpruned")
            _refuse_infinite(path, after.y, "pruned")
            on_pruned[is_held_out].add(after, before.y - after.y)
            on_whole[is_held_out].add(before, before.y - small.call(path, before))
    return on_whole, on_pruned, after


def _refuse_infinite(path: str, y: Tensor, kind: str) -> None:
    """Refuse to fit outputs that hold NaN or infinite numbers."""
    if not y.isfinite().all():
        raise InputError(
            f"Layer {path!r} of the {kind} model answers the calibration data with NaN or infinite numbers. Check the "
            "data and the model's outputs for them; in double precision they may stay finite."
        )


def _changes(on_whole: Sums, on_pruned: Sums, refittable: Mask) -> tuple[WeightChange, WeightChange]:
    """Return the changes of a layer that suit the whole model's inputs and the pruned model's."""
    if not on_whole[1].samples:  # nothing says what a fit to the pruned model's inputs is worth
        for_whole = on_whole[0].sample().fit(refittable)
        return for_whole, for_whole
    whole_seen, whole_held_out, seen, held_out = (sums.sample() for sums in (*on_whole, *on_pruned))
    few = seen.sequences + held_out.sequences < FEW  # then the held-out sequences also choose between the plans
    whole_all, pruned_all = (None if few else (sums[0] + sums[1]).sample() for sums in (on_whole, on_pruned))
    for_whole = fit_shrunk(whole_seen, whole_held_out, refittable, whole_seen.no_change, whole_all)
    best = for_whole
    if on_whole is not on_pruned:  # they are the same for the first layer, whose inputs pruning does not change
        best = fit_shrunk(seen, held_out, refittable, for_whole, pruned_all)
    helps = held_out.after(best).error <= held_out.error
    return for_whole, best if helps else seen.no_change


def _nearest(
    model: nn.Module, pruned: _PrunedCopy, candidates: Sequence[Readouts], held_out: list[Sequences]
) -> Readouts:
    """Return the readouts with which the answers come nearest to the whole model's, by `most_cautious`.

    Where there are no answers to compare, the last: each of its layers has been judged by its own output.
    """
    expected = [answer(model, sequences) for sequences in held_out]
    if not expected or any(wanted is None for wanted in expected):
        return candidates[-1]
    errors = []
    for readouts in candidates:
        pruned.write(readouts)
        error = 0.0
        for sequences, wanted in zip(held_out, expected, strict=True):
            given = answer(pruned.model, sequences)
            error += np.inf if given is None or wanted is None else float((given - wanted).abs().square().sum())
        errors.append(error)
    return candidates[most_cautious(errors, count(held_out))]
