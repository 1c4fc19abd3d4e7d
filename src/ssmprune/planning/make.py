"""Planning: from systems and a ratio to a plan, by a method and within limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from ..arrays import Real, is_count, is_number, is_share
from ..core.least_squares import RIDGE, refit_layer
from ..core.moments import Moments, moments_of, white_noise
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..methods import LAST, Allocation, Evidence, Method, Scores
from .limits import Limits
from .plan import Fingerprints, Plan


def make_plan(
    systems: Mapping[str, DiagonalSystem],
    ratio: float,
    method: Method = LAST,
    *,
    moments: Mapping[str, Moments] | None = None,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    seed: int = 0,
) -> Plan:
    """Decide which states stay when the share `ratio` of all states is pruned.

    Exactly floor(n (1 - ratio)) of the n stored states stay, but never fewer than one per layer. By a method that
    re-fits, as the surgeon does, the states that stay get the C and D with which each layer, for the inputs that the
    unpruned model gives it, comes nearest to its old output.

    moments: what `collect` measured on data; without them, inputs count as white noise.
    limits: layers to leave alone, caps, floors, rounding.
    seed: of the generator handed to the criterion; only the random one uses it.

    >>> twins = DiagonalSystem.from_discrete(poles=[0.5, 0.9, 0.9], B=[[1], [1], [2]], C=[[1, 1, 1]])
    >>> print(make_plan({"ssm": twins}, ratio=0.33))
    last at 33%
    layer  states    kept  pruned
    ssm         3       2   33.3%
    total       3       2   33.3%
    >>> from ssmprune import SURGEON
    >>> plan = make_plan({"ssm": twins}, 0.33, SURGEON)
    >>> plan
    Plan(surgeon without data at 33%, C and D re-fitted: 2 of 3 states stay)
    >>> plan.keep["ssm"], plan.C["ssm"].real.round(3)
    (array([ True, False,  True]), array([[[1. , 1.5]]]))
    """
    check_ratio(ratio)
    check_request(method, limits, seed)
    _check_systems(systems)
    if moments is None:
        evidence = gather_evidence(systems, lambda layer: white_noise(systems[layer]), seed)
    else:
        evidence = gather_evidence(systems, moments_of(systems, moments).__getitem__, seed)
    scores = score_states(systems, method, evidence)
    name = method_name(method, with_data=moments is not None)
    plan = plan_from_scores(systems, scores, ratio, method.allocation, name, limits)
    if method.refits:
        return refit(plan, systems, {layer: layer_evidence.moments for layer, layer_evidence in evidence.items()})
    return replace(plan, sequences=max((layer_evidence.sequences for layer_evidence in evidence.values()), default=0))


def gather_evidence(
    systems: Mapping[str, DiagonalSystem], moments: Callable[[str], Moments], seed: int
) -> dict[str, Evidence]:
    """Return what criteria may know of every layer; `moments` is called for a layer when its criterion wants them."""
    rng = np.random.default_rng(seed)  # one for all layers, so that their draws differ
    return {layer: Evidence(partial(moments, layer), rng) for layer in systems}


def score_states(systems: Mapping[str, DiagonalSystem], method: Method, evidence: Mapping[str, Evidence]) -> Scores:
    """Return the log-scores (n,) that a method gives the states of every layer."""
    return {layer: _score(layer, system, method, evidence[layer]) for layer, system in systems.items()}


def plan_from_scores(
    systems: Mapping[str, DiagonalSystem],
    scores: Scores,
    ratio: float,
    allocation: Allocation,
    name: str,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
) -> Plan:
    """Make a plan from log-scores (n,) of every layer, wherever they come from; `name` goes into the plan.

    >>> from ssmprune import pooled
    >>> system = DiagonalSystem.from_discrete(poles=[0.5, 0.9], B=[[1], [1]], C=[[1, 1]])
    >>> plan_from_scores({"ssm": system}, {"ssm": np.array([2.0, 1.0])}, 0.5, pooled, "mine").keep["ssm"]
    array([ True, False])
    """
    check_ratio(ratio)
    _check_systems(systems)
    limits.check(systems)
    for layer, system in systems.items():
        if layer not in scores or scores[layer].shape != (system.n,) or np.isnan(scores[layer]).any():
            given = f"shape {scores[layer].shape}" if layer in scores else "none"
            raise InputError(f"Layer {layer!r} needs {system.n} scores, none of them NaN; got {given}.")
    stay = {
        layer: limits.stay(layer, system, scores[layer])
        for layer, system in systems.items()
        if layer not in limits.exclude
    }
    keep = {layer: np.ones(system.n, bool) for layer, system in systems.items()}
    keep |= allocation({layer: scores[layer] for layer in stay}, float(ratio), stay)
    for layer in stay:
        keep[layer] = limits.round_up(keep[layer], systems[layer], scores[layer])
    return Plan(
        keep=keep,
        scores=scores,
        method=name,
        ratio=float(ratio),
        fingerprints=Fingerprints(systems),
        states_per_entry={layer: system.states_per_entry for layer, system in systems.items()},
    )


def refit(
    plan: Plan,
    systems: Mapping[str, DiagonalSystem],
    moments: Mapping[str, Moments] | None = None,
    *,
    ridge: float = RIDGE,
) -> Plan:
    """Return any method's plan with the C and D that bring each pruned layer's output nearest to what it was.

    Least squares on the moments, for the inputs that the unpruned model gives each layer; `refit_in_sequence` goes
    further and also mends what earlier layers lost.

    ridge: the share of each regressor's energy that counts as noise.

    >>> twins = DiagonalSystem.from_discrete(poles=[0.9, 0.9], B=[[1], [1]], C=[[1, 2]])
    >>> plan = refit(make_plan({"ssm": twins}, 0.5), {"ssm": twins})
    >>> plan.keep["ssm"], plan.C["ssm"].real.round(3)
    (array([False,  True]), array([[[3.]]]))
    """
    plan.check(systems)
    check_ridge(ridge)
    measured = moments_of(systems, moments)
    C, D_change = {}, {}
    for layer, system in systems.items():
        if not plan.keep[layer].all():
            C[layer], D_change[layer] = refit_layer(system, plan.keep[layer], measured[layer], ridge)
    sequences = max((layer_moments.sequences for layer_moments in measured.values()), default=0)
    return replace(plan, C=C, D_change=D_change, sequences=sequences)


def check_ratio(ratio: float) -> None:
    """Refuse what is not a share, before anything is computed for it."""
    if not is_share(ratio):
        raise InputError(f"ratio is the share of states to prune, from 0 to 1; got {ratio!r}.")


def check_request(method: Method, limits: Limits, seed: int) -> None:
    """Refuse other types in place of a method, limits or a seed, before anything is computed for them."""
    if not isinstance(method, Method):
        raise InputError(
            f"method is a Method, such as ssmprune.LAST or ssmprune.methods.named()['lamp']; got {method!r}."
        )
    if not isinstance(limits, Limits):
        raise InputError(f"limits are ssmprune.Limits, as in Limits(caps=0.9); got {limits!r}.")
    if not is_count(seed):
        raise InputError(f"seed is a whole number, at least 0; got {seed!r}.")


def method_name(method: Method, with_data: bool) -> str:
    """Return the name of a method for a plan, which says so if the method re-fits without data."""
    return method.name if with_data or not method.refits else f"{method.name} without data"


def check_ridge(ridge: float) -> None:
    """Refuse what is not a share of energy, before anything is fitted with it."""
    if not is_number(ridge) or not 0 <= ridge < np.inf:  # also false for NaN
        raise InputError(f"ridge is a share of energy that counts as noise, at least 0; got {ridge!r}.")


def _score(layer: str, system: DiagonalSystem, method: Method, evidence: Evidence) -> Real:
    scores = np.asarray(method.criterion(system, evidence), np.float64)
    if scores.shape != (system.n,) or np.isnan(scores).any():
        raise InputError(
            f"The criterion of {method.name!r} must return {system.n} numbers for layer {layer!r}, none of them NaN; "
            f"it returned shape {scores.shape} with {int(np.isnan(scores).sum())} NaN."
        )
    return scores


def _check_systems(systems: object) -> None:
    if not isinstance(systems, Mapping):
        raise InputError(f"Plans are made from ssmprune.read(model); got {type(systems).__name__}.")
