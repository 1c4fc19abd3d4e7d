"""Certificates: how far pruning can move a layer's output, whatever its input."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..arrays import Real
from ..core.moments import Moments, moments_of, weights
from ..core.norms import hinf, pair_hinf, state_hinf
from ..core.system import DiagonalSystem, append_states
from .plan import Plan


@dataclass(frozen=True)
class Certificate:
    """What pruning does to one layer's output: |y - y'| <= exact |u| <= bound |u| for every input u.

    |.| is the root of a signal's energy. `bound` is the method's where it makes new states (for balanced truncation
    twice the sum of the Hankel singular values that are cut off), else the sum of what the states contribute. `paper`
    is the expression of the paper's equation 4 as a norm, the root of the sum of the removed states' squared norms. It
    is no bound: equal states add up, their squares do not. It knows no refit and no new states, so such a layer has
    none. `paper_model` is that of its equation 8, the same times the gains of all other layers: no bound either, since
    D, norms, gates and residuals are not in it.
    """

    gain: float  # H-infinity norm of the layer before, without D
    exact: float  # H-infinity norm of the difference between the layer before and after
    theta: float  # frequency in [0, π] at which it is attained
    bound: float  # the method's, or the sum of the norms of what each stored state contributes to the difference
    paper: float | None
    paper_model: float | None
    measured: float | None  # root of the share of the layer's output energy that is lost on calibration data


class Comparison(NamedTuple):
    """A layer before, and before minus after, as systems with the same states."""

    before: DiagonalSystem
    difference: DiagonalSystem  # before minus after
    D: Real  # (outputs,) what is added to D


def certify(
    plan: Plan, systems: Mapping[str, DiagonalSystem], moments: Mapping[str, Moments] | None = None
) -> dict[str, Certificate]:
    """Return the certificate of every layer of a plan; with moments from `collect`, also the error on that data.

    >>> twins = DiagonalSystem.from_discrete(poles=[0.5, 0.5, 0.5], B=[[1]] * 3, C=[[1, 1, 2]])
    >>> from ssmprune import make_plan
    >>> certificate = certify(make_plan({"ssm": twins}, ratio=0.6), {"ssm": twins})["ssm"]
    >>> certificate.gain, certificate.exact, certificate.bound, round(certificate.paper, 3)
    (8.0, 4.0, 4.0, 2.828)
    """
    comparisons = _compare_plan(plan, systems)
    lost = {} if moments is None else energy_lost(comparisons, moments)
    unfitted = systems.keys() - plan.C.keys() - plan.new.keys()
    certificates = certify_comparisons(systems, comparisons, lost, unfitted)
    return certificates | {layer: replace(certificates[layer], bound=new.bound) for layer, new in plan.new.items()}


def certify_comparisons(
    systems: Mapping[str, DiagonalSystem],
    comparisons: Mapping[str, Comparison],
    lost: Mapping[str, float],
    unfitted: Collection[str] = (),
) -> dict[str, Certificate]:
    """Return the certificate of every layer after any change, such as learning; `lost` comes from `energy_lost`.

    unfitted: the layers that have lost states and are else as they were, for which the paper has an expression.
    """
    gains = {layer: hinf(system.select(~system.unstable_states))[0] for layer, system in systems.items()}
    certificates = {}
    for layer, (_, difference, D) in comparisons.items():
        active = difference.select(np.any(difference.C != 0, axis=(0, 1)))
        exact, theta = hinf(_with_feedthrough(active, -D))
        paper = float(np.linalg.norm(state_hinf(active))) if layer in unfitted else None
        measured = float(np.sqrt(lost[layer])) if layer in lost else None
        certificates[layer] = Certificate(
            gains[layer], exact, theta, _bound(active, D), paper, _times_others(paper, layer, gains), measured
        )
    return certificates


def energy_lost_by_plan(
    plan: Plan, systems: Mapping[str, DiagonalSystem], moments: Mapping[str, Moments] | None = None
) -> dict[str, float]:
    """Return the share of every layer's output energy that a plan loses: on data, or without moments for white noise.

    It is E|y - y'|² / E|y|² for the inputs that the whole model gives the layer, y without D u.
    """
    return energy_lost(_compare_plan(plan, systems), moments)


def energy_lost(
    comparisons: Mapping[str, Comparison], moments: Mapping[str, Moments] | None = None
) -> dict[str, float]:
    """Return the share of every layer's output energy that is lost; the moments are those of a comparison's states."""
    measured = moments_of({layer: comparison.difference for layer, comparison in comparisons.items()}, moments)
    return {layer: _lost(comparison, measured[layer]) for layer, comparison in comparisons.items()}


def compare(before: DiagonalSystem, after: DiagonalSystem, D_change: Real) -> Comparison:
    """Compare a layer with any other of its width: the states of both side by side.

    >>> one = DiagonalSystem.from_discrete(poles=[0.5, 0.9], B=[[1], [1]], C=[[1, 2]])
    >>> compare(one, one.select(np.array([True, False])), np.zeros(1)).difference.C.real
    array([[[ 1.,  2., -1.]]])
    """
    both = append_states(before, after.log_poles, after.B, -after.C, after.channel)
    own = np.arange(both.n) < before.n
    return Comparison(replace(both, C=both.C * own), both, D_change)


def _times_others(paper: float | None, layer: str, gains: Mapping[str, float]) -> float | None:
    """Return `paper` times the gains of all other layers; of very many layers that may be infinite."""
    if paper is None:
        return None
    with np.errstate(divide="ignore", over="ignore"):  # by logarithms: 0 times a product that overflows is 0
        return float(np.exp(np.log([paper, *(gain for other, gain in gains.items() if other != layer)]).sum()))


def _compare_plan(plan: Plan, systems: Mapping[str, DiagonalSystem]) -> dict[str, Comparison]:
    """Return what a plan does to layers: the same states, read out with C - C', or old and new states side by side."""
    plan.check(systems)
    comparisons = {}
    for layer, system in systems.items():
        D = plan.D_change.get(layer, np.zeros(system.outputs))
        if layer in plan.new:
            comparisons[layer] = compare(system, plan.new[layer].system, D)
        else:
            C, kept = np.array(system.C), plan.keep[layer]
            C[:, :, kept] -= plan.C.get(layer, C[:, :, kept])
            comparisons[layer] = Comparison(system, replace(system, C=C), D)
    return comparisons


def _with_feedthrough(system: DiagonalSystem, D: Real) -> DiagonalSystem:
    """Add a diagonal feed-through as states with the pole 0, which hold the present input alone."""
    outputs = np.flatnonzero(D)
    if not len(outputs):
        return system
    mimo = system.channel is None
    B = np.eye(system.inputs)[outputs] if mimo else np.ones((len(outputs), 1))
    C = np.zeros((system.directions, system.C.shape[1], len(outputs)))
    C[0, outputs if mimo else 0, np.arange(len(outputs))] = D[outputs] / system.gain
    return append_states(system, np.full(len(outputs), -np.inf), B, C, outputs)


def _bound(difference: DiagonalSystem, D: Real) -> float:
    """Return the triangle inequality's bound; channels do not mix, so the worst of them counts."""
    norms = pair_hinf(difference)
    if difference.channel is None:
        return float(norms.sum() + np.abs(D).max(initial=0))
    return float((np.bincount(difference.channel, norms, difference.channels) + np.abs(D)).max(initial=0))


def _lost(comparison: Comparison, moments: Moments) -> float:
    before, difference, D = comparison
    size = np.frexp(np.abs(before.C).max(initial=0))[1]  # the share does not depend on it; squares must not underflow
    W, V = (np.ldexp(weights(part), -size) for part in (before, difference))
    D = np.ldexp(D, -size)
    energy, error = (np.einsum("gsaq,gsatb,gtbq->", w, moments.gram, w, optimize=True) for w in (W, V))
    D = D.reshape(moments.power.shape)
    error += np.sum(D * D * moments.power) - 2 * np.sum(D[:, None, None] * moments.cross * V)
    return float(max(error, 0) / energy) if energy > 0 else 0.0
