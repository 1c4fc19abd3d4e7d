"""Sums of second moments of what the states, inputs and residuals of a layer do."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from ..arrays import Real, is_count
from ..core.layout import ChannelLayout
from ..core.least_squares import Residual, Sample
from ..core.moments import Moments
from ..core.system import DiagonalSystem
from ..errors import InputError
from .record import Call
from .strided import StridedStates, last_steps, stride


class MomentSums:
    """Sums of second moments of one layer's regressors, inputs and residuals, over any number of sequences.

    States are in the precision of the model, their products in double precision.
    """

    def __init__(self, system: DiagonalSystem, every: int | None, expected: int) -> None:
        """Start with empty sums for the layer that `system` describes; count one in `every` steps.

        expected: the number of sequences that are to come; of few, every step counts unless told otherwise.
        """
        if every is not None and not is_count(every, least=1):
            raise InputError(f"every is a number of steps, at least 1; got {every!r}.")
        layout = ChannelLayout.of(system)
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
        self._sum(*(values.double() for values in sampled))
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
        return Moments(gram.reshape(*shape, *shape[1:]), cross.reshape(*shape, -1), power, self.sequences)

    def _sum(self, z: Tensor, u: Tensor, r: Tensor | None = None) -> None:  # (channels, samples, ...)
        sums = [z.mT @ z, z.mT @ u, (u * u).sum(1)]
        if r is not None:
            sums += [z.mT @ r, (u * r).sum(1), (r * r).sum(1)]
        self.sums = [old + new for old, new in zip(self.sums, sums, strict=True)] if self.sums else sums
        self.samples += z.shape[1]

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
