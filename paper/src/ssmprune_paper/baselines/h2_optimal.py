"""H2-optimal reduction as a baseline: poles, B and C move until the energy of what is lost is as small as it gets.

The squared H2 norm of G - G' is the energy of the difference of the impulse responses, or of the outputs under white
noise. Between diagonal systems it has a closed form, a sum over pairs of poles, and so has its gradient. Descent starts
at balanced truncation (`ssmprune.BALANCED`) and ends in a local optimum near it, never above it, as any method of this
kind does ([Sakamoto2025] descends on the same error). Poles are kept as exp(-exp(a) + iθ), which is stable.

The two directions of a bidirectional layer count side by side, as in balanced truncation.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from ssmprune import make_plan
from ssmprune.adapters import Adapter, layers_of
from ssmprune.core import ChannelLayout, DiagonalSystem
from ssmprune.methods import BALANCED, Allocation, layer_adaptive

Model = TypeVar("Model")
STEPS = 200  # of descent
FASTEST = -700.0  # a logarithm whose exponential is as good as 0


def h2_optimal_model(
    model: Model, ratio: float, allocation: Allocation = layer_adaptive, *, adapter: Adapter | None = None
) -> Model:
    """Return a copy of a model of our own layers, each reduced by `h2_optimal`; D stays."""
    other = copy.deepcopy(model)
    layers = layers_of(other, adapter)
    systems = {path: layer.read() for path, layer in layers.items()}
    for path, system in h2_optimal(systems, ratio, allocation).items():
        if system is not systems[path]:
            layers[path].write(system)
    return other


def h2_optimal(
    systems: Mapping[str, DiagonalSystem], ratio: float, allocation: Allocation = layer_adaptive
) -> dict[str, DiagonalSystem]:
    """Return systems with as many states in each layer as balanced truncation leaves, at most as far in H2 norm."""
    plan = make_plan(systems, ratio, replace(BALANCED, allocation=allocation))
    return dict(systems) | {layer: descend(reduced.system, systems[layer]) for layer, reduced in plan.new.items()}


def descend(start: DiagonalSystem, target: DiagonalSystem, steps: int = STEPS) -> DiagonalSystem:
    """Return a system as large as `start` that is closer to `target`, or `start` where no step helps."""
    goal, layout = Modes.of(target), start.layout
    energy = goal.inner(goal)
    first, own = Modes.of(start), torch.from_numpy(layout.spread(np.ones(start.n, bool)))
    variables = _Variables.at(first)
    optimizer = torch.optim.LBFGS(
        [*variables], max_iter=steps, history_size=20, tolerance_grad=1e-9, tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def lost() -> Tensor:
        optimizer.zero_grad()
        share = variables.modes(first, own).squared_distance(goal, energy) / energy
        torch.autograd.backward(share)
        return share

    if not energy > 0 or start.n == 0:
        return start
    optimizer.step(lost)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        found = variables.modes(first, own)
        if not found.squared_distance(goal, energy) < first.squared_distance(goal, energy):  # also false for NaN
            return start
        return found.write_into(start, layout)


def h2_distance(one: DiagonalSystem, other: DiagonalSystem) -> float:
    """Return the H2 norm of the difference of two systems of one width, of both directions side by side.

    >>> near = DiagonalSystem.from_discrete(poles=[0.6], B=[[1]], C=[[4]])
    >>> h2_distance(near, replace(near, C=0 * near.C))
    5.0
    """
    goal = Modes.of(other)
    squared = Modes.of(one).squared_distance(goal, goal.inner(goal))
    return float(squared.clamp(min=0).sqrt())


class Modes(NamedTuple):
    """States side by side in their channels (see `ChannelLayout`); each answers an impulse by Re(C λ^k B)."""

    log_poles: Tensor  # (channels, slots), complex128
    B: Tensor  # (channels, slots, inputs)
    C: Tensor  # (channels, slots, outputs of all directions), with the system's gain

    @classmethod
    def of(cls, system: DiagonalSystem) -> Modes:
        """Return the states of a system; places that no state fills have B = C = 0."""
        layout, log_poles = system.layout, system.log_poles.copy()
        log_poles.real = np.maximum(log_poles.real, FASTEST)
        C = system.gain * system.C.reshape(-1, system.n).T
        arrays = (layout.spread(log_poles, -1), layout.spread(system.B), layout.spread(C))
        return cls(*(torch.from_numpy(array) for array in arrays))

    def inner(self, other: Modes) -> Tensor:
        """Return Σ_k ⟨Re(C λ^k B), Re(F μ^k E)⟩ = ½ Re Σ_ij (C_i·F_j)(B_i·E_j) / (1 - λ_i μ_j), once more with conj."""
        return (self._pairs(other) + self._pairs(Modes(*(part.conj() for part in other)))) / 2

    def squared_distance(self, goal: Modes, energy: Tensor) -> Tensor:
        """Return the energy of the difference of the impulse responses; `energy` is the goal's own."""
        return self.inner(self) - 2 * self.inner(goal) + energy

    def write_into(self, system: DiagonalSystem, layout: ChannelLayout) -> DiagonalSystem:
        """Return a system that was laid out so with these states."""
        log_poles, B, C = (layout.gather(part.resolve_conj().numpy()) for part in self)
        return replace(system, log_poles=log_poles, B=B, C=np.asarray(C.T.reshape(system.C.shape) / system.gain))

    def _pairs(self, other: Modes) -> Tensor:
        sums = self.log_poles[:, :, None] + other.log_poles[:, None]
        return -(self.B @ other.B.mT * (self.C @ other.C.mT) / torch.expm1(sums)).sum().real


class _Variables(NamedTuple):
    """What descends, all near 0 or of the size of the outputs' root, so that one step suits all."""

    decay: Tensor  # (channels, slots): log(-Re log λ)
    turn: Tensor  # (channels, slots): the angle's change, in units of the first decay
    B: Tensor
    C: Tensor

    @classmethod
    def at(cls, first: Modes) -> _Variables:
        """Return the variables of these states; B and C share the gain of a state equally."""
        B, C = (part.abs().square().sum(2, keepdim=True).sqrt() for part in (first.B, first.C))
        balance = torch.where((B > 0) & (C > 0), (C / B).sqrt(), torch.ones_like(B))
        decay = (-first.log_poles.real).log()
        parts = (decay, torch.zeros_like(decay), first.B * balance, first.C / balance)
        return cls(*(part.clone().requires_grad_() for part in parts))

    def modes(self, first: Modes, own: Tensor) -> Modes:
        """Return the states that these variables stand for; `own` (channels, slots) tells them from filled places."""
        unit = (-first.log_poles.real).clamp(max=1)
        log_poles = torch.complex(-self.decay.exp(), first.log_poles.imag + unit * self.turn)
        return Modes(log_poles, self.B * own[..., None], self.C * own[..., None])
