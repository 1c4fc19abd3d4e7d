"""Round the weights of a model to 8 or 4 bits, with calibration data so that their errors cancel.

Weights are rounded one after the other, and those not yet rounded take over the error as well as they can: the
surgeon's update, with rounding in the place of removal (optimal brain quantisation [Frantar2022, Frantar2023]).
What the inputs of a matrix have in common decides who can take over, so a few unlabelled sequences are needed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from ..arrays import Index, Real
from ..calibration.collect import collect
from ..calibration.data import SEQUENCES, Sequences, compares_pairs, count, in_slices, take
from ..core.moments import Moments
from ..errors import InputError, one_of
from ..integers.calibrate import Raw, compute_in_integers
from ..models.classifier import BatchNorm, Classifier, measure_statistics
from ..models.layers import S4DLayer, S5Layer
from .grid import BITS, Grid, bits_of, largest_number, scale_shapes, spread_scale

DAMPING = 0.01  # share of the mean energy of all inputs that is added to the energy of each
NormInputs: TypeAlias = dict[str, tuple[Tensor, Tensor]]  # mean and variance of what enters a batch norm, by path
SHRINKAGES = np.linspace(1.0, 0.5, 26)  # of a row's range that its grid may cover


class Rows(NamedTuple):
    """Rows of weights that read the same inputs, so they are rounded together."""

    weights: Index  # (rows, inputs): where each weight lies in the flattened parameter
    gram: Real | None  # (inputs, inputs) second moments of the inputs; None where nothing is known of them


def quantize(
    model: Classifier,
    bits: int = 8,
    *,
    data: Iterable[Any] | None = None,
    sequences: int | None = SEQUENCES,
    arithmetic: str = "float",
    raw: Raw | None = None,
) -> Classifier:
    """Return a copy whose large weights are whole multiples of a scale per row, in 8 or 4 bits.

    B, C, dense layers and embeddings are rounded; poles, steps, D, norms and biases stay as they are. With unlabelled
    data, as for `collect`, the errors of rounding make up for each other and batch norms follow what rounding does to
    their inputs; 4 bits need that, 8 do not. `save` writes a byte a weight, or two weights a byte. A model that has
    these bits already stays as it is.

    With arithmetic="integer", `compile` and `export_c` make an engine of it that computes in whole numbers from the
    inputs to the logits: 8 bits for weights, 16 for activations, whose ranges are those on the data times 1.3, and 32
    for states, which no input can make overflow. raw: scale and offset, for all inputs or for each, if that engine is
    to take a sensor's samples, of which the model was trained on scale * sample + offset.

    >>> from ssmprune.models.config import Config
    >>> small = quantize(Classifier(Config("s5", inputs=1, outputs=2, width=4, states=(3,))), bits=4)
    >>> small.history
    ('quantised to 4 bits',)
    """
    if not isinstance(model, Classifier):
        raise InputError(f"`quantize` takes ssmprune's own classifiers; this is {type(model).__name__}.")
    check_bits(bits)
    one_of("arithmetic", arithmetic, dict.fromkeys(("float", "integer")))
    if arithmetic == "integer" and bits != 8:
        raise InputError(f"Computing in whole numbers needs weights of 8 bits, not {bits}.")
    if arithmetic == "integer" and data is None:
        raise InputError(
            "Whole numbers need data= (--calibrate): a few sequences that show how large activations become."
        )
    if arithmetic == "float" and raw is not None:
        raise InputError('raw says what samples of 16 bits stand for; it needs arithmetic="integer".')
    batches = [] if data is None else take(data, sequences, pairs=compares_pairs(model))
    if model.grid is not None and model.grid.bits == bits and model.whole_numbers() is not None:
        rounded = copy.deepcopy(model).eval()  # rounding what is rounded would only move the scales
        rounded.grid = replace(model.grid, ranges=None)
    else:
        rounded = _rounded(model, bits, batches)
    if arithmetic == "integer":
        compute_in_integers(rounded, batches, raw)
    return rounded


def _rounded(model: Classifier, bits: int, batches: list[Sequences]) -> Classifier:
    rounded = copy.deepcopy(model).eval()
    inputs = input_moments(rounded, batches) if batches else {}
    states = collect(rounded, batches, sequences=None) if batches else {}
    before = _norm_inputs(rounded, batches)
    scales, arrays = {}, model.arrays()
    for name, shape in scale_shapes({name: array.shape for name, array in arrays.items()}).items():
        path, _, leaf = name.rpartition(".")
        weights, dtype = arrays[name].astype(np.float64), arrays[name].dtype
        largest = largest_number(bits_of(name, weights.shape, bits))
        owners = spread_scale(name, np.arange(np.prod(shape)).reshape(shape), arrays)  # the number of each one's scale
        parts = _rows(model.get_submodule(path), leaf, inputs.get(path), states.get(path))
        numbers, scale = round_weights(weights, owners, shape, list(parts), largest)
        scales[name] = scale.astype(dtype)
        values = numbers.astype(dtype) * spread_scale(name, scales[name], arrays)
        rounded.get_parameter(name).data.copy_(torch.from_numpy(values))
    _move_statistics(rounded, model, before, _norm_inputs(rounded, batches))
    seen = f" on {count(batches)} sequences" if batches else ""
    rounded.grid = Grid(bits, scales)
    rounded.record(f"quantised to {bits} bits{seen}")
    return rounded


def check_bits(bits: int) -> None:
    """Refuse a number of bits that weights are not rounded to."""
    if bits not in BITS:
        raise InputError(f"Weights are rounded to {' or '.join(map(str, BITS))} bits; got {bits!r}.")


def round_weights(
    weights: Real, owners: Index, shape: tuple[int, ...], parts: list[Rows], largest: int
) -> tuple[Real, Real]:
    """Return whole numbers in the shape of `weights`, and the scales in `shape`; each weight has that of its owner."""
    flat, owner, energy = weights.ravel(), np.broadcast_to(owners, weights.shape).ravel(), np.ones(weights.size)
    for rows in parts:
        energy[rows.weights] = 1.0 if rows.gram is None else np.diag(_damped(rows.gram))
    scale = _best_scales(flat, owner, energy, int(np.prod(shape)), largest)
    numbers = np.zeros_like(flat)
    for rows in parts:
        numbers[rows.weights] = _round_rows(flat[rows.weights], scale[owner[rows.weights]], rows.gram, largest)
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
    weights, scale, numbers = weights[:, order], scale[:, order], np.empty_like(weights)
    for j in range(len(U)):
        numbers[:, j] = np.clip(np.rint(weights[:, j] / scale[:, j]), -largest, largest)
        error = weights[:, j] - numbers[:, j] * scale[:, j]
        weights[:, j + 1 :] -= np.outer(error / U[j, j], U[j, j + 1 :])
    return numbers[:, np.argsort(order)]


def _damped(gram: Real) -> Real:
    """Return second moments in which no input is silent: what calibration has not seen may still come."""
    damped: Real = gram + DAMPING * np.mean(np.diag(gram)) * np.eye(len(gram))
    return damped


def _rows(layer: nn.Module, leaf: str, gram: Real | None, moments: Moments | None) -> Iterator[Rows]:
    """Yield the weights of a parameter in rows; `gram` is that of the layer's inputs, `moments` those of its states."""
    if isinstance(layer, S5Layer) and leaf == "B":
        n, width, _ = layer.B.shape
        yield Rows(np.arange(layer.B.numel()).reshape(n, width, 2).transpose(0, 2, 1).reshape(-1, width), gram)
    elif isinstance(layer, S5Layer):
        yield from _readout_rows(layer.C, np.zeros(layer.C.shape[2], np.int64), moments)
    elif isinstance(layer, S4DLayer):
        yield from _readout_rows(layer.C[:, None], layer.channel.cpu().numpy(), moments)
    else:
        weight = layer.get_parameter(leaf)
        yield Rows(np.arange(weight.numel()).reshape(weight.shape), gram)


def _readout_rows(C: Tensor, channel: Index, moments: Moments | None) -> Iterator[Rows]:
    """Yield the rows of C (directions, outputs, n, 2) by channel; their inputs are Re x and -Im x of its states.

    A MIMO layer is one channel with many outputs; of a multi-SISO layer each channel has one.
    """
    place = np.arange(C.numel()).reshape(C.shape).transpose(1, 2, 0, 3)  # (outputs, n, directions, 2)
    for number in np.unique(channel):
        states = np.flatnonzero(channel == number)
        gram = None if moments is None else _readout_gram(moments.gram[number], len(states))
        yield Rows(place[:, states].reshape(len(place), -1), gram)


def _readout_gram(gram: Real, states: int) -> Real:
    """Return the second moments of [Re x, -Im x] of a channel's states from those of [Re x, Im x]."""
    parts = gram.shape[1]
    sign = np.tile([1.0, -1.0], states * parts // 2)
    readout: Real = gram[:states, :, :states].reshape(len(sign), len(sign)) * sign * sign[:, None]
    return readout


def _move_statistics(rounded: Classifier, model: Classifier, before: NormInputs, after: NormInputs) -> None:
    """Set the statistics of each batch norm to the model's, moved by what rounding did to them on some sequences.

    What few sequences say of a norm's inputs is too coarse to take the place of what training has measured, but the
    same sequences go through both models, so that in the difference their choice cancels.
    """
    for path, (mean, variance) in before.items():
        norm = rounded.get_submodule(path)
        assert isinstance(norm, BatchNorm)
        norm.load_state_dict(model.get_submodule(path).state_dict())
        norm.running_mean += after[path][0] - mean
        norm.running_var *= (after[path][1] + norm.eps) / (variance + norm.eps)


@torch.no_grad()
def _norm_inputs(model: Classifier, batches: list[Sequences]) -> NormInputs:
    """Measure the mean and the variance of what enters each batch norm, which then holds them; none without batches."""
    if not batches:
        return {}
    measure_statistics(model, ((_padded_with_zeros(part), part.lengths) for part in in_slices(batches, model)))
    norms = {path: module for path, module in model.named_modules() if isinstance(module, BatchNorm)}
    return {path: (norm.running_mean.clone(), norm.running_var.clone()) for path, norm in norms.items()}


def _padded_with_zeros(part: Sequences) -> Tensor:
    """Return the inputs; norms count padding, as they do in training, but what it is filled with must not matter."""
    if part.lengths is None:
        return part.x
    padding = torch.arange(part.x.shape[1]) >= part.lengths.cpu()[:, None]
    return part.x.masked_fill(padding.to(part.x.device).view(*padding.shape, *[1] * (part.x.ndim - 2)), 0)


@torch.no_grad()
def input_moments(model: Classifier, batches: Iterable[Sequences]) -> dict[str, Real]:
    """Return the second moments (inputs, inputs) of what enters each dense and each S5 layer, by its path."""
    layers = {path: layer for path, layer in model.named_modules() if isinstance(layer, nn.Linear | S5Layer)}
    device = next(model.parameters()).device
    lengths: Tensor | None = None
    sums, counts = dict.fromkeys(layers, torch.zeros((), dtype=torch.float64)), dict.fromkeys(layers, 0)

    def add(path: str, x: Tensor) -> None:
        if x.ndim == 3 and lengths is not None:  # padding does not count
            x = x[torch.arange(x.shape[1], device=device) < lengths[:, None]]
        x = x.reshape(-1, x.shape[-1]).double()
        sums[path] = sums[path] + (x.mT @ x).cpu()
        counts[path] += len(x)

    with ExitStack() as hooks:
        for path, layer in layers.items():
            hooks.enter_context(layer.register_forward_pre_hook(lambda _, inputs, path=path: add(path, inputs[0])))
        for part in in_slices(batches, model):
            x, lengths = part.x.to(device), None if part.lengths is None else part.lengths.to(device).long()
            for stage in model.stages(x, lengths):  # `forward` would cut long sequences into chunks
                x = stage(x)
            model.head(model.pool(x, lengths))
    return {path: total.numpy() / max(counts[path], 1) for path, total in sums.items()}
