"""The everyday door: a model, and how far to prune it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from .adapters import Adapter
from .allocation import Scores, pooled
from .apply import read, shrink
from .calibration import Moments, collect
from .errors import InputError
from .limits import Limits
from .methods import LAST, Method
from .plan import Plan, make_plan, plan_from_scores
from .sequence import refit_in_sequence
from .surgeon import elimination_scores, refit

Model = TypeVar("Model")


class Pruning(Generic[Model]):
    """A model that is to be pruned, at one ratio or at several; what all ratios share is computed once.

    Without data the method is LAST. With unlabelled batches, as for `collect`, it is the surgeon; and by whatever
    method states go, those left are re-fitted to do what the whole model does on these inputs.
    """

    def __init__(
        self,
        model: Model,
        method: Method | None = None,
        *,
        data: Iterable[Any] | None = None,
        unstable: Literal["refuse", "keep"] = "refuse",
        adapter: Adapter | None = None,
        seed: int = 0,
        **limits: Any,
    ) -> None:
        """Take the options of `read` and `make_plan`."""
        self.model, self.method, self.adapter, self.seed = model, method, adapter, seed
        if (shape := getattr(data, "shape", None)) is not None:
            raise InputError(f"data is a list of batches; got one array of shape {tuple(shape)}: give [data].")
        self.systems = read(model, unstable=unstable, adapter=adapter)
        self.batches = None if data is None else list(data)
        self.limits = limits

    @property
    def states(self) -> int:
        """Number of stored states that a ratio is a share of."""
        return sum(system.n for layer, system in self.systems.items() if layer not in self.limits.get("exclude", ()))

    @cached_property
    def moments(self) -> dict[str, Moments] | None:
        """Second moments of the data; None without any."""
        return None if self.batches is None else collect(self.model, self.batches, adapter=self.adapter)

    def choose(self, ratio: float) -> Plan:
        """Decide which states go, each layer on its own."""
        if self.method is None and self.moments is not None:
            limits = Limits(**self.limits)
            chosen = plan_from_scores(self.systems, self._surgeon_scores, ratio, pooled, "surgeon", limits)
            return refit(chosen, self.systems, self.moments)
        return make_plan(self.systems, ratio, self.method or LAST, seed=self.seed, **self.limits)

    def plan(self, ratio: float) -> Plan:
        """Decide which states go; with data, re-fit the others one layer after the other."""
        chosen = self.choose(ratio)
        if self.batches is None:
            return chosen
        return refit_in_sequence(chosen, self.model, self.batches, adapter=self.adapter)

    def shrink(self, plan: Plan) -> Model:
        """Return the model without the states that a plan prunes."""
        return shrink(self.model, plan, adapter=self.adapter)

    @cached_property
    def _surgeon_scores(self) -> Scores:
        known = self.moments or {}
        return {layer: elimination_scores(system, known[layer]) for layer, system in self.systems.items()}


Target: TypeAlias = Callable[[Pruning[Any]], float]  # finds the ratio; see `targets`


def prune(model: Model, ratio: float | Target, method: Method | None = None, **options: Any) -> Model:
    """Plan and shrink at once; the options are those of `Pruning`: data, adapter, and what `make_plan` takes.

    ratio: the share of all states to prune, or a target that finds it, as in `prune(model, max_memory(0.5))`.
    """
    work = Pruning(model, method, **options)
    return work.shrink(work.plan(ratio(work) if callable(ratio) else ratio))
