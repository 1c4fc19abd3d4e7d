"""Pruning in rounds: cut a part, recover, cut on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import nn

from ..arrays import Mask
from ..errors import InputError
from ..planning.limits import Limits
from ..planning.plan import Plan
from ..pruning import Pruning
from ..targets.bisection import ratio_for
from .recovery import Recovered, Recovery

Model = TypeVar("Model", bound=nn.Module)
CUT = 1.25  # how many times the states that stay after a round stay after the round before


def prune_in_rounds(
    work: Pruning[Model],
    ratio: float,
    recovery: Recovery[Model],
    *,
    rounds: int = 1,
    minutes: float = 5.0,
    state: Path | None = None,
) -> tuple[Plan, Recovered[Model]]:
    """Prune to `ratio` in several cuts with a recovery after each, the last with twice the time of the others.

    recovery: of the model before pruning, with the data for all rounds.
    state: each round keeps such a file, with its number behind the name, to resume from after a kill.
    Return which states of the whole model stay, and how the last recovery went.
    """
    if rounds < 1:
        raise InputError(f"rounds is a number of cuts, at least 1; got {rounds!r}.")
    decision, limits, systems = work.choose_states(ratio), work.limits, work.systems
    wanted = kept_by(decision, limits)
    keep = {layer: np.ones(system.n, bool) for layer, system in systems.items()}
    for number in range(1, rounds + 1):
        left = min(work.states, math.ceil(wanted * CUT ** (rounds - number)))
        plan = work.plan(ratio_leaving(left, work))
        for layer, mask in keep.items():
            mask[np.flatnonzero(mask)] = plan.keep[layer]
        own_state = None if state is None else state.with_name(f"{state.name}.{number}")
        time = minutes * (2 if number == rounds else 1) / (rounds + 1)
        outcome = recovery.of(work.shrink(plan)).run(time, state=own_state)
        if number == rounds or not outcome.finished:
            break
        shares = remaining_caps(limits, keep)
        work = replace(
            work, model=outcome.model, data=work.batches, sequences=None, limits=replace(limits, caps=shares)
        )
    name = decision.method if rounds == 1 else f"{decision.method} in {rounds} rounds"
    return replace(decision, keep=keep, method=name, sequences=plan.sequences), outcome


def ratio_leaving(left: int, work: Pruning[Any]) -> float:
    """Return the ratio that leaves so many states of a model, or if rounding brings more back, no more than that.

    Each cut rounds the states of every layer up; what several cuts leave must not be more than one leaves.
    """
    for count in range(left, 0, -1):
        ratio = ratio_for(work.states - count, work.states)
        if kept_by(work.choose_states(ratio), work.limits) <= left:
            return ratio
    return ratio_for(work.states - left, work.states)  # floors and caps do not let it


def kept_by(plan: Plan, limits: Limits) -> int:
    """Return how many stored states a plan keeps of the layers that a ratio is a share of."""
    return sum(int(keep.sum()) for layer, keep in plan.keep.items() if layer not in limits.exclude)


def remaining_caps(limits: Limits, keep: Mapping[str, Mask]) -> dict[str, float] | None:
    """Return the shares of what is left of every layer that may still go, for caps on the whole of it.

    >>> remaining_caps(Limits(caps=0.75), {"ssm": np.array([True] * 50 + [False] * 50)})
    {'ssm': 0.5}
    """
    if limits.caps is None:
        return None
    caps = limits.caps if isinstance(limits.caps, Mapping) else dict.fromkeys(keep, limits.caps)
    return {layer: max(0.0, 1 - len(keep[layer]) * (1 - cap) / int(keep[layer].sum())) for layer, cap in caps.items()}
