"""Planning: from systems and a ratio to a plan, by a method and within limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from ..arrays import Mask, Real, is_count, is_number, is_share
from ..core.least_squares import RIDGE, take_over
from ..core.moments import Moments, moments_of, white_noise
from ..core.system import DiagonalSystem, append_states
from ..errors import InputError, naming, one_of
from ..methods import LAST, Allocation, Evidence, Method, Reduced, Scores
from ..methods.allocation import descending, exact, highest
from .plan import Fingerprints, Plan

FLOORS = {"layer": "layer", "channel": "channel"}


@dataclass(frozen=True)
class Limits:
    """Layers left alone, caps, floors and rounding.

    >>> Limits(exclude=["layers.0.ssm"], caps=0.9, round_to=8)
    Limits(exclude=['layers.0.ssm'], caps=0.9, floor='layer', round_to=8)
    """

    exclude: Collection[str] = ()  # layers that stay whole and do not count towards the ratio
    caps: float | Mapping[str, float] | None = None  # the largest share that may go from a layer, for all or for each
    floor: Literal["layer", "channel"] = "layer"  # where one state stays: in every layer, or in every channel with any
    round_to: int = 1  # round the kept states of each layer up to a multiple of this (a conjugate pair is two states)

    def __post_init__(self) -> None:
        if isinstance(self.exclude, str) or not isinstance(self.exclude, Collection):
            given = f"the single string {self.exclude!r}" if isinstance(self.exclude, str) else repr(self.exclude)
            raise InputError(f"exclude is a collection of layer names; got {given}.")
        caps = self.caps if isinstance(self.caps, Mapping) else {} if self.caps is None else {"caps": self.caps}
        for layer, cap in caps.items():
            if not is_share(cap):
                raise InputError(
                    f"A cap is the largest share to prune from a layer, from 0 to 1; got {cap!r} for {layer!r}."
                )
        one_of("floor", self.floor, FLOORS)
        if not is_count(self.round_to, least=1):
            raise InputError(f"round_to is a whole number of states, at least 1; got {self.round_to!r}.")

    def check(self, systems: Mapping[str, DiagonalSystem]) -> None:
        """Refuse layers that these systems do not have, and limits that leave nothing to prune."""
        layers = [*self.exclude, *(self.caps if isinstance(self.caps, Mapping) else ())]
        for layer in layers:
            if layer not in systems:
                raise InputError(f"No layer is called {layer!r}; the layers are {', '.join(systems)}.")
        if systems and systems.keys() <= set(self.exclude):
            raise InputError("All layers are excluded, so there is nothing to prune; leave one out of `exclude`.")

    def stay(self, layer: str, system: DiagonalSystem, scores: Real) -> Mask:
        """Mark the states that may not go: the floor, what the cap protects, and poles that have no true score."""
        cap = self.caps.get(layer, 1.0) if isinstance(self.caps, Mapping) else 1.0 if self.caps is None else self.caps
        protected = max(1, math.ceil(system.n * (1 - exact(cap))))
        stay = highest(scores, min(protected, system.n), system.unstable_states)
        if self.floor == "channel" and system.channel is not None:
            order = descending(scores)
            _, best = np.unique(system.channel[order], return_index=True)  # the first of each channel is its best
            stay[order[best]] = True
        return stay

    def round_up(self, keep: Mask, system: DiagonalSystem, scores: Real) -> Mask:
        """Bring back the best pruned states until the number kept is a multiple of `round_to`, or all are kept."""
        missing = self.missing(system.select(keep))
        if missing == 0:
            return keep
        pruned = np.where(keep, -1, np.arange(len(keep)))[descending(scores)]
        keep = keep.copy()
        keep[pruned[pruned >= 0][:missing]] = True
        return keep

    def missing(self, system: DiagonalSystem) -> int:
        """Return how many stored states a system lacks to a multiple of `round_to`."""
        return -system.n % (self.round_to // math.gcd(self.round_to, system.states_per_entry))


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
    plan = choose_states(systems, scores, ratio, method, limits, with_data=moments is not None)
    if method.refits and method.reduce is None:
        return refit_each_layer(plan, systems, moments)
    return replace(plan, sequences=max((layer_evidence.sequences for layer_evidence in evidence.values()), default=0))


def gather_evidence(
    systems: Mapping[str, DiagonalSystem], moments: Callable[[str], Moments], seed: int
) -> dict[str, Evidence]:
    """Return what criteria may know of every layer; `moments` is called for a layer when its criterion wants them."""
    rng = np.random.default_rng(seed)  # one for all layers, so that their draws differ
    return {layer: Evidence(partial(moments, layer), rng) for layer in systems}


def score_states(systems: Mapping[str, DiagonalSystem], method: Method, evidence: Mapping[str, Evidence]) -> Scores:
    """Return the log-scores (n,) that a method gives the states of every layer."""
    scores = {}
    for layer, system in systems.items():
        with naming(f"Layer {layer!r}"):
            scores[layer] = found = np.asarray(method.criterion(system, evidence[layer]), np.float64)
        if found.shape != (system.n,) or np.isnan(found).any():
            raise InputError(
                f"The criterion of {method.name!r} must return {system.n} numbers for layer {layer!r}, none of them "
                f"NaN; it returned shape {found.shape} with {int(np.isnan(found).sum())} NaN."
            )
    return scores


def choose_states(
    systems: Mapping[str, DiagonalSystem],
    scores: Scores,
    ratio: float,
    method: Method,
    limits: Limits,
    *,
    with_data: bool,
) -> Plan:
    """Return the plan that a method makes of its scores, with the new states if it makes such, without its re-fit."""
    name = method.name if with_data or not method.refits else f"{method.name} without data"
    plan = plan_from_scores(systems, scores, ratio, method.allocation, name, limits)
    if method.reduce is None:
        return plan
    keep, new = dict(plan.keep), {}
    for layer, system in systems.items():
        if keep[layer].all():
            continue
        with naming(f"Layer {layer!r}"):
            small, bound = method.reduce(system, keep[layer])
        new[layer] = Reduced(_add_silent(small, limits.missing(small)), bound)
        best = [state for state in descending(plan.scores[layer]) if keep[layer][state]]
        keep[layer] = np.isin(np.arange(system.n), best[: new[layer].system.n])
    reduced = replace(plan, keep=keep, new=new)
    reduced.check(systems)
    return reduced


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


def refit_each_layer(
    plan: Plan,
    systems: Mapping[str, DiagonalSystem],
    moments: Mapping[str, Moments] | None = None,
    *,
    ridge: float = RIDGE,
) -> Plan:
    """Return any method's plan with the C and D that bring each pruned layer's output nearest to what it was.

    Least squares on the moments, for the inputs that the unpruned model gives each layer. `prune` with data goes
    further and also mends what earlier layers lost.

    ridge: the share of each regressor's energy that counts as noise.

    >>> twins = DiagonalSystem.from_discrete(poles=[0.9, 0.9], B=[[1], [1]], C=[[1, 2]])
    >>> plan = refit_each_layer(make_plan({"ssm": twins}, 0.5), {"ssm": twins})
    >>> plan.keep["ssm"], plan.C["ssm"].real.round(3)
    (array([False,  True]), array([[[3.]]]))
    """
    plan.check(systems)
    plan.need_old_states("and a re-fit needs states that were in the model")
    if not is_number(ridge) or not 0 <= ridge < np.inf:  # also false for NaN
        raise InputError(f"ridge is a share of energy that counts as noise, at least 0; got {ridge!r}.")
    measured = moments_of(systems, moments)
    C, D_change = {}, {}
    for layer, system in systems.items():
        if not plan.keep[layer].all():
            C[layer], D_change[layer] = take_over(system, plan.keep[layer], measured[layer], ridge)
    sequences = max((layer_moments.sequences for layer_moments in measured.values()), default=0)
    return replace(plan, C=C, D_change=D_change, sequences=sequences)


SHARES = {
    "ratio": "of states to prune",
    "width": 'of features to prune, or "auto"',
    "operations": "of a step's operations that stays",
}


def check_ratio(ratio: float, name: str = "ratio") -> None:
    """Refuse what is not a share, before anything is computed for it."""
    if not is_share(ratio):
        raise InputError(f"{name} is the share {SHARES[name]}, from 0 to 1; got {ratio!r}.")


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


def _add_silent(system: DiagonalSystem, count: int) -> DiagonalSystem:
    """Return a system with so many more states, which do nothing."""
    B, C = np.zeros((count, system.B.shape[1])), np.zeros((*system.C.shape[:2], count))
    return append_states(system, np.full(count, -1), B, C, np.zeros(count, np.int64))


def _check_systems(systems: object) -> None:
    if not isinstance(systems, Mapping):
        raise InputError(f"Plans are made from ssmprune.read(model); got {type(systems).__name__}.")
    for layer, system in systems.items():
        if not isinstance(system, DiagonalSystem):
            raise InputError(
                f"Plans are made from ssmprune.read(model), which gives a DiagonalSystem for each layer; {layer!r} is "
                f"of type {type(system).__name__}."
            )
