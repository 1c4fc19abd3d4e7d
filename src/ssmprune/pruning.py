"""Pruning a model at a ratio, or at several: read it, look at the data once, plan, shrink."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from .adapters import Adapter
from .apply import read, shrink
from .calibration.batches import SEQUENCES, Unlabelled, take
from .calibration.collect import collect
from .calibration.refit import refit_in_sequence
from .core.elimination import elimination_bytes
from .core.moments import Moments, moment_bytes, white_noise
from .core.system import DiagonalSystem
from .errors import InputError
from .methods import LAST, SURGEON, Evidence, Method, Scores
from .planning.limits import Limits
from .planning.make import (
    check_ratio,
    check_request,
    gather_evidence,
    method_name,
    plan_from_scores,
    refit,
    score_states,
)
from .planning.plan import Plan

Model = TypeVar("Model")


@dataclass(eq=False, repr=False)
class Pruning(Generic[Model]):
    """A model that is to be pruned, at one ratio or at several; what all ratios share is computed once.

    Without data the method is LAST. With unlabelled batches, as for `collect`, it is the surgeon; and by whatever
    method states go, those left are re-fitted in sequence to do what the whole model does on these inputs.

    >>> import torch
    >>> from ssmprune.models.s5 import S5Layer
    >>> _ = torch.manual_seed(0)
    >>> work = Pruning(S5Layer(2, 10), data=[torch.randn(8, 50, 2)])
    >>> [work.plan(ratio) for ratio in (0.5, 0.8)]
    [Plan(surgeon at 50%, C and D re-fitted, on 8 sequences: 10 of 20 states stay),
     Plan(surgeon at 80%, C and D re-fitted, on 8 sequences: 4 of 20 states stay)]
    """

    model: Model
    method: Method | None = None  # LAST without data, the surgeon with data, unless given
    _: KW_ONLY
    data: Iterable[Any] | None = None  # unlabelled batches or a DataLoader, as for `collect`
    limits: Limits = field(default_factory=Limits)
    unstable: Literal["refuse", "keep"] = "refuse"  # as in `read`
    adapter: Adapter | None = None
    seed: int = 0  # of the random method
    sequences: int | None = SEQUENCES  # how many of the data to look at; None for all
    systems: dict[str, DiagonalSystem] = field(init=False)
    batches: list[Unlabelled] | None = field(init=False)

    def __post_init__(self) -> None:
        """Read the model, and as much of the data as is wanted."""
        check_request(self._method, self.limits, self.seed)
        self.systems = read(self.model, unstable=self.unstable, adapter=self.adapter)
        self.limits.check(self.systems)
        self.batches = None if self.data is None else take(self.data, self.sequences)
        refuse_beyond_memory(self.memory)

    @property
    def states(self) -> int:
        """Number of stored states that a ratio is a share of."""
        return sum(system.n for layer, system in self.systems.items() if layer not in self.limits.exclude)

    @property
    def memory(self) -> int:
        """Bytes that planning takes at most, the model and its data left aside; known before any work is done."""
        if self.batches is None and not self._method.refits:
            return 0
        sizes = [moment_bytes(system) for system in self.systems.values()]
        work = max(elimination_bytes(system) for system in self.systems.values())
        if self.batches is None:
            return sum(sizes) + work
        from .calibration.passes import waiting_bytes

        width = max(system.inputs for system in self.systems.values())
        return 2 * sum(sizes) + max(work, 3 * max(sizes)) + waiting_bytes(self.batches, width)

    @cached_property
    def moments(self) -> dict[str, Moments] | None:
        """Second moments of the data; None without any."""
        return None if self.batches is None else collect(self.model, self.batches, sequences=None, adapter=self.adapter)

    @cached_property
    def evidence(self) -> dict[str, Evidence]:
        """What the method may know of every layer; data are looked at when it asks."""
        return gather_evidence(self.systems, self._measure, self.seed)

    @cached_property
    def scores(self) -> Scores:
        """What the method thinks of every state, at whatever ratio."""
        return score_states(self.systems, self._method, self.evidence)

    def choose_states(self, ratio: float) -> Plan:
        """Decide which states go, and leave the others as they are."""
        check_ratio(ratio)
        name = method_name(self._method, with_data=self.batches is not None)
        return plan_from_scores(self.systems, self.scores, ratio, self._method.allocation, name, self.limits)

    def plan_each_layer(self, ratio: float) -> Plan:
        """Decide what `make_plan` does: where the method re-fits, each layer on the inputs of the unpruned model."""
        chosen = self.choose_states(ratio)
        if not self._method.refits:
            return chosen
        return refit(chosen, self.systems, {layer: evidence.moments for layer, evidence in self.evidence.items()})

    def plan(self, ratio: float) -> Plan:
        """Decide which states go; with data, re-fit the others one layer after the other on what pruning lets through.

        Without data this is `make_plan`.
        """
        if self.batches is None:
            return self.plan_each_layer(ratio)
        chosen = self.choose_states(ratio)
        return refit_in_sequence(chosen, self.model, self.batches, sequences=None, adapter=self.adapter)

    def shrink(self, plan: Plan) -> Model:
        """Return the model without the states that a plan prunes."""
        return shrink(self.model, plan, adapter=self.adapter)

    @property
    def _method(self) -> Method:
        return self.method if self.method is not None else LAST if self.data is None else SURGEON

    def _measure(self, layer: str) -> Moments:
        return white_noise(self.systems[layer]) if self.moments is None else self.moments[layer]


def refuse_beyond_memory(needed: int) -> None:
    """Refuse what this machine has no memory for, before it is tried."""
    if needed > (there := physical_memory()):
        raise InputError(
            f"This takes up to {needed / 1e9:.1f} GB of memory and this machine has {there / 1e9:.1f}: moments grow "
            "with the square of a layer's states. Prune by LAST without data, or on a larger machine."
        )


def physical_memory() -> float:
    """Return how many bytes of memory the machine has; infinite where it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return math.inf
