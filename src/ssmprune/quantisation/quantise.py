"""Round the weights of a model to 8 or 4 bits, with calibration data so that their errors cancel.

Weights are rounded one after the other, and those not yet rounded take over the error as well as they can: the
surgeon's update, with rounding in the place of removal (optimal brain quantisation [Frantar2022, Frantar2023]).
What the inputs of a matrix have in common decides who can take over, so a few unlabelled sequences are needed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from ..arrays import Index, Real
from ..calibration.collect import collect
from ..calibration.data import SEQUENCES, Sequences, count, in_slices, take
from ..core.moments import Moments
from ..errors import InputError
from ..models.classifier import BatchNorm, Classifier, measure_statistics
from ..models.layers import S4DLayer, S5Layer
from .grid import BITS, Grid, bits_of, largest_number, spread_scale

DAMPING = 0.01  # share of the mean energy of all inputs that is added to the energy of each
NormInputs: TypeAlias = dict[str, tuple[Tensor, Tensor]]  # mean and variance of what enters a batch norm, by path
SHRINKAGES = np.linspace(1.0, 0.5, 26)  # of a row's range that its grid may cover


class Rows(NamedTuple):
    """Rows of weights that read the same inputs, so they are rounded together; all (rows, inputs)."""

    weights: Index  # where each weight lies in the flattened parameter
    scales: Index  # where its scale lies in the flattened scales
    gram: Real | None  # (inputs, inputs) second moments of the inputs; None where nothing is known of them


def quantize(
    model: Classifier, bits: int = 8, *, data: Iterable[Any] | None = None, sequences: int | None = SEQUENCES
) -> Classifier:
    """Return a copy whose large weights are whole multiples of a scale per row, in 8 or 4 bits.

    B, C, dense layers and embeddings are rounded; poles, steps, D, norms and biases stay as they are. With unlabelled
    data, as for `collect`, the errors of rounding make up for each other and batch norms follow what rounding does to
    their inputs; 4 bits need that, 8 do not. `save` writes a byte a weight, or two weights a byte.

    >>> from ssmprune.models.config import Config
    >>> small = quantize(Classifier(Config("s5", inputs=1, outputs=2, width=4, states=(3,))), bits=4)
    >>> small.history
    ('quantised to 4 bits',)
    """
    if not isinstance(model, Classifier):
        raise InputError(f"`quantize` takes ssmprune's own classifiers; this is {type(model).__name__}.")
    check_bits(bits)
    rounded, batches = copy.deepcopy(model).eval(), None if data is None else take(data, sequences)
    inputs = {} if batches is None else input_moments(rounded, batches)
    states = {} if batches is None else collect(rounded, batches, sequences=None)
    before = {} if batches is None else _measure_norms(rounded, batches)
    scales, arrays = {}, model.arrays()
    for name, _ in model.named_parameters():
        owner, _, leaf = name.rpartition(".")
        shape, parts = _rows(model.get_submodule(owner), leaf, inputs.get(owner), states.get(owner))
        if shape:
            weights = arrays[name].astype(np.float64)
            largest = largest_number(bits_of(name, weights.shape, bits))
            numbers, scale = round_weights(weights, shape, parts, largest)
            scales[name] = scale.astype(arrays[name].dtype)
            values = numbers.astype(arrays[name].dtype) * spread_scale(name, scales[name], arrays)
            rounded.get_parameter(name).data.copy_(torch.from_numpy(values))
    if batches is not None:
        _move_statistics(rounded, before, _measure_norms(rounded, batches))
    seen = "" if batches is None else f" on {count(batches)} sequences"
    rounded.grid = Grid(bits, scales)
    rounded.record(f"quantised to {bits} bits{seen}")
    return rounded


def check_bits(bits: int) -> None:
    """Refuse a number of bits that weights are not rounded to."""
    if bits not in BITS:
        raise InputError(f"Weights are rounded to {' or '.join(map(str, BITS))} bits; got {bits!r}.")


def round_weights(weights: Real, shape: tuple[int, ...], parts: list[Rows], largest: int) -> tuple[Real, Real]:
    """Return whole numbers in the shape of `weights`, and the scales in `shape`."""
    flat, energy = weights.ravel(), np.ones(weights.size)
    owner = np.empty(weights.size, np.int64)
    for rows in parts:
        owner[rows.weights] = rows.scales
        energy[rows.weights] = 1.0 if rows.gram is None else np.diag(_damped(rows.gram))
    scale = _best_scales(flat, owner, energy, int(np.prod(shape)), largest)
    numbers = np.zeros_like(flat)
    for rows in parts:
        numbers[rows.weights] = _round_rows(flat[rows.weights], scale[rows.scales], rows.gram, largest)
    return numbers.reshape(weights.shape), scale.reshape(shape)


def _best_scales(weights: Real, owner: Index, energy: Real, count: int, largest: int) -> Real:
    """Return the scale of every row (count,): of a few shares of its range, the one that errs least in energy."""
    top = np.zeros(count)
    np.maximum.at(top, owner, np.abs(weights))
    top = np.where(top > 0, top, 1.0).astype(np.float32).astype(np.float64) / largest
    best, least = top.copy(), np.full(count, np.inf)
    for share in SHRINKAGES:
        scale = (top * share)[owner]
        error = energy * (weights - scale * np.clip(np.rint(weights / scale), -largest, largest)) ** 2
        total = np.bincount(owner, error, count)
        better = total < least
        best[better], least[better] = (top * share)[better], total[better]
    return best.astype(np.float32).astype(np.float64)  # as it will be stored


def _round_rows(weights: Real, scale: Real, gram: Real | None, largest: int) -> Real:
    """Round weights (rows, inputs) column by column; the columns still to come take over each one's error.

    With H the inputs' second moments and Uᵀ U = H⁻¹, U upper triangular, an error e in column j is best made up for by
    subtracting e U_jk / U_jj from every later column k.
    """
    if gram is None or not np.trace(gram) > 0:
        return np.clip(np.rint(weights / scale), -largest, largest)
    order = np.argsort(-np.diag(gram), kind="stable")  # while many are left to take over, round what matters most
    H = _damped(gram)[np.ix_(order, order)]
    U = np.linalg.cholesky(np.linalg.inv(H)).T
    weights, scale, numbers = weights[:, order].copy(), scale[:, order], np.empty_like(weights)
    for j in range(len(U)):
        numbers[:, j] = np.clip(np.rint(weights[:, j] / scale[:, j]), -largest, largest)
        error = weights[:, j] - numbers[:, j] * scale[:, j]
        weights[:, j + 1 :] -= np.outer(error / U[j, j], U[j, j + 1 :])
    back = np.empty_like(numbers)
    back[:, order] = numbers
    return back


def _damped(gram: Real) -> Real:
    """Return second moments in which no input is silent: what calibration has not seen may still come."""
    damped: Real = gram + DAMPING * np.mean(np.diag(gram)) * np.eye(len(gram))
    return damped


def _rows(
    layer: nn.Module, leaf: str, gram: Real | None, moments: Moments | None
) -> tuple[tuple[int, ...], list[Rows]]:
    """Return the shape of a parameter's scales, () for what stays in full precision, and its weights in rows."""
    if isinstance(layer, S5Layer) and leaf == "B":
        n, width, _ = layer.B.shape
        place = np.arange(layer.B.numel()).reshape(n, width, 2).transpose(0, 2, 1).reshape(-1, width)
        return (n, 1, 1), [Rows(place, np.repeat(np.arange(n), 2)[:, None].repeat(width, 1), gram)]
    if isinstance(layer, S5Layer) and leaf == "C":
        channel = np.zeros(layer.C.shape[2], np.int64)
        return (*layer.C.shape[:2], 1, 1), list(_readout_rows(layer.C, channel, 1, moments))
    if isinstance(layer, S4DLayer) and leaf == "C":
        width = len(layer.D)
        return (len(layer.C), width), list(_readout_rows(layer.C[:, None], layer.channel.cpu().numpy(), width, moments))
    if leaf == "weight" and isinstance(layer, nn.Linear | nn.Embedding):
        rows, inputs = layer.weight.shape
        place = np.arange(rows * inputs).reshape(rows, inputs)
        return (rows, 1), [Rows(place, np.arange(rows)[:, None].repeat(inputs, 1), gram)]
    return (), []


def _readout_rows(C: Tensor, channel: Index, channels: int, moments: Moments | None) -> Iterator[Rows]:
    """Yield the rows of C (directions, outputs, n, 2) by channel; their inputs are Re x and -Im x of its states.

    A MIMO layer is one channel with many outputs; of a multi-SISO layer each channel has one.
    """
    directions, outputs = C.shape[:2]
    place = np.arange(C.numel()).reshape(C.shape).transpose(1, 2, 0, 3)  # (outputs, n, directions, 2)
    scale = np.arange(directions * outputs * channels).reshape(directions, outputs, channels).transpose(2, 1, 0)
    for number in range(channels):
        states = np.flatnonzero(channel == number)
        if not len(states):
            continue
        own = np.broadcast_to(scale[number][:, None, :, None], (outputs, len(states), directions, 2))
        gram = None if moments is None else _readout_gram(moments.gram[number], len(states))
        yield Rows(place[:, states].reshape(outputs, -1), own.reshape(outputs, -1), gram)


def _readout_gram(gram: Real, states: int) -> Real:
    """Return the second moments of [Re x, -Im x] of a channel's states from those of [Re x, Im x]."""
    parts = gram.shape[1]
    sign = np.tile([1.0, -1.0], states * parts // 2)
    readout: Real = gram[:states, :, :states].reshape(len(sign), len(sign)) * sign * sign[:, None]
    return readout


def _move_statistics(rounded: Classifier, before: NormInputs, after: NormInputs) -> None:
    """Move the mean and variance of each batch norm by what rounding did to them on some sequences.

    What few sequences say of a norm's inputs is too coarse to take the place of what training has measured, but the
    same sequences go through both models, so that in the difference their choice cancels.
    """
    for path, norm in _norms(rounded).items():
        norm.running_mean += after[path][0] - before[path][0]
        norm.running_var *= (after[path][1] + norm.eps) / (before[path][1] + norm.eps)


@torch.no_grad()
def _measure_norms(model: Classifier, batches: Sequence[Sequences]) -> NormInputs:
    """Return the mean and the variance of what enters each batch norm; those that the model holds stay."""
    norms = _norms(model)
    held = copy.deepcopy({path: norm.state_dict() for path, norm in norms.items()})
    measure_statistics(model, ((_padded_with_zeros(part), part.lengths) for part in in_slices(batches)))
    measured = {path: (norm.running_mean.clone(), norm.running_var.clone()) for path, norm in norms.items()}
    for path, norm in norms.items():
        norm.load_state_dict(held[path])
    return measured


def _padded_with_zeros(part: Sequences) -> Tensor:
    """Return the inputs; norms count padding, as they do in training, but what it is filled with must not matter."""
    if part.lengths is None:
        return part.x
    padding = torch.arange(part.x.shape[1]) >= part.lengths.cpu()[:, None]
    return part.x.masked_fill(padding.to(part.x.device).view(*padding.shape, *[1] * (part.x.ndim - 2)), 0)


def _norms(model: Classifier) -> dict[str, BatchNorm]:
    return {path: module for path, module in model.named_modules() if isinstance(module, BatchNorm)}


@torch.no_grad()
def input_moments(model: Classifier, batches: Iterable[Sequences]) -> dict[str, Real]:
    """Return the second moments (inputs, inputs) of what enters each dense and each S5 layer, by its path."""
    layers = {path: layer for path, layer in model.named_modules() if isinstance(layer, nn.Linear | S5Layer)}
    device = next(model.parameters()).device
    sums = {path: InputSums() for path in layers}
    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs, path=path: sums[path].add(inputs[0]))
        for path, layer in layers.items()
    ]
    try:
        for part in in_slices(batches):
            for total in sums.values():
                total.begin(part.lengths)
            model(part.x.to(device), part.lengths)
    finally:
        for hook in hooks:
            hook.remove()
    return {path: total.mean() for path, total in sums.items()}


class InputSums:
    """Sums of products of a layer's inputs, without those of padding."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.total, self.count = torch.zeros((), dtype=torch.float64), 0
        self.lengths: Tensor | None = None
        self.row = 0

    def begin(self, lengths: Tensor | None) -> None:
        """Expect the sequences of a batch, which a model may send a few at a time."""
        self.lengths, self.row = lengths, 0

    def add(self, x: Tensor) -> None:
        """Count inputs (batch, length, width) up to each sequence's length, or pooled ones (batch, width)."""
        if x.ndim == 3 and self.lengths is not None:
            lengths = self.lengths[self.row : self.row + len(x)].to(x.device)
            self.row += len(x)
            flat = x[torch.arange(x.shape[1], device=x.device) < lengths[:, None]].double()
        else:
            flat = x.reshape(-1, x.shape[-1]).double()
        self.total = self.total + (flat.mT @ flat).cpu()
        self.count += len(flat)

    def mean(self) -> Real:
        """Return the second moments."""
        return self.total.numpy() / max(self.count, 1)
