"""The features of a layer's states at one in s steps, without computing the steps between."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from .arrays import Complex
from .features import Layout
from .system import DiagonalSystem


def stride(length: int, features: int, outputs: int) -> int:
    """Return one in how many steps to sample, for one regression problem with so many features and outputs.

    Neighbouring steps tell little new, and the products of features cost most: at this stride about as much as running
    the layer, while two hundred sequences still give fifty samples for each feature. The stride has no factor in common
    with the length, so that an image is not sampled in the same columns of every row.

    >>> stride(784, features=128, outputs=96), stride(784, features=64, outputs=1), stride(10, features=64, outputs=1)
    (3, 19, 1)
    """
    affordable, enough = max(3, features // (3 * outputs)), 4 * length // max(1, features)
    largest = max(1, min(affordable, enough, length))
    return next(s for s in range(largest, 0, -1) if math.gcd(s, length) == 1)


class Leaps:
    """States that leap over s steps: x_{k+s} = λˢ x_k + Σ_a λ^{s-1-a} B u_{k+1+a}.

    The sums are one matrix product for all leaps of all sequences; a short loop joins them.
    """

    def __init__(self, system: DiagonalSystem, every: int, like: Tensor) -> None:
        """Prepare leaps over `every` steps, in the precision and on the device of `like`."""
        layout = Layout.of(system)
        self.every, self.problems, self.slots = every, layout.problems, layout.slots
        self.directions, self.backward_delay = system.directions, system.backward_delay
        self.device, self.dtype = like.device, like.dtype.to_complex()
        poles, B = layout.spread(system.poles), layout.spread(system.B).swapaxes(1, 2)
        powers = poles[:, None] ** np.arange(every)[:, None]  # (problems, every, slots)
        after = powers[:, :, None] * B[:, None]  # (problems, every, inputs, slots): the state a steps after an input
        self.poles, self.leap, self.B = (self._tensor(values) for values in (poles, poles**every, B))
        self.to_last, self.to_first = self._tensor(after[:, ::-1]), self._tensor(after)

    def cut(self, signal: Tensor) -> Tensor:
        """Cut (batch, length, width) into (problems, leaps, batch, every, width of a problem).

        The last leap ends with the last step; silence before the first step fills the first leap.
        """
        batch, length, width = signal.shape
        whole = pad(signal, (0, 0, -length % self.every, 0))
        return whole.view(batch, -1, self.every, self.problems, width // self.problems).permute(3, 1, 0, 2, 4)

    def features(self, leaps: Tensor) -> Tensor:
        """Return z at the last step of every leap of an input, (problems, leaps * batch, features)."""
        directions = [self._states(leaps, self.to_last)]
        if self.directions == 2:
            first = self._states(leaps.flip(1), self.to_first).flip(1)  # at the first step of every leap
            later = torch.cat([first[:, 1:], torch.zeros_like(first[:, :1])], dim=1)  # one step after the last
            directions.append(later if self.backward_delay else self._step(later, leaps[..., -1, :]))
        return torch.view_as_real(torch.stack(directions, dim=-1)).flatten(1, 2).flatten(2)

    def _states(self, leaps: Tensor, reach: Tensor) -> Tensor:
        """Return the states (problems, leaps, batch, slots) after every leap, one after the other from silence."""
        problems, count, batch = leaps.shape[:3]
        into = torch.view_as_real(reach).reshape(problems, -1, 2 * self.slots)
        x = torch.bmm(leaps.reshape(problems, count * batch, -1), into)
        x = torch.view_as_complex(x.view(problems, count, batch, self.slots, 2))
        for before, now in pairwise(x.unbind(1)):
            now.addcmul_(self.leap[:, None], before)
        return x

    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        """Return λ x + B u for x (problems, leaps, batch, slots) and u (problems, leaps, batch, inputs)."""
        return torch.addcmul(torch.einsum("glbi,gis->glbs", u.to(x.dtype), self.B), self.poles[:, None, None], x)

    def _tensor(self, values: Complex) -> Tensor:
        return torch.from_numpy(np.array(values, order="C")).to(self.device, self.dtype)


def last(leaps: Tensor) -> Tensor:
    """Return the last step of every leap, (problems, leaps * batch, width)."""
    return leaps[..., -1, :].flatten(1, 2)
