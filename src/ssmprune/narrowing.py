"""Features: choose those that others can replace, re-fit what reads them, return a narrower model.

A feature lives in the residual stream, so it goes from the whole network at once: a row of the encoder, an entry of
all norms, a column of B and a row of C in each layer, a row and a column of the gates, a column of the head; in an S4D
layer its channel's states go with it. What reads features linearly are the *readers*: B of an S5 layer, gate and value
of a block, the head. They get from the features that stay what they got from all, as far as data say that it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from .adapters import layers_of
from .arrays import Index, Real
from .calibration.collect import MomentSums
from .calibration.data import Sequences, count, in_slices
from .calibration.record import Call, answer, evaluating, for_model
from .calibration.refit import split
from .core.least_squares import RIDGES, fit_shrunk, most_cautious
from .core.moments import readout, weights
from .errors import InputError
from .models.classifier import BatchNorm, Block, Classifier
from .models.costs import operations
from .models.layers import S5Layer
from .planning.plan import Features

NO_RIDGE = 1e-12  # for constants, whose size is no sign of noise
RIDGE = 1e-5  # the share of a feature's energy that counts as noise while features are chosen
STEPS = 320_000  # of calibration data, which tell all that the fits can use
FEWEST = 40  # sequences, however long they are
RATIOS = 50  # of states that are tried with the features
FEATURE_AXES: dict[str, dict[str, tuple[int, ...]]] = {
    "encoder": {"weight": (0,), "bias": (0,)},
    "norm": {"weight": (0,), "bias": (0,), "running_mean": (0,), "running_var": (0,)},
    "ssm": {"B": (1,), "C": (1,), "D": (0,)},
    "gate": {"weight": (0, 1), "bias": (0,)},
    "value": {"weight": (0, 1), "bias": (0,)},
    "decoder": {"weight": (1,)},
}


def narrower(model: Classifier, features: Features) -> Classifier:
    """Return a copy with the features that stay: an ordinary model of its family."""
    width = model.config.width
    if len(features.keep) != width or (features.units is None) == model.config.retrieval:
        raise InputError(
            f"The plan says which of {len(features.keep)} features stay; the model has {width}: make a new plan."
        )
    whole = model.arrays()
    arrays = {name: _delete(name, array, whole, features) for name, array in whole.items()}
    for name, array in features.arrays.items():
        if name not in arrays or arrays[name].shape != array.shape:
            raise InputError(
                f"The plan has an array {name} {array.shape} that does not fit the model: make a new plan."
            )
    arrays |= features.arrays
    states = tuple(len(arrays[f"layers.{place}.ssm.pole_re"]) for place in range(model.config.depth))
    with torch.device("meta"):
        narrow = Classifier(replace(model.config, width=features.kept, states=states))
    narrow.take_arrays(arrays)
    narrow.to(model.decoder.weight)
    narrow.history = model.history
    if model.grid is not None and features.arrays:
        narrow.record("narrowed, in floats again")
    return narrow.train(model.training)


def _delete(name: str, array: NDArray[Any], arrays: Mapping[str, NDArray[Any]], features: Features) -> NDArray[Any]:
    """Return one of the arrays of a model without the features that go; nothing takes over their work."""
    keep, units = features.keep, features.units
    owner, _, leaf = name.rpartition(".")
    part, channel = owner.rpartition(".")[2], arrays.get(f"{owner}.channel")
    if channel is not None:  # S4D: states go with their channels
        if leaf in ("D", "log_step"):
            return array[keep]
        left = array.compress(keep[channel], axis=1 if leaf == "C" else 0)
        return (np.cumsum(keep) - 1)[left] if leaf == "channel" else left
    if part == "hidden" and units is not None:
        return array[units] if leaf == "bias" else array[units][:, np.tile(keep, 4)]
    if name == "decoder.weight" and units is not None:
        return array[:, units]
    if part == "encoder" and "encoder.bias" not in arrays:  # an embedding
        return array[:, keep]
    for axis in FEATURE_AXES.get(part, {}).get(leaf, ()):
        array = array.compress(keep, axis=axis)
    return array


@dataclass(eq=False)
class Sums:
    """Sums over steps of the products of values (p) and a constant with each other and with residuals (q)."""

    gram: Real = field(default_factory=lambda: np.zeros(()))  # (p + 1, p + 1)
    cross: Real = field(default_factory=lambda: np.zeros(()))  # (p + 1, q)
    energy: float = 0.0  # of the residuals

    def add(self, values: Tensor, residuals: Tensor | None = None) -> None:
        """Count more steps, values (..., p) and residuals (..., q)."""
        z = F.pad(values.double().reshape(-1, values.shape[-1]), (0, 1), value=1.0)
        self.gram = self.gram + _array(z.mT @ z)
        if residuals is not None:
            r = residuals.double().reshape(-1, residuals.shape[-1])
            self.cross = self.cross + _array(z.mT @ r)
            self.energy += float(r.square().sum())

    def __add__(self, other: Sums) -> Sums:
        """Return the sums over the steps of both."""
        return Sums(self.gram + other.gram, self.cross + other.cross, self.energy + other.energy)

    @property
    def covariance(self) -> Real:
        """The centred second moments (p, p) of the values, with the ridge."""
        steps, mean = self.gram[-1, -1], self.gram[-1, :-1] / self.gram[-1, -1]
        centred: Real = self.gram[:-1, :-1] / steps - np.outer(mean, mean)
        return centred + np.diag(RIDGE * np.diag(centred))

    def solve(self, ridge: float, *, constant: bool) -> Real:
        """Return the weights (p + 1, q) that predict the residuals best, the last row the constant's, or zero."""
        used = len(self.gram) if constant else len(self.gram) - 1
        scale = np.sqrt(np.diag(self.gram)[:used])
        inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        unit = self.gram[:used, :used] * np.outer(inverse, inverse)
        np.einsum("ii->i", unit)[...] = 1 + ridge
        if constant:
            unit[-1, -1] = 1 + NO_RIDGE
        fitted = np.zeros_like(self.cross)
        fitted[:used] = inverse[:, None] * np.linalg.solve(unit, inverse[:, None] * self.cross[:used])
        return fitted

    def error(self, fitted: Real) -> float:
        """Return the energy of what a fit leaves of the residuals."""
        return float(self.energy + (fitted * (self.gram @ fitted - 2 * self.cross)).sum())


class Reader(NamedTuple):
    """How features are read at some place of the network: their spread there, and the weights of what reads them."""

    sums: Sums  # of what is read
    weights: list[Real]  # (h, outputs) each


def rank(readers: Iterable[Reader]) -> tuple[Index, Real]:
    """Return the order in which features go, always the cheapest, and what each costs.

    The cost of a feature is the share of its energy that the output of a reader loses when the feature goes and the
    others take over, summed over all readers: |w_j|² / (G⁻¹)_jj of outputs scaled to unit energy.
    """
    places, features = [], 0
    for sums, matrices in readers:
        G = sums.covariance
        features = len(G)
        energies = [np.einsum("hq,hk,kq->", W, G, W, optimize=True) for W in matrices]
        scaled = [W / np.sqrt(energy) for W, energy in zip(matrices, energies, strict=True) if energy > 0]
        if scaled:
            places.append((np.linalg.pinv(G, hermitian=True), np.concatenate(scaled, axis=1)))
    left, order, costs = np.ones(features, bool), [], []
    while left.any():
        cost = np.zeros(features)
        for inverse, W in places:
            curvature = np.diag(inverse)
            cost += np.divide((W**2).sum(1), curvature, out=np.zeros(features), where=curvature > 0)
        gone = int(np.where(left, cost, np.inf).argmin())
        left[gone] = False
        order.append(gone)
        costs.append(cost[gone])
        for inverse, W in places:
            _remove(gone, inverse, W)
    return np.array(order), np.array(costs)


def _remove(gone: int, inverse: NDArray[Any], W: NDArray[Any]) -> None:
    """Take a feature out of the inverse of a covariance; the others take over what they can of its work W."""
    if inverse[gone, gone] > 0:
        share = inverse[gone] / inverse[gone, gone]
        W -= np.outer(share, W[gone])
        inverse -= np.outer(share, inverse[gone])
    W[gone] = inverse[gone] = inverse[:, gone] = 0


class Narrowing:
    """A classifier that is to lose features, at one width or at several; what all widths share is computed once."""

    def __init__(self, model: Classifier, batches: list[Sequences]) -> None:
        """Split the data into what is fitted and what is held out."""
        self.model = model
        seen, held_out = split(enough(batches), pairs=model.config.retrieval)
        slices = [list(in_slices(part, model)) for part in (seen, held_out)]
        self.fitted, self.held_out = len(slices[0]), count(held_out)
        self.slices = [_for_model(model, sequences) for sequences in chain(*slices)]
        self.counted = [_counted(sequences) for sequences in self.slices]

    @cached_property
    @torch.no_grad()
    def ranking(self) -> tuple[Index, Real, Index | None]:
        """The order in which features go, what each costs, and the order of the units of a hidden layer."""
        with evaluating(self.model):
            sums = self._observe()
        readers, decoder = _readers(self.model, sums), Reader(sums["decoder"], [_array(self.model.decoder.weight).T])
        if self.model.hidden is None:
            return *rank([*readers, decoder]), None
        return *rank(readers), rank([decoder])[0]

    def choose(self, width: int) -> Features:
        """Return which features stay of a model of this width, with nothing re-fitted."""
        order, _, units = self.ranking
        gone = len(order) - width
        return Features(order.argsort() >= gone, None if units is None else units.argsort() >= gone)

    @torch.no_grad()
    def narrow(self, width: int, pruned: Classifier | None = None) -> Features:
        """Return which features stay, and what the readers become.

        pruned: the model without the states that go, which then loses features; in both cases `model` says what its
            parts should give. Readers are fitted on what the whole model lets through, then on what the narrower one
            does. Held-out data decide which of it is taken, or whether features are only deleted.
        """
        chosen, wide = self.choose(width), pruned or self.model
        if chosen.keep.all():
            return chosen
        with evaluating(self.model), evaluating(wide):
            small = narrower(wide, chosen)
            deleted = small.arrays()
            candidates, errors = [deleted], [self._error(small)]
            for in_sequence in (False, True):
                small = narrower(wide, replace(chosen, arrays=candidates[-1]))
                _Refit(self, wide, small, chosen, in_sequence=in_sequence).run()
                candidates.append(small.arrays())
                errors.append(self._error(small))
        best = candidates[most_cautious(errors, self.held_out)] if self.held_out else candidates[-1]
        changed = {name: array for name, array in best.items() if not np.array_equal(array, deleted[name])}
        return replace(chosen, arrays=changed)

    def mix(self, share: float, states: Callable[[float], tuple[Index, float]]) -> tuple[float, int]:
        """Return the ratio of states and the width that keep this share of the operations and cost least.

        states: how many states pruning at a ratio leaves, (layers, width + 1), to each feature, with which they go, and
            to none; and what it costs. Features cost shares of the energy of what is read of them, states shares of
            their layer's, so both add up.
        """
        order, costs, _ = self.ranking
        whole = self.model.config
        lost, limit = np.concatenate([[0.0], np.cumsum(costs)]), share * operations(whole)
        best, found = np.inf, (1.0, 1)
        for ratio in np.linspace(0, 1, RATIOS + 1):
            counts, cost = states(float(ratio))
            for gone in range(whole.width):  # as few features as keep the share
                left = tuple(np.delete(counts, order[:gone], axis=1).sum(1).tolist())
                if operations(replace(whole, width=whole.width - gone, states=left)) <= limit:
                    if cost + lost[gone] < best:
                        best, found = cost + lost[gone], (float(ratio), whole.width - gone)
                    break
        return found

    @cached_property
    def _wanted(self) -> list[Tensor]:
        return [_answer(self.model, sequences) for sequences in self.slices[self.fitted :]]

    def _error(self, small: Classifier) -> float:
        """Return how far a model's answers to held-out data are from the whole model's."""
        pairs = zip(self.slices[self.fitted :], self._wanted, strict=True)
        return float(sum((_answer(small, sequences) - wanted).square().sum() for sequences, wanted in pairs))

    def _observe(self) -> dict[str, Sums]:
        """Run the model; return the sums of what its readers read."""
        seen: dict[str, Sums] = {}

        def see(place: str, values: Tensor) -> None:
            seen.setdefault(place, Sums()).add(values)

        for sequences, counted in zip(self.slices, self.counted, strict=True):
            x, padding = self.model.encoder(sequences.x), self.model.padding(*sequences)
            for number, block in enumerate(self.model.blocks):
                u = block.enter(x, padding)
                y = block.ssm(u)
                see(f"layers.{number}.ssm", u[counted])
                see(f"layers.{number}.gate", block.gelu(y)[counted])
                x = block.leave(x, y)
            for place, values in _head_inputs(self.model, _pooled(self.model, x, sequences, counted)).items():
                see(place, values)
        return seen


class _Refit:
    """One re-fit of all that reads features, from the encoder to the head, on what the model lets through.

    Fitted are, with all else as it is: the scale and shift of a norm, B, C with D, gate and value, the head. What each
    should give is what the whole model's gives, at the features that stay.
    in_sequence: the narrower model sees what its own blocks before let through, otherwise what the whole model's do.
    """

    def __init__(
        self, work: Narrowing, wide: Classifier, small: Classifier, features: Features, *, in_sequence: bool
    ) -> None:
        self.work, self.model, self.wide, self.small = work, work.model, wide, small
        self.in_sequence = in_sequence
        self.keep = torch.from_numpy(np.flatnonzero(features.keep))
        self.units = None if features.units is None else torch.from_numpy(np.flatnonzero(features.units))
        self.layers = list(layers_of(small).values())

    def run(self) -> None:
        """Change the small model."""
        xs = [self.model.encoder(sequences.x) for sequences in self.work.slices]
        paddings = [self.model.padding(*sequences) for sequences in self.work.slices]
        zs = self._pick(xs)
        blocks = zip(self.model.blocks, self.wide.blocks, self.small.blocks, strict=True)
        for number, (block, wide, small) in enumerate(blocks):  # states of `wide` that stay have their old B
            us = [block.enter(x, padding) for x, padding in zip(xs, paddings, strict=True)]
            vs = [small.enter(z, padding) for z, padding in zip(zs, paddings, strict=True)]
            if small.prenorm:
                self._fit_norm(small.norm, self._pick(us), vs)
                vs = [small.enter(z, padding) for z, padding in zip(zs, paddings, strict=True)]
            if isinstance(wide.ssm, S5Layer) and isinstance(small.ssm, S5Layer):
                self._fit_B(wide.ssm, small.ssm, us, vs)
            ys = [block.ssm(u) for u in us]
            self._fit_readout(number, self._pick(ys), vs)
            ws = [small.ssm(v) for v in vs]
            self._fit_gates(block, small, ys, ws)
            xs = [block.leave(x, y) for x, y in zip(xs, ys, strict=True)]
            if not small.prenorm:
                self._fit_norm(small.norm, self._pick(xs), [small.leave(z, w) for z, w in zip(zs, ws, strict=True)])
            zs = [small.leave(z, w) for z, w in zip(zs, ws, strict=True)] if self.in_sequence else self._pick(xs)
        self._fit_head(xs, zs)

    def _pick(self, values: list[Tensor]) -> list[Tensor]:
        return [value[..., self.keep] for value in values]

    def _fit(
        self, values: list[Tensor], residuals: list[Tensor], *, constant: bool, pooled: bool = False
    ) -> Real | None:
        """Return the weights (p + 1, q) to add so that residuals vanish, as far as held-out data support it."""
        seen, held_out = Sums(), Sums()
        for number, (value, residual) in enumerate(zip(values, residuals, strict=True)):
            rows = slice(None) if pooled else self.work.counted[number]
            (seen if number < self.work.fitted else held_out).add(value[rows], residual[rows])
        if not self.work.held_out:
            return seen.solve(RIDGES[1], constant=constant)
        errors = [held_out.energy, *(held_out.error(seen.solve(ridge, constant=constant)) for ridge in RIDGES)]
        best = most_cautious(errors, self.work.held_out)
        return (seen + held_out).solve(RIDGES[best - 1], constant=constant) if best else None

    def _fit_norm(self, norm: BatchNorm | nn.LayerNorm, wanted: list[Tensor], given: list[Tensor]) -> None:
        """Scale and shift what a norm gives to what is wanted, each feature by itself."""
        steps, sums = 0, torch.zeros(())
        for target, value, counted in zip(wanted, given, self.work.counted, strict=True):
            t, v = (each[counted].double().flatten(0, -2) for each in (target, value))
            steps, sums = steps + len(v), sums.to(v) + torch.stack([v.sum(0), t.sum(0), (v * v).sum(0), (v * t).sum(0)])
        v, t, vv, vt = sums / steps
        variance = vv - v * v
        scale = torch.where(variance > 0, (vt - v * t) / variance, 1.0)
        norm.weight.mul_(scale)
        norm.bias.mul_(scale).add_(t - scale * v)

    def _fit_B(self, whole: S5Layer, small: S5Layer, us: list[Tensor], vs: list[Tensor]) -> None:
        residuals = [_drive(whole, u) - _drive(small, v) for u, v in zip(us, vs, strict=True)]
        change = self._fit(vs, residuals, constant=False)
        if change is not None:
            factor = small.discretization_factors()[1].to(torch.complex128)
            more = torch.from_numpy(change[:-1]).to(factor.device).view(-1, len(factor), 2)
            more = torch.view_as_complex(more.contiguous()).mT
            more = torch.where(small.mask[:, None], more / torch.where(small.mask, factor, 1)[:, None], 0)
            small.B.add_(torch.view_as_real(more).to(small.B.dtype))

    def _fit_readout(self, number: int, wanted: list[Tensor], vs: list[Tensor]) -> None:
        layer, ssm = self.layers[number], list(self.small.blocks)[number].ssm
        system = layer.read()
        if not system.n:
            return
        both = [MomentSums(system, count(self.work.slices)) for _ in range(2)]
        for place, (target, v) in enumerate(zip(wanted, vs, strict=True)):
            y = ssm(v)
            both[place >= self.work.fitted].add(Call((), {}, v, y, self.work.slices[place].lengths), target - y)
        refittable = system.layout.spread(~system.unstable_states)
        seen = both[0].sample()
        if not both[1].samples:
            change = seen.fit(refittable)
        else:
            change = fit_shrunk(seen, both[1].sample(), refittable, seen.no_change, (both[0] + both[1]).sample())
        layer.refit(np.ones(system.n, bool), readout(system, weights(system) + change.weights), change.D.ravel())

    def _fit_gates(self, block: Block, small: Block, ys: list[Tensor], ws: list[Tensor]) -> None:
        gs, hs = [block.gelu(y) for y in ys], [small.gelu(w) for w in ws]
        for wide, narrow in ((block.gate, small.gate), (block.value, small.value)):
            if wide is not None and narrow is not None:
                self._fit_dense(narrow, hs, self._pick([wide(g) for g in gs]))

    def _fit_dense(self, dense: nn.Linear, values: list[Tensor], wanted: list[Tensor], *, pooled: bool = False) -> None:
        residuals = [target - dense(value) for target, value in zip(wanted, values, strict=True)]
        change = self._fit(values, residuals, constant=True, pooled=pooled)
        if change is not None:
            added = torch.from_numpy(change).to(dense.weight)
            dense.weight.add_(added[:-1].mT)
            dense.bias.add_(added[-1])

    def _fit_head(self, xs: list[Tensor], zs: list[Tensor]) -> None:
        whole, small = (
            [_pooled(model, x, *of) for x, *of in zip(streams, self.work.slices, self.work.counted, strict=True)]
            for model, streams in ((self.model, xs), (self.small, zs))
        )
        if self.model.hidden is not None and self.small.hidden is not None:
            wanted = [self.model.hidden(self.model.pairs(v))[..., self.units] for v in whole]
            self._fit_dense(self.small.hidden, [self.small.pairs(v) for v in small], wanted, pooled=True)
            whole, small = [self.model.compare(v) for v in whole], [self.small.compare(v) for v in small]
        self._fit_dense(self.small.decoder, small, [self.model.decoder(value) for value in whole], pooled=True)


def enough(batches: list[Sequences]) -> list[Sequences]:
    """Return as many of the first sequences as the fits can use; of long ones a few are."""
    taken, steps, sequences = [], 0, 0
    for batch in batches:
        left = max((STEPS - steps) // batch.x.shape[1], FEWEST - sequences) // 2 * 2
        part = batch.rows(slice(max(0, left)))
        if len(part.x):
            taken.append(part)
            steps, sequences = steps + part.x.shape[0] * part.x.shape[1], sequences + len(part.x)
    return taken


def _head_inputs(model: Classifier, pooled: Tensor) -> dict[str, Tensor]:
    """Return what the dense layers of the head read, by name; a feature enters each of four parts of a hidden layer."""
    if model.hidden is None:
        return {"decoder": pooled}
    parts = model.pairs(pooled).chunk(4, dim=-1)
    return {f"hidden.{number}": part for number, part in enumerate(parts)} | {"decoder": model.compare(pooled)}


def _for_model(model: Classifier, sequences: Sequences) -> Sequences:
    """Bring inputs and lengths to the device of a model."""
    x, lengths = for_model(model, sequences.x), sequences.lengths
    return Sequences(x, None if lengths is None else lengths.to(x.device).long())


def _readers(model: Classifier, sums: Mapping[str, Sums]) -> list[Reader]:
    """Return all that reads features linearly, but for the decoder."""
    readers = []
    for number, block in enumerate(model.blocks):
        if isinstance(block.ssm, S5Layer):
            readers.append(Reader(sums[f"layers.{number}.ssm"], [_driven(block.ssm)]))
        gates = [_array(dense.weight).T for dense in (block.gate, block.value) if dense is not None]
        readers.append(Reader(sums[f"layers.{number}.gate"], gates))
    parts = [] if model.hidden is None else np.split(_array(model.hidden.weight).T, 4)
    return [*readers, *(Reader(sums[f"hidden.{number}"], [W]) for number, W in enumerate(parts))]


def _driven(layer: S5Layer) -> Real:
    """Return B_bar (h, 2n), each state weighed by the gain with which white noise in it reaches the output."""
    log_poles, B = (values.to(torch.complex128) for values in layer.discretized())
    C = torch.view_as_complex(layer.C.double()).abs().square().sum((0, 1)).sqrt()
    gain = C / (-torch.expm1(2 * log_poles.real)).clamp(min=1e-12).sqrt()
    return _array(torch.view_as_real(gain[:, None] * B).transpose(0, 1).flatten(1))


def _drive(layer: S5Layer, u: Tensor) -> Tensor:
    """Return B_bar u (..., 2n)."""
    return u @ torch.view_as_real(layer.discretized()[1]).transpose(0, 1).flatten(1)


def _pooled(model: Classifier, x: Tensor, sequences: Sequences, counted: Any) -> Tensor:
    """Return what the head takes: pooled features, or those of all steps that count."""
    if model.config.pooling == "none":
        return x[counted]
    return model.pool(x, sequences.lengths)


def _counted(sequences: Sequences) -> Any:
    """Return an index of the steps that are no padding."""
    if sequences.lengths is None:
        return slice(None)
    return torch.arange(sequences.x.shape[1]) < sequences.lengths[:, None].cpu()


def _answer(model: Classifier, sequences: Sequences) -> Tensor:
    return cast(Tensor, answer(model, sequences))  # a classifier's is never None


def _array(tensor: Tensor) -> Real:
    return tensor.double().numpy(force=True)
