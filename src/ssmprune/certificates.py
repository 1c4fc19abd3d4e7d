"""Certificates: how far pruning can move a layer's output, whatever its input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from .arrays import Real
from .calibration import Moments, moments_of
from .features import weights
from .norms import hinf, pair_hinf, state_hinf
from .plan import Plan
from .system import DiagonalSystem


@dataclass(frozen=True)
class Certificate:
    """What pruning does to one layer's output: |y - y'| <= exact |u| <= bound |u| for every input u.

    |.| is the root of a signal's energy. `paper` is the expression of the paper's equation 4 as a norm, the root of
    the sum of the removed states' squared norms. It is no bound: equal states add up, their squares do not. It knows
    no refit, so a re-fitted layer has none.
    """

    exact: float  # H-infinity norm of the difference between the layer before and after
    theta: float  # frequency in [0, π] at which it is attained
    bound: float  # sum of the norms of what each stored state contributes to the difference
    paper: float | None
    measured: float | None  # root of the share of the layer's output energy that is lost on calibration data


def certify(
    plan: Plan, systems: Mapping[str, DiagonalSystem], moments: Mapping[str, Moments] | None = None
) -> dict[str, Certificate]:
    """Return the certificate of every layer of a plan; with moments from `collect`, also the error on that data.

    >>> twins = DiagonalSystem.from_discrete(poles=[0.5, 0.5, 0.5], B=[[1]] * 3, C=[[1, 1, 2]])
    >>> from ssmprune import make_plan
    >>> certify(make_plan({"ssm": twins}, ratio=0.6), {"ssm": twins})["ssm"]
    Certificate(exact=4.0, theta=0.0, bound=4.0, paper=2.8284271247461903, measured=None)
    """
    plan.check(systems)
    known = {} if moments is None else moments_of(systems, moments)
    return {layer: _certificate(plan, layer, system, known.get(layer)) for layer, system in systems.items()}


def _certificate(plan: Plan, layer: str, system: DiagonalSystem, moments: Moments | None) -> Certificate:
    difference, D = _difference(plan, layer, system), plan.D_change.get(layer, np.zeros(system.outputs))
    active = difference.select(np.any(difference.C != 0, axis=(0, 1)))
    exact, theta = hinf(_with_feedthrough(active, -D))
    return Certificate(
        exact,
        theta,
        _bound(active, D),
        None if layer in plan.C else float(np.linalg.norm(state_hinf(active))),
        None if moments is None else _lost(system, difference, D, moments),
    )


def _difference(plan: Plan, layer: str, system: DiagonalSystem) -> DiagonalSystem:
    """Return the layer before minus the layer after, without D: the same states, read out with C - C'."""
    C = np.array(system.C)
    kept = plan.keep[layer]
    C[:, :, kept] -= plan.C.get(layer, C[:, :, kept])
    return replace(system, C=C)


def _with_feedthrough(system: DiagonalSystem, D: Real) -> DiagonalSystem:
    """Add a diagonal feed-through as states with the pole 0, which hold the present input alone."""
    outputs = np.flatnonzero(D)
    if not len(outputs):
        return system
    mimo = system.channel is None
    B = np.eye(system.inputs)[outputs] if mimo else np.ones((len(outputs), 1))
    C = np.zeros((system.directions, system.C.shape[1], len(outputs)))
    C[0, outputs if mimo else 0, np.arange(len(outputs))] = D[outputs] / system.gain
    return replace(
        system,
        log_poles=np.append(system.log_poles, np.full(len(outputs), -np.inf)),
        B=np.concatenate([system.B, B]),
        C=np.concatenate([system.C, C], axis=2),
        channel=None if system.channel is None else np.append(system.channel, outputs),
    )


def _bound(difference: DiagonalSystem, D: Real) -> float:
    """Return the triangle inequality's bound; channels do not mix, so the worst of them counts."""
    norms = pair_hinf(difference)
    if difference.channel is None:
        return float(norms.sum() + np.abs(D).max(initial=0))
    return float((np.bincount(difference.channel, norms, difference.channels) + np.abs(D)).max(initial=0))


def _lost(system: DiagonalSystem, difference: DiagonalSystem, D: Real, moments: Moments) -> float:
    """Return the root of E|y - y'|² / E|y|² under the moments, y without D u."""
    W, V = weights(system), weights(difference)
    energy, error = (np.einsum("gsaq,gsatb,gtbq->", w, moments.gram, w, optimize=True) for w in (W, V))
    D = D.reshape(moments.power.shape)
    error += np.sum(D * D * moments.power) - 2 * np.sum(D[:, None, None] * moments.cross * V)
    return float(np.sqrt(max(error, 0) / energy)) if energy > 0 else 0.0
