"""Limits: what a plan may not do, whatever the scores say."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .allocation import descending, exact, highest
from .arrays import Mask, Real
from .errors import InputError
from .system import DiagonalSystem


@dataclass(frozen=True)
class Limits:
    """Layers left alone, caps, floors and rounding; see `make_plan` for their meaning."""

    exclude: Collection[str] = ()
    caps: float | Mapping[str, float] | None = None
    floor: Literal["layer", "channel"] = "layer"
    round_to: int = 1

    def check(self, systems: Mapping[str, DiagonalSystem], ratio: float | str) -> None:
        """Raise an error that says what cannot be asked of these systems."""
        if isinstance(ratio, str) or not 0 <= ratio <= 1:  # also false for NaN
            raise InputError(f"ratio is the share of states to prune, from 0 to 1; got {ratio!r}.")
        if isinstance(self.exclude, str):
            raise InputError(f"exclude is a collection of layer names; got the single string {self.exclude!r}.")
        caps = self.caps if isinstance(self.caps, Mapping) else {} if self.caps is None else {"caps": self.caps}
        for layer, cap in caps.items():
            if not 0 <= cap <= 1:
                raise InputError(
                    f"A cap is the largest share to prune from a layer, from 0 to 1; got {cap} for {layer!r}."
                )
        named = {*self.exclude, *(self.caps if isinstance(self.caps, Mapping) else ())}
        if unknown := sorted(named - systems.keys()):
            raise InputError(f"No layer is called {unknown[0]!r}; the layers are {', '.join(systems)}.")
        if not (isinstance(self.round_to, int) and self.round_to >= 1):
            raise InputError(f"round_to is a whole number of states, at least 1; got {self.round_to!r}.")

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

    def rounded_up(self, keep: Mask, system: DiagonalSystem, scores: Real) -> Mask:
        """Bring back the best pruned states until the number kept is a multiple of `round_to`, or all are kept."""
        missing = -int(keep.sum()) % (self.round_to // math.gcd(self.round_to, system.states_per_entry))
        if missing == 0:
            return keep
        pruned = np.where(keep, -1, np.arange(len(keep)))[descending(scores)]
        keep = keep.copy()
        keep[pruned[pruned >= 0][:missing]] = True
        return keep
