"""Collecting the second moments of every layer of a model, in one pass over unlabelled inputs.

What states, inputs and residuals do is summed at one in s steps; the steps between are not computed one by one.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..adapters import Adapter, layers_of
from ..arrays import Complex, Real, is_count
from ..core.least_squares import Residual, Sample
from ..core.moments import Moments
from ..core.system import DiagonalSystem
from ..errors import InputError
from .data import SEQUENCES, Sequences, count, in_slices, take
from .record import Call, evaluating, record, refuse_what_cannot_run

SAMPLES = 50  # of each regressor


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
    every: count one step in this many; chosen by `stride` unless given.

    >>> import torch
    >>> from ssmprune.models import S5Layer
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
    refuse_what_cannot_run(model)
    layers, total = layers_of(model, adapter), count(batches)
    sums = {path: MomentSums(system, total, every) for path, system in systems.items()}
    with torch.no_grad(), evaluating(model):
        for sequences in in_slices(batches, model):
            record(model, sequences, layers, {path: layer_sums.add for path, layer_sums in sums.items()})
    return {path: layer_sums.moments() for path, layer_sums in sums.items()}


class MomentSums:
    """Sums of second moments of one layer's regressors, inputs and residuals, over any number of sequences.

    States are in the precision of the model, their products in double precision.
    """

    def __init__(self, system: DiagonalSystem, expected: int, every: int | None = None) -> None:
        """Start with empty sums for the layer that `system` describes; count one in `every` steps.

        expected: the number of sequences that are to come; of few, every step counts unless told otherwise.
        """
        if every is not None and not is_count(every, least=1):
            raise InputError(f"every is a number of steps, at least 1; got {every!r}.")
        layout = system.layout
        self.system, self.shape = system, (layout.channels, layout.slots, 2 * system.directions)
        self.every, self.expected = every, expected
        self.strided: dict[int, StridedStates] = {}
        self.sums: list[Tensor] = []
        self.samples = self.sequences = 0

    def add(self, call: Call, residual: Tensor | None = None) -> None:
        """Count the sequences of a call of the layer, and what its output lacks."""
        _, _, u, y, lengths = call
        if u.ndim != 3 or u.shape[2] != self.system.inputs or y.shape[:2] != u.shape[:2]:
            raise InputError(
                f"Expected a layer that takes and gives (batch, length, {self.system.inputs}); "
                f"it took {tuple(u.shape)} and gave {tuple(y.shape)}."
            )
        states = self._states(u)
        cut = states.cut(u)
        sampled = [states.regressors(cut), last_steps(cut)]
        if residual is not None:
            sampled.append(last_steps(states.cut(residual)))
        if lengths is not None:
            steps = torch.arange(u.shape[1] - 1, -1, -states.every, device=u.device).flip(0)
            counted = (steps[:, None] < lengths).flatten()
            sampled = [values[:, counted] for values in sampled]
        z, v, *residuals = (values.double() for values in sampled)  # (channels, samples, ...)
        sums = [z.mT @ z, z.mT @ v, (v * v).sum(1)]
        for r in residuals:
            sums += [z.mT @ r, (v * r).sum(1), (r * r).sum(1)]
        self.sums = [old + new for old, new in zip(self.sums, sums, strict=True)] if self.sums else sums
        self.samples += z.shape[1]
        self.sequences += len(u)

    def __add__(self, other: MomentSums) -> MomentSums:
        """Return the sums over the sequences of both."""
        both = copy.copy(self)
        both.sums = [one + two for one, two in zip(self.sums, other.sums, strict=True)]
        both.samples, both.sequences = self.samples + other.samples, self.sequences + other.sequences
        return both

    def sample(self) -> Sample:
        """Return the means with those of the residual, where every sequence came with one."""
        cross, input, error = (self._mean(values) for values in self.sums[3:])
        residual = Residual(cross.reshape(*self.shape, -1), input)
        return Sample(self.moments(), residual, float(error.sum()), self.sequences)

    def moments(self) -> Moments:
        """Return the means of all that was counted."""
        if not self.samples:
            raise InputError("No step was sampled: the sequences are too short. Calibrate with more or longer ones.")
        gram, cross, power = (self._mean(values) for values in self.sums[:3])
        shape = self.shape
        moments = Moments(gram.reshape(*shape, *shape[1:]), cross.reshape(*shape, -1), power, self.sequences)
        return moments.held_by(self.system)

    def _mean(self, values: Tensor) -> Real:
        return values.cpu().numpy() / self.samples

    def _states(self, u: Tensor) -> StridedStates:
        """Return the states at the stride for sequences as long as these, prepared once."""
        channels, slots, parts = self.shape
        outputs = u.shape[2] // channels
        every = self.every or stride(u.shape[1], slots * parts, outputs, self.expected)
        if every not in self.strided:
            self.strided[every] = StridedStates(self.system, every, u)
        return self.strided[every]


def stride(length: int, regressors: int, outputs: int, sequences: int) -> int:
    """Return the s for which one in s steps is sampled, for one regression with so many regressors and outputs.

    Neighbouring steps tell little new, and the products of regressors cost most: at this stride about as much as
    running the layer, while so many sequences still give fifty samples for each regressor; of few, every step counts.
    The stride has no factor in common with the length, so that an image is not sampled in the same columns of every
    row.

    >>> stride(784, regressors=128, outputs=96, sequences=200), stride(784, regressors=64, outputs=1, sequences=200)
    (3, 19)
    >>> stride(784, regressors=64, outputs=1, sequences=6), stride(10, regressors=64, outputs=1, sequences=200)
    (1, 1)
    """
    affordable = max(3, regressors // (3 * outputs))
    enough = min(sequences, SEQUENCES) * length // (SAMPLES * max(1, regressors))
    largest = max(1, min(affordable, enough, length))
    return next(s for s in range(largest, 0, -1) if math.gcd(s, length) == 1)


class StridedStates:
    """States that stride over s steps: x_{k+s} = λˢ x_k + Σ_a λ^{s-1-a} B u_{k+1+a}.

    The sums are one matrix product for all strides of all sequences; a short loop joins them.
    """

    def __init__(self, system: DiagonalSystem, every: int, like: Tensor) -> None:
        """Prepare strides over `every` steps, in the precision and on the device of `like`."""
        layout = system.layout
        self.every, self.channels, self.slots = every, layout.channels, layout.slots
        self.directions, self.backward_delay = system.directions, system.backward_delay
        self.device, self.dtype = like.device, like.dtype.to_complex()
        poles, B = layout.spread(system.poles), layout.spread(system.B).swapaxes(1, 2)
        powers = poles[:, None] ** np.arange(every)[:, None]  # (channels, every, slots)
        after = powers[:, :, None] * B[:, None]  # (channels, every, inputs, slots): the state a steps after an input
        self.poles, self.power, self.B = (self._tensor(values) for values in (poles, poles**every, B))
        self.to_last, self.to_first = self._tensor(after[:, ::-1]), self._tensor(after)

    def cut(self, signal: Tensor) -> Tensor:
        """Cut (batch, length, width) into (channels, strides, batch, every, width of a channel).

        The last stride ends with the last step; silence before the first step fills the first stride.
        """
        batch, length, width = signal.shape
        whole = pad(signal, (0, 0, -length % self.every, 0))
        return whole.view(batch, -1, self.every, self.channels, width // self.channels).permute(3, 1, 0, 2, 4)

    def regressors(self, strides: Tensor) -> Tensor:
        """Return z at the last step of every stride of an input, (channels, strides * batch, regressors)."""
        directions = [self._states(strides, self.to_last)]
        if self.directions == 2:
            first = self._states(strides.flip(1), self.to_first).flip(1)  # at the first step of every stride
            later = torch.cat([first[:, 1:], torch.zeros_like(first[:, :1])], dim=1)  # one step after the last
            directions.append(later if self.backward_delay else self._step(later, strides[..., -1, :]))
        return torch.view_as_real(torch.stack(directions, dim=-1)).flatten(1, 2).flatten(2)

    def _states(self, strides: Tensor, reach: Tensor) -> Tensor:
        """Return the states (channels, strides, batch, slots) after every stride, in turn from silence."""
        channels, count, batch = strides.shape[:3]
        into = torch.view_as_real(reach).reshape(channels, -1, 2 * self.slots)
        x = torch.bmm(strides.reshape(channels, count * batch, -1), into)
        x = torch.view_as_complex(x.view(channels, count, batch, self.slots, 2))
        for before, now in pairwise(x.unbind(1)):
            now.addcmul_(self.power[:, None], before)
        return x

    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        """Return λ x + B u for x (channels, strides, batch, slots) and u (channels, strides, batch, inputs)."""
        return torch.addcmul(torch.einsum("glbi,gis->glbs", u.to(x.dtype), self.B), self.poles[:, None, None], x)

    def _tensor(self, values: Complex) -> Tensor:
        return torch.from_numpy(np.array(values, order="C")).to(self.device, self.dtype)


def last_steps(strides: Tensor) -> Tensor:
    """Return the last step of every stride, (channels, strides * batch, width)."""
    return strides[..., -1, :].flatten(1, 2)
