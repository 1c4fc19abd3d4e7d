"""Budgets: what pruning may cost, or has to reach, in place of a ratio; and the search for that ratio.

Of budgets that limit a loss, `search` takes the largest ratio within them; of those that ask for a small or fast model,
the smallest that gives one. Both count states, and both measure the model that is returned: the states that stay
re-fitted, where there are data, and with all else that is done to it. Budgets that ship are called like functions, so
their classes have lower-case names.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist, median
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from .arrays import is_number
from .calibration.data import Sequences
from .core.moments import moment_bytes
from .errors import InputError, need_torch
from .methods.allocation import kept_count
from .planning.certificates import (
    Certificate,
    Comparison,
    certify,
    certify_comparisons,
    compare,
    energy_lost,
    energy_lost_by_plan,
)
from .planning.plan import Plan
from .pruning import Goal, Pruning, read, refuse_beyond_memory

if TYPE_CHECKING:
    from .models.classifier import Classifier

Model = TypeVar("Model")
Finish: TypeAlias = Callable[[Any, list[Sequences] | None], Any]  # (pruned model, calibration data) -> final model
GRID = tuple(k / 10 for k in range(1, 11))  # the ratios of the paper
DIGITS = 10**6  # a ratio of six digits names a count of up to a million states exactly
ROUNDING = 1e-9  # losses are differences of shares, which are exact up to this
TIMED_RUNS = 5
FEW_EXAMPLES = 300  # fewer leave an accuracy of 95 % uncertain by more than two points either way


class Budget(Goal):
    """A measurement of a pruned model and the largest value it may take.

    Subclass it to limit something else; give it to `prune` where a ratio stands, alone or in a list with others.

    >>> import ssmprune as sp
    >>> from ssmprune.models import S5Layer
    >>> class MaxParameters(Budget):
    ...     name, unit, grows_with_ratio = "max_parameters", "numbers", False
    ...     def measure(self, model, pruning):
    ...         return sum(parameter.numel() for parameter in model.parameters())
    >>> search([MaxParameters(100)], sp.Pruning(S5Layer(2, 10))).notes
    ['max_parameters 100: came to 90 numbers']
    """

    name: ClassVar[str]
    unit: ClassVar[str] = ""
    grows_with_ratio: ClassVar[bool] = True  # True for losses; False for size and time
    on_grid_first: ClassVar[bool] = False  # try the ratios of the paper before bisecting, as values may jump
    of_layers: ClassVar[bool] = False  # measures layer by layer, and needs all features for it
    starts_from_layers: ClassVar[bool] = False  # the search starts where layers re-fitted one by one keep the budget
    meaning: ClassVar[str] = ""  # of the limit, for the error about a negative or too large one; "": any is right
    most: ClassVar[float] = math.inf

    def __init__(self, limit: float) -> None:
        """Set the largest value that is within the budget."""
        if self.meaning and (not is_number(limit) or not 0 <= limit <= self.most):  # also for NaN
            raise InputError(f"{self.meaning}; got {limit!r}.")
        self.limit = limit

    @abstractmethod
    def measure(self, model: Any, pruning: Pruning[Any], /) -> float:
        """Return what a model made of `pruning.model` comes to.

        Where the value does not grow with the ratio it must depend on the model's size alone: the search then measures
        models whose states are not re-fitted.
        """

    def measure_plan(self, plan: Plan, pruning: Pruning[Any], /) -> float:
        """Return what `pruning.model` comes to after a plan; override it where that needs no model."""
        return self.measure(pruning.shrink(plan) if plan.ratio else pruning.model, pruning)

    def allows(self, value: float) -> bool:
        """Say whether a value is within the budget."""
        return value <= self.limit + ROUNDING

    def write(self, value: float) -> str:
        """Return a value with its unit."""
        return f"{value:.3g} {self.unit}".strip()

    def describe(self, value: float, pruning: Pruning[Any], *, pruned: bool) -> str:
        """Say what the budget came to."""
        outcome = f": came to {self.write(value)}"
        if not pruned:
            holds = f" holds without pruning: the model has {self.write(value)}"
            outcome = " allows no pruning" if self.grows_with_ratio else holds
        return f"{self.name} {self.limit:g}{outcome}"

    def find(self, pruning: Pruning[Any], goals: Sequence[object]) -> Plan:
        """Search for the plan that keeps all these budgets, of which this is one; `prune` calls it."""
        budgets = [goal for goal in goals if isinstance(goal, Budget)]
        if other := [goal for goal in goals if not isinstance(goal, Budget)]:
            raise InputError(
                f"Several budgets are a list, as in [max_loss(1, data), max_memory(0.2)]; one of them is {other[0]!r}."
            )
        found = search(budgets, pruning)
        if not found.ratio:
            warnings.warn(f"Nothing was pruned: {'; '.join(found.notes)}.", stacklevel=3)
        return found.plan


@dataclass(frozen=True)
class Found(Generic[Model]):
    """What a search found: a ratio, its plan, the values of the budgets, and what will be done to the pruned model."""

    ratio: float
    plan: Plan
    values: dict[Budget, float]
    pruning: Pruning[Model]
    finish: Finish | None = None
    allowing: tuple[Budget, ...] = ()  # where nothing is pruned: those that would allow it

    @cached_property
    def model(self) -> Model:
        """The pruned and finished model, made when it is asked for."""
        small: Model = self.pruning.shrink(self.plan)
        return small if self.finish is None else self.finish(small, self.pruning.batches)

    @property
    def notes(self) -> list[str]:
        """What each budget came to."""
        return [self._describe(budget) for budget in self.values]

    @property
    def broken(self) -> list[str]:
        """What the budgets came to that are not kept."""
        return [self._describe(budget) for budget, value in self.values.items() if not budget.allows(value)]

    def remeasure(self, model: Model) -> Found[Model]:
        """Return the same for a model that was made of the pruned one, such as by recovery; it may break budgets.

        What depends on a model's size alone is not measured again for a model of the same size.
        """
        pruned = self.pruning.shrink(self.pruning.choose(self.ratio))
        same_size = megabytes_of(model) == megabytes_of(pruned)
        values = {
            budget: value if same_size and not budget.grows_with_ratio else budget.measure(model, self.pruning)
            for budget, value in self.values.items()
        }
        return replace(self, values=values, finish=lambda pruned, data: model)

    def _describe(self, budget: Budget) -> str:
        if budget in self.allowing:
            return f"{budget.name} {budget.limit:g} by itself allows more"
        return budget.describe(self.values[budget], self.pruning, pruned=self.ratio > 0)


def search(budgets: Sequence[Budget], pruning: Pruning[Model], finish: Finish | None = None) -> Found[Model]:
    """Return the largest ratio within all budgets that grow with it, else the smallest that keeps the others.

    finish: what will be done to the pruned model, given the calibration data, or None where its size alone counts; the
        budgets are then those of the finished model.
    """
    for budget in budgets if pruning.width else ():
        if budget.of_layers:
            raise InputError(
                f"{budget.name} compares the layers of two models state by state, so features must stay: leave out "
                "width, or limit the answers, by max_loss or max_error."
            )
    losses = [budget for budget in budgets if budget.grows_with_ratio]
    sizes = [budget for budget in budgets if not budget.grows_with_ratio]
    trials = _Trials(pruning, finish)
    ratio = _largest(losses, trials) if losses else _smallest(sizes, trials)
    for budget in sizes:
        if not budget.allows(value := trials.value(budget, ratio)):
            names = " and ".join(loss.name for loss in losses)
            raise InputError(
                f"{names} and {budget.name} cannot be kept together: as far as {names} goes, the model has "
                f"{value:.3g} {budget.unit}, and {budget.limit:g} were asked for."
            )
    for budget in losses if finish is not None and not ratio else []:
        if not budget.allows(value := trials.value(budget, ratio)):
            raise InputError(
                f"{budget.name} {budget.limit:g} cannot be kept: without any pruning, what else is done to the "
                f"model comes to {budget.write(value)}."
            )
    values = {budget: trials.value(budget, ratio) for budget in budgets}
    least = ratio_for(1, pruning.states)
    several = len(losses) > 1 and not ratio
    allowing = tuple(loss for loss in losses if several and loss.allows(trials.value(loss, least)))
    return Found(ratio, trials.plan(ratio), values, pruning, finish, allowing)


@dataclass(eq=False)
class _Trials(Generic[Model]):
    """Plans and measurements at the ratios that a search tries, each made once: a search returns to some of them."""

    pruning: Pruning[Model]
    finish: Finish | None
    plans: dict[float, Plan] = field(default_factory=dict)
    values: dict[tuple[Budget, float], float] = field(default_factory=dict)

    def plan(self, ratio: float) -> Plan:
        if ratio not in self.plans:
            self.plans[ratio] = self.pruning.plan(ratio)
        return self.plans[ratio]

    def value(self, budget: Budget, ratio: float) -> float:
        if (budget, ratio) in self.values:
            return self.values[budget, ratio]
        if not budget.grows_with_ratio:  # a re-fit changes numbers alone, not the size
            small = self.pruning.shrink(self.pruning.choose(ratio))
            value = budget.measure(small if self.finish is None else self.finish(small, None), self.pruning)
        elif self.finish is None:
            value = budget.measure_plan(self.plan(ratio), self.pruning)
        else:
            finished = Found(ratio, self.plan(ratio), {}, self.pruning, self.finish)
            value = budget.measure(finished.model, self.pruning)
        self.values[budget, ratio] = value
        return value

    def kept(self, budgets: Sequence[Budget], ratio: float) -> bool:
        return all(budget.allows(self.value(budget, ratio)) for budget in budgets)


def _largest(losses: Sequence[Budget], trials: _Trials[Any]) -> float:
    """Find the largest ratio that keeps all these budgets, whose values grow with it: by the grid, then by states."""
    pruning, states = trials.pruning, trials.pruning.states

    def within(count: int) -> bool:
        return trials.kept(losses, ratio_for(count, states))

    if len(losses) == 1 and losses[0].starts_from_layers and pruning.batches is not None and trials.finish is None:
        return ratio_for(largest_near(_largest_by_layers(losses[0], pruning), states, within), states)
    grid = GRID if any(budget.on_grid_first for budget in losses) else GRID[-1:]
    above = 1.0
    for ratio in (*reversed(grid), 0.0):
        if not ratio or trials.kept(losses, ratio):
            break
        above = ratio
    on_grid = removed_at(ratio, states)
    removed = last_within(on_grid, removed_at(above, states), within)
    return ratio if removed == on_grid else ratio_for(removed, states)


def _largest_by_layers(loss: Budget, pruning: Pruning[Any]) -> int:
    """Find how many states can go where each layer is re-fitted by itself, which is quicker than one after another."""

    def within(count: int) -> bool:
        return loss.allows(loss.measure_plan(pruning.plan_each_layer(ratio_for(count, pruning.states)), pruning))

    return pruning.states if within(pruning.states) else last_within(0, pruning.states, within)


def _smallest(sizes: Sequence[Budget], trials: _Trials[Any]) -> float:
    """Find the smallest ratio that keeps all these budgets, whose values fall with it."""
    if trials.kept(sizes, 0.0):
        return 0.0
    for budget in sizes:
        if not budget.allows(least := trials.value(budget, 1.0)):
            raise InputError(
                f"Pruning cannot reach {budget.limit:g} {budget.unit}: without its states the model has {least:.3g}."
            )
    states = trials.pruning.states
    too_few = last_within(0, states, lambda count: not trials.kept(sizes, ratio_for(count, states)))
    return ratio_for(too_few + 1, states)


def largest_near(start: int, most: int, within: Callable[[int], bool]) -> int:
    """Find a count that is within while one more is not, in ever longer steps from a guess; 0 counts as within.

    >>> largest_near(60, 100, lambda count: count <= 57), largest_near(3, 100, lambda count: True)
    (57, 100)
    """
    step = 1
    if not start or within(start):
        low = start
        while low + step <= most and within(low + step):
            low, step = low + step, 2 * step
        return last_within(low, min(most + 1, low + step), within)
    high = start
    while high - step > 0 and not within(high - step):
        high, step = high - step, 2 * step
    return last_within(max(0, high - step), high, within)


def last_within(low: int, high: int, within: Callable[[int], bool]) -> int:
    """Find a count that is within while one more is not, given one that is and a higher one that is not.

    >>> last_within(0, 100, lambda count: count <= 57)
    57
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def most_trials(states: int) -> int:
    """Return how many ratios a search that begins on the grid tries at most.

    >>> most_trials(256)
    15
    """
    widest = max(above - below for below, above in pairwise(removed_at(ratio, states) for ratio in (0.0, *GRID)))
    return len(GRID) + max(widest - 1, 0).bit_length()


def ratio_for(removed: int, states: int) -> float:
    """Return a short decimal ratio that removes exactly so many of the states.

    >>> ratio_for(1, 3), ratio_for(57, 100)
    (0.333333, 0.57)
    """
    return removed * DIGITS // max(1, states) / DIGITS


def removed_at(ratio: float, states: int) -> int:
    """Return how many states go at a ratio: all but floor(states (1 - ratio)), on the ratio as it is written."""
    return states - kept_count(states, ratio)


class max_energy(Budget):
    """Limit the share of its output's energy that any layer loses: on the data, or without any for white noise.

    >>> import ssmprune as sp
    >>> small = sp.prune(sp.S5Layer(2, 20), max_energy(0.1))
    >>> len(small.pole_re) < 20
    True
    """

    name, of_layers, starts_from_layers = "max_energy", True, True
    meaning, most = "max_energy is a share of a layer's output energy, from 0 to 1", 1.0

    def measure(self, model: Any, pruning: Pruning[Any], /) -> float:
        """Compare the layers of two models."""
        return max(energy_lost_by_model(pruning, model).values())

    def measure_plan(self, plan: Plan, pruning: Pruning[Any], /) -> float:
        """Compute it from the moments of the unpruned model."""
        return max(energy_lost_by_plan(plan, pruning.systems, pruning.moments).values())


class max_gain(Budget):
    """Limit the gain (exact H-infinity norm) of every layer's error to this share of the layer's own.

    >>> max_gain(0.1).limit
    0.1
    """

    name, of_layers, meaning = "max_gain", True, "max_gain is a share of a layer's gain, from 0"

    def measure(self, model: Any, pruning: Pruning[Any], /) -> float:
        """Compare the layers of two models."""
        return _largest_gain(certify_model(pruning, model))

    def measure_plan(self, plan: Plan, pruning: Pruning[Any], /) -> float:
        """Compute it from the states that go."""
        return _largest_gain(certify(plan, pruning.systems))


def _largest_gain(certificates: Mapping[str, Certificate]) -> float:
    return max(layer.exact / layer.gain if layer.exact else 0.0 for layer in certificates.values())


class max_loss(Budget):
    """Limit the loss of accuracy to this many points (hundredths).

    validation: labelled batches (x, labels) or (Sequences(x, lengths), labels), or a function that gives a model's
        accuracy, from 0 to 1. With few examples the choice is a matter of luck: have at least a thousand.

    >>> import ssmprune as sp
    >>> small = sp.prune(sp.S5Layer(2, 20), max_loss(1, lambda model: 0.9 if len(model.pole_re) > 5 else 0.5))
    >>> len(small.pole_re)
    6
    """

    name, unit, on_grid_first = "max_loss", "points", True
    meaning, most = "max_loss is a number of points of accuracy, from 0 to 100", 100.0

    def __init__(self, points: float, validation: Callable[[Any], float] | Iterable[Any]) -> None:
        """Set the points, and how accuracy is measured."""
        super().__init__(points)
        self._whole: tuple[Any, float] | None = None  # an unpruned model and its accuracy
        if callable(validation):
            self.accuracy = validation
        elif isinstance(validation, Iterable):
            need_torch()
            from .calibration.record import Accuracy

            self.accuracy = counted = Accuracy(list(validation))
            if counted.examples < FEW_EXAMPLES:
                warnings.warn(
                    f"max_loss counts right answers on {counted.examples} examples, where chance decides: have at "
                    "least a thousand.",
                    stacklevel=2,
                )
        else:
            raise InputError(
                "max_loss takes labelled batches, or a function that gives a model's accuracy; got "
                f"{type(validation).__name__}."
            )

    def measure(self, model: Any, pruning: Pruning[Any], /) -> float:
        """Count the right answers of two models."""
        before = self._before(pruning)
        return 0.0 if model is pruning.model else 100 * (before - self.accuracy(model))

    def describe(self, value: float, pruning: Pruning[Any], *, pruned: bool) -> str:
        """Also say how accurate both models are, and how sure that is."""
        before = self._before(pruning)
        after = before - value / 100
        interval = _confidence(after, getattr(self.accuracy, "examples", 0))
        outcome = super().describe(value, pruning, pruned=pruned)
        return f"{outcome}, accuracy {after:.2%}{interval} after {before:.2%}"

    def _before(self, pruning: Pruning[Any]) -> float:
        if self._whole is None or self._whole[0] is not pruning.model:
            self._whole = pruning.model, self.accuracy(pruning.model)
        return self._whole[1]


class max_memory(Budget):
    """Ask for a model whose tensors take at most this many million bytes.

    >>> import ssmprune as sp
    >>> len(sp.prune(sp.S5Layer(2, 20), max_memory(0.0005)).pole_re)
    10
    """

    name, unit, grows_with_ratio = "max_memory", "MB", False
    meaning = "max_memory is a number of megabytes"

    def measure(self, model: Any, pruning: Pruning[Any], /) -> float:
        """Count bytes."""
        return megabytes_of(model)


class max_latency(Budget):
    """Ask for a model that takes at most this many milliseconds for these inputs, on this machine as it is now.

    >>> import torch
    >>> max_latency(5, torch.zeros(1, 784, 2)).unit
    'ms'
    """

    name, unit, grows_with_ratio = "max_latency", "ms", False
    meaning = "max_latency is a number of milliseconds"

    def __init__(self, milliseconds: float, *inputs: Any) -> None:
        """Set the time and the inputs."""
        super().__init__(milliseconds)
        self.inputs = inputs

    def measure(self, model: Any, pruning: Pruning[Any], /) -> float:
        """Run the model a few times."""
        return milliseconds_of(model, self.inputs)


def energy_lost_by_model(pruning: Pruning[Classifier], small: Classifier) -> dict[str, float]:
    """Return what `certificates.energy_lost_by_plan` does, for any modified model, not only a pruned one."""
    return _lost(pruning, _compare_layers(pruning, small))


def certify_model(pruning: Pruning[Classifier], small: Classifier) -> dict[str, Certificate]:
    """Return what `certify` does, for any modified model, not only a pruned one."""
    comparisons = _compare_layers(pruning, small)
    lost = {} if pruning.batches is None else _lost(pruning, comparisons)
    return certify_comparisons(pruning.systems, comparisons, lost)


def _compare_layers(pruning: Pruning[Classifier], small: Classifier) -> dict[str, Comparison]:
    after = read(small, unstable=pruning.unstable)
    comparisons = {}
    for path, system in pruning.systems.items():
        tensors = (model.get_parameter(f"{path}.D").detach() for model in (pruning.model, small))
        D, new_D = (tensor.double().cpu().numpy() for tensor in tensors)
        comparisons[path] = compare(system, after[path], new_D - D)
    return comparisons


def _lost(pruning: Pruning[Classifier], comparisons: Mapping[str, Comparison]) -> dict[str, float]:
    if pruning.batches is None:
        return energy_lost(comparisons)
    systems = {path: comparison.difference for path, comparison in comparisons.items()}
    refuse_beyond_memory(sum(map(moment_bytes, systems.values())))
    from .calibration.collect import collect_states

    return energy_lost(comparisons, collect_states(pruning.model, systems, pruning.batches))


def megabytes_of(model: Any) -> float:
    """Return how many million bytes the tensors of a model take."""
    need_torch()
    from .models.checkpoint import stored_bytes

    return stored_bytes(model) / 1e6


def milliseconds_of(model: Any, inputs: tuple[Any, ...]) -> float:
    """Return the median time that a model takes for these inputs, after one run that is not counted."""
    need_torch()
    import torch

    from .calibration.record import evaluating

    times = []
    with torch.no_grad(), evaluating(model):
        for _ in range(1 + TIMED_RUNS):
            start = perf_counter()
            model(*inputs)
            times.append(1e3 * (perf_counter() - start))
    return median(times[1:])


def wilson_interval(share: float, examples: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval [Wilson1927] of a share that was counted on so many examples.

    >>> [round(bound, 4) for bound in wilson_interval(0.99, 1000)]
    [0.9817, 0.9946]
    """
    z = NormalDist().inv_cdf(0.975)
    middle = share + z * z / (2 * examples)
    width = z * math.sqrt((share * (1 - share) + z * z / (4 * examples)) / examples)
    low, high = ((middle + sign * width) / (1 + z * z / examples) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


def _confidence(share: float, examples: int) -> str:
    """Say how sure an accuracy is that was counted on so many examples; nothing where their number is unknown.

    >>> _confidence(0.9, 1000), _confidence(0.9, 0)
    (' (88.0 to 91.7 % with 95 % confidence, on 1,000 examples)', '')
    """
    if not examples:
        return ""
    low, high = wilson_interval(share, examples)
    return f" ({100 * low:.1f} to {100 * high:.1f} % with 95 % confidence, on {examples:,} examples)"
