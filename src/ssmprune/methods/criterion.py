"""Criteria: functions `(system, evidence) -> log-scores (n,)`; higher is kept, -inf is worth nothing.

`hinf` (LAST's [Gwak2024], with a variant for unit B and another for real responses), `h2` (AIRE-Prune's [AIRE2026]) and
`magnitude` judge a state by its parameters, `random`, the baseline, by nothing; `energy` and `elimination` (the
surgeon's) also look at the second moments of the layer's states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from ..arrays import Complex, Real
from ..core import norms
from ..core.elimination import eliminate
from ..core.least_squares import correlations
from ..core.moments import Moments, weights, white_noise
from ..core.system import DiagonalSystem

SMALLEST, LARGEST = 1e-290, 1e300  # beyond them products of squares have lost digits


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a criterion may know of a layer besides its system: moments, and a generator of random numbers."""

    measure: Callable[[], Moments]  # called once, when a criterion asks for the moments
    rng: np.random.Generator

    @classmethod
    def without_data(cls, system: DiagonalSystem, seed: int = 0) -> Evidence:
        """Return what is known of a layer without data: its inputs count as white noise.

        >>> system = DiagonalSystem.from_discrete(poles=[0.6], B=[[1]], C=[[1]])
        >>> Evidence.without_data(system).moments.gram.ravel()
        array([1.5625, 0.    , 0.    , 0.    ])
        """
        return cls(partial(white_noise, system), np.random.default_rng(seed))

    @cached_property
    def moments(self) -> Moments:
        """Second moments of the layer's states and inputs, on data or under white noise."""
        return self.measure()

    @property
    def sequences(self) -> int:
        """How many sequences of data were looked at: none before a criterion asks for the moments."""
        return self.moments.sequences if "moments" in vars(self) else 0


Criterion: TypeAlias = Callable[[DiagonalSystem, Evidence], Real]


def hinf(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return log |C_i|²|B̄_i|² / (1 - |λ̄_i|)², the squared H-infinity norm of each state alone (equation 6).

    >>> system = DiagonalSystem.from_discrete(poles=[0.5, 0.9], B=[[1], [1]], C=[[1, 0]])
    >>> hinf(system, Evidence.without_data(system)) / np.log(2)
    array([  2., -inf])
    """
    return _log_gain(system, _one_minus(system.log_poles.real), 2)


def hinf_unit_B(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return the H-infinity score with |B̄_i| = 1, the paper's shortcut for layers whose B is not trained.

    The discretised B̄ of a fixed B = 1 varies a hundredfold over states, so `hinf` ranks more truly.
    """
    readout = _log_squares(system.C, "dqi->i") - np.log(system.directions)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(readout > -np.inf, readout - 2 * np.log(_one_minus(system.log_poles.real)), -np.inf)


def pair_hinf(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return log ‖G_i‖²_∞ with G_i the real response of state i, its conjugate and both directions included.

    `hinf` takes the complex state for it, which for slow poles near the real axis is off by a factor of up to 2 either
    way. An unstable state has no such norm and scores as in `hinf`.

    >>> system = DiagonalSystem.from_discrete(poles=[0.5, 0.5], B=[[1], [1]], C=[[1, 1j]], gain=2)
    >>> pair_hinf(system, Evidence.without_data(system)) / np.log(2)
    array([  4., -inf])
    """
    scores, stable = hinf(system, evidence), ~system.unstable_states
    unit, exponents = norms.of_unit_size(system.select(stable))
    with np.errstate(divide="ignore"):
        scores[stable] = 2 * (np.log(norms.pair_hinf(unit)) + exponents * np.log(2))
    return scores


def h2(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return log |C_i|²|B̄_i|² / (1 - |λ̄_i|²), the squared H2 norm of each state alone.

    >>> system = DiagonalSystem.from_discrete(poles=[0.0, 0.6], B=[[1], [1]], C=[[1, 4]])
    >>> np.exp(h2(system, Evidence.without_data(system)))
    array([ 1., 25.])
    """
    return _log_gain(system, _one_minus(2 * system.log_poles.real), 1)


def magnitude(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return log |λ̄_i|²|B̄_i|²|C_i|². Squared, so that the layer-adaptive allocation of it is LAMP [Lee2021].

    >>> system = DiagonalSystem.from_discrete(poles=[0.5, 0.25], B=[[1], [1]], C=[[1, 1]])
    >>> magnitude(system, Evidence.without_data(system)) / np.log(2)
    array([-2., -4.])
    """
    return _log_gain(system, np.ones(system.n), 0) + 2 * system.log_poles.real


def random(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return independent uniform draws as log-scores, so that every order of the states is equally likely."""
    return np.log1p(-evidence.rng.random(system.n))  # in (-inf, 0]; 1 - u is never 0, so no state is worth nothing


def energy(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return log tr(w_iᵀ G_ii w_i), the energy of what each state alone adds to the output (see `core`).

    >>> system = DiagonalSystem.from_discrete([0.0, 0.6], [[1], [1]], [[1, 1]])
    >>> np.exp(energy(system, Evidence.without_data(system)))
    array([1.    , 1.5625])
    """
    W, blocks = weights(system), np.einsum("gsasb->gsab", evidence.moments.gram)
    W_size, block_size = np.abs(W).max(axis=(2, 3), initial=0), np.abs(blocks).max(axis=(2, 3), initial=0)
    exponents = np.frexp(W_size)[1], np.frexp(block_size)[1]  # powers of two, so that no product under- or overflows
    W, blocks = (np.ldexp(values, -size[..., None, None]) for values, size in zip((W, blocks), exponents, strict=True))
    with np.errstate(divide="ignore"):
        score: Real = np.log(np.einsum("gsaq,gsab,gsbq->gs", W, blocks, W))
    score += (2 * exponents[0] + exponents[1]) * np.log(2)
    return system.layout.gather(score)


def elimination(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return the logarithm of the share of the layer's output energy that each state costs when its turn comes.

    States are correlated, so others can take over much of what a state carries once the readout is re-fitted. States go
    one after the other, always the state whose loss costs least after the others are re-fitted. Shares compare between
    layers: the scores of all layers, sorted together, name the state that is cheapest next.

    >>> twins = DiagonalSystem.from_discrete(poles=[0.5, 0.9, 0.9], B=[[1], [1], [2]], C=[[1, 1, 1]])
    >>> np.exp(elimination(twins, Evidence.without_data(twins))).round(3)
    array([0.012, 0.   , 0.988])
    """
    layout = system.layout
    gram, scale = correlations(evidence.moments.gram)
    W = weights(system) * scale[..., None]
    W = np.ldexp(W, -np.frexp(np.abs(W).max(initial=0))[1])  # costs are shares; squares of tiny weights are none
    target = np.einsum("gsatb,gtbq->gsaq", gram, W, optimize=True)
    stable, unstable = layout.spread(~system.unstable_states), layout.spread(system.unstable_states)
    costs: Real = layout.gather(eliminate(gram, target, stable, unstable))
    return costs - float(np.log(np.sum(W * target) or 1))


def _one_minus(log_sizes: Real) -> Real:
    """Return |1 - size|, with all its digits for sizes next to 1, as those of slow poles are."""
    return np.asarray(np.abs(np.expm1(log_sizes)), np.float64)


def _log_gain(system: DiagonalSystem, loss: Real, power: int) -> Real:
    """Return log |B_i|²|C_i|² / loss_i^power of every state (n,); a state without B or C has -inf, whatever its loss.

    Two directions count as the average of their |C_i|², the paper's rule for bidirectional layers (section 3.1, below
    equation 6).
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # what over- or underflows is done again below
        product = _squares(system.B, "ip->i") * _squares(system.C, "dqi->i") / system.directions
        quotient = product / loss**power
        gain: Real = np.log(quotient)
        odd = ~((product > SMALLEST) & (product < LARGEST) & (quotient > SMALLEST) & (quotient < LARGEST))
        if odd.any():  # logarithms before products
            B, C = _log_squares(system.B[odd], "ip->i"), _log_squares(system.C[:, :, odd], "dqi->i")
            both = B + C - np.log(system.directions)
            gain[odd] = np.where(both > -np.inf, both - power * np.log(loss[odd]), -np.inf)
    return gain


def _log_squares(values: Complex, axes: str) -> Real:
    """Return the logarithms of sums of |values|²; `axes` are einsum's, as in "ip->i". Numbers of any size are welcome.

    >>> _log_squares(np.array([[3e-200, 4e-200j], [0, 0]]), "ip->i") / np.log(10)
    array([-398.60205999,          -inf])
    """
    others = tuple(place for place, axis in enumerate(axes.split("->")[0]) if axis != axes[-1])
    largest = np.maximum(np.abs(values.real), np.abs(values.imag)).max(axis=others, initial=0, keepdims=True)
    unit = np.where(largest > 0, largest, 1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(_squares(values / unit, axes)) + 2 * np.log(unit.ravel()), np.float64)


def _squares(values: Complex, axes: str) -> Real:
    source, target = axes.split("->")
    subscripts = f"{source},{source}->{target}"
    with np.errstate(over="ignore"):
        total: Real = np.einsum(subscripts, values.real, values.real)
        total += np.einsum(subscripts, values.imag, values.imag)
    return total
