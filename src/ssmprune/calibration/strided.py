"""The states of a layer at one in s steps, without computing the steps between."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..arrays import Complex
from ..core.layout import ChannelLayout
from ..core.system import DiagonalSystem
from .data import SEQUENCES

SAMPLES = 50  # of each regressor


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
        layout = ChannelLayout.of(system)
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
