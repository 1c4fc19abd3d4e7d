"""Limits: what a plan may not do, whatever the scores say."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..arrays import Mask, Real, is_count, is_share
from ..core.system import DiagonalSystem
from ..errors import InputError, one_of
from ..methods.allocation import descending, exact, highest

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
        """Refuse values that make no sense for any model."""
        if isinstance(self.exclude, str) or not isinstance(self.exclude, Collection):
            given = f"the single string {self.exclude!r}" if isinstance(self.exclude, str) else repr(self.exclude)
            raise InputError(f"exclude is a collection of layer names; got {given}.")
        for layer, cap in self._caps().items():
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
        missing = -int(keep.sum()) % (self.round_to // math.gcd(self.round_to, system.states_per_entry))
        if missing == 0:
            return keep
        pruned = np.where(keep, -1, np.arange(len(keep)))[descending(scores)]
        keep = keep.copy()
        keep[pruned[pruned >= 0][:missing]] = True
        return keep

    def _caps(self) -> Mapping[str, float]:
        """Return the caps by layer; a single cap for all layers stands under the name of the field."""
        if self.caps is None:
            return {}
        return self.caps if isinstance(self.caps, Mapping) else {"caps": self.caps}
