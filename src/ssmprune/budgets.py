"""Budgets: what pruning may cost, or has to reach, in place of a ratio; and the search for that ratio.

Of budgets that limit a loss, `search` takes the largest ratio within them; of those that ask for a small or fast model,
the smallest that gives one. Both count states, and both measure the model that is returned: the states that stay
re-fitted, where there are data, and with all else that is done to it. Budgets that ship are called like functions, so
their classes have lower-case names.

A loss on examples is a sample, and of many ratios some look good by luck. So `max_loss` has an upper bound within its
limit, and its search climbs: it tries ratios in a fixed order up to the first that breaks the budget. To return a model
that loses too much it must accept the first such model it meets, which the bound does as rarely as its confidence says.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import takewhile
from statistics import NormalDist, median
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np

from .arrays import Real, is_number
from .calibration.data import Sequences, compares_pairs, count, in_slices, take
from .core.moments import moment_bytes
from .errors import InputError, need, need_torch
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
STRIDES = (0.8, 0.65, 0.65)  # the shares of operations, or of states, that prunings after a recovery leave


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
        if self.meaning and (not is_number(limit) or not 0 <= limit <= self.most):  # also for NaN
            raise InputError(f"{self.meaning}; got {limit!r}.")
        self.limit = limit

    @abstractmethod
    def measure(self, model: Any, pruning: Pruning[Any], /) -> float:
        """Return what a model made of `pruning.model` comes to.

        Where the value does not grow with the ratio it must depend on the model's size alone: the search then measures
        models whose states are not re-fitted.
        """

    def prepare(self, pruning: Pruning[Model], /) -> Pruning[Model]:
        """Return what plans are to be made from; override it to hold data out that the budget measures with."""
        return pruning

    def climbs(self, pruning: Pruning[Any], /) -> bool:
        """Say whether the search goes upwards and stops at the first broken budget, as it must for a bound."""
        return False

    def measure_plan(self, plan: Plan, pruning: Pruning[Any], /) -> float:
        """Return what `pruning.model` comes to after a plan; override it where that needs no model."""
        changed = plan.ratio or plan.features is not None
        return self.measure(pruning.shrink(plan) if changed else pruning.model, pruning)

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
    further: bool = False  # it was pruned again after a recovery

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

    def recoveries(self, learn: Callable[[Model], Model]) -> Iterator[Found[Model]]:
        """Yield the pruned model after it has learnt; then, where a loss was searched, pruned further after that.

        What has learnt again can lose more than what was pruned alone. Each model is made of the one before, finished
        and measured; stop at the first that breaks a budget, as the search did. Where a stride takes nothing, the next
        is longer.
        """
        pruning, left = self.pruning, 1.0
        model = learn(pruning.shrink(self.plan))
        yield self._finished(model)
        if not any(budget.grows_with_ratio for budget in self.values) or pruning.limits.caps not in (None, 1):
            return  # a cap is a share of the whole model's layers
        width = pruning.width and "auto"  # features that were to go are gone
        for stride in STRIDES:
            left *= stride
            work = replace(pruning, model=model, width=width, data=pruning.batches, sequences=None)
            small = work.shrink(work.plan(1 - left))
            if megabytes_of(small) < megabytes_of(model):
                model, left = learn(small), 1.0
                yield replace(self._finished(model), further=True)

    def _finished(self, model: Model) -> Found[Model]:
        return self.remeasure(model if self.finish is None else self.finish(model, self.pruning.batches))

    def _describe(self, budget: Budget) -> str:
        if budget in self.allowing and not self.further:
            return f"{budget.name} {budget.limit:g} by itself allows more"
        return budget.describe(self.values[budget], self.pruning, pruned=self.ratio > 0 or self.further)


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
    for budget in budgets:
        pruning = budget.prepare(pruning)
    trials = _Trials(pruning, finish)
    ratio = _largest(losses, trials) if losses else _smallest(sizes, trials)
    for budget in sizes:
        if not budget.allows(value := trials.value(budget, ratio)):
            names = " and ".join(loss.name for loss in losses)
            raise InputError(
                f"{names} and {budget.name} cannot be kept together: as far as {names} goes, the model has "
                f"{value:.3g} {budget.unit}, and {budget.limit:g} were asked for."
            )
    for budget in losses if trials.costs_unpruned and not ratio else []:
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

    @property
    def costs_unpruned(self) -> bool:
        """Whether even a model with all its states is another one: features go, or more is done to it."""
        return self.finish is not None or self.pruning.width not in (0, "auto")

    def plan(self, ratio: float) -> Plan:
        if ratio not in self.plans:
            self.plans[ratio] = self.pruning.plan(ratio)
        return self.plans[ratio]

    def value(self, budget: Budget, ratio: float) -> float:
        if (budget, ratio) in self.values:
            return self.values[budget, ratio]
        if not budget.grows_with_ratio:  # a re-fit changes numbers alone, not the size, unless these were on a grid
            off_grid = ratio > 0 and self.finish is None and getattr(self.pruning.model, "grid", None) is not None
            small = self.pruning.shrink(self.plan(ratio) if off_grid else self.pruning.choose(ratio))
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
    if any(budget.climbs(pruning) for budget in losses):
        return _climb(losses, trials)

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


def _climb(losses: Sequence[Budget], trials: _Trials[Any]) -> float:
    """Find the ratio before the first that breaks one of these budgets."""
    states = trials.pruning.states
    ratios = [ratio_for(removed, states) for removed in upwards(states)]
    tried = [0.0, *ratios] if trials.costs_unpruned else ratios
    return max(takewhile(lambda ratio: trials.kept(losses, ratio), tried), default=0.0)


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


def upwards(states: int) -> list[int]:
    """Return how many states go at each step of a climb: an eighth more of those left, at most a tenth of all.

    >>> upwards(64)
    [6, 12, 18, 23, 28, 32, 36, 39, 42, 44, 46, 48, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64]
    """
    counts = [0]
    while counts[-1] < states:
        counts.append(counts[-1] + max(1, min(states // 10, (states - counts[-1]) // 8)))
    return counts[1:]


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


class _Compared(Budget):
    """A budget that compares a model's answers with the whole model's, which it remembers."""

    answers: Callable[[Any], Any]
    _whole: tuple[Any, Any] | None = None  # a whole model and its answers

    def _before(self, pruning: Pruning[Any]) -> Any:
        if self._whole is None or self._whole[0] is not pruning.model:
            self._whole = pruning.model, self.answers(pruning.model)
        return self._whole[1]


class max_error(_Compared):
    """Limit the change of the model's answers to this share of their energy, |small(x) - model(x)|² / |model(x)|².

    It needs no labels and no classes: any torch model whose answer is a tensor will do.

    inputs: unlabelled batches, as for `collect`. Without them a fifth of the data is held out, and the model is pruned
        with the other sequences alone.

    >>> import torch
    >>> import ssmprune as sp
    >>> _ = torch.manual_seed(0)
    >>> search([max_error(0.01)], sp.Pruning(sp.S5Layer(2, 20), data=[torch.randn(40, 50, 2)])).notes
    ["max_error 0.01: came to 0.000854 of the answers' energy on 8 held-out sequences"]
    """

    name = "max_error"
    meaning = "max_error is a share of the energy of a model's answers, from 0"

    def __init__(self, share: float, inputs: Iterable[Any] | None = None) -> None:
        super().__init__(share)
        self.given, self.sequences = inputs is not None, [] if inputs is None else take(inputs, None)

    def prepare(self, pruning: Pruning[Model], /) -> Pruning[Model]:
        """Hold sequences out of the calibration data, unless inputs were given."""
        pairs = compares_pairs(pruning.model)
        if self.given:
            self.sequences = take(self.sequences, None, pairs=pairs)
            return pruning
        seen: list[Sequences] = []
        if pruning.batches is not None:
            from .calibration.refit import split

            seen, self.sequences = split(pruning.batches, pairs=pairs)
        if not self.sequences:
            raise InputError(
                "max_error compares answers to inputs that are held out of the calibration data: give at least two "
                "sequences as data (on the command line --calibrate), or inputs, as in max_error(0.01, inputs)."
            )
        self._whole = None
        return replace(pruning, data=seen, sequences=None)

    def answers(self, model: Any) -> list[Any]:
        """Return what a model answers to the held-out inputs, slice by slice."""
        import torch

        from .calibration.record import answer, evaluating, refuse_what_cannot_run

        refuse_what_cannot_run(model)
        with torch.no_grad(), evaluating(model):
            given = [answer(model, sequences) for sequences in in_slices(self.sequences, model)]
        if any(answered is None for answered in given):
            raise InputError(f"max_error compares answers that are tensors; {type(model).__name__} gives others.")
        return given

    def measure(self, model: Any, pruning: Pruning[Any], /) -> float:
        """Compare the answers of two models."""
        if model is pruning.model:
            return 0.0
        pairs = list(zip(self._before(pruning), self.answers(model), strict=True))
        energy = sum(float(wanted.abs().double().square().sum()) for wanted, _ in pairs)
        error = sum(float((given - wanted).abs().double().square().sum()) for wanted, given in pairs)
        return error / energy if energy else math.inf if error else 0.0

    def write(self, value: float) -> str:
        """Also say on how many sequences."""
        return f"{value:.3g} of the answers' energy on {count(self.sequences):,} held-out sequences"


class Bound(float):
    """The points that are lost at most, and those lost in a sample."""

    measured: float


class max_loss(_Compared):
    """Limit the loss of accuracy to this many points (hundredths).

    validation: labelled batches (x, labels) or (Sequences(x, lengths), labels), or a function of a model that says for
        each example whether the answer is right. A function may also give the accuracy alone, from 0 to 1; from that
        no bound can be had, so the budget is then one of the measured loss.
    confidence: how sure it is that the returned model keeps the budget on further examples: an upper bound on the loss,
        `loss_bound`, is within the budget. Few examples show little: have thousands. None: the measured loss counts.

    >>> import ssmprune as sp
    >>> small = sp.prune(sp.S5Layer(2, 20), max_loss(1, lambda model: 0.9 if len(model.pole_re) > 5 else 0.5))
    >>> len(small.pole_re)
    6
    """

    name, unit, on_grid_first = "max_loss", "points", True
    meaning, most = "max_loss is a number of points of accuracy, from 0 to 100", 100.0

    def __init__(
        self,
        points: float,
        validation: Callable[[Any], float | Sequence[bool] | Real] | Iterable[Any],
        confidence: float | None = 0.9,
    ) -> None:
        super().__init__(points)
        if confidence is not None and not (is_number(confidence) and 0.5 <= confidence < 1):
            raise InputError(
                f"confidence is from 0.5 to below 1, such as 0.9, or None for the measured loss; got {confidence!r}."
            )
        self.confidence = confidence
        if callable(validation):
            self.right = validation
        elif isinstance(validation, Iterable):
            need_torch()
            from .calibration.record import labelled_batches, right_answers

            self.right = partial(right_answers, labelled_batches(validation))
        else:
            raise InputError(
                "max_loss takes labelled batches, or a function that gives a model's accuracy; got "
                f"{type(validation).__name__}."
            )

    def answers(self, model: Any) -> Real:
        """Return which answers are right, (examples,), or the accuracy alone, ()."""
        return np.asarray(self.right(model), np.float64)

    def climbs(self, pruning: Pruning[Any], /) -> bool:
        """Climb where there is a bound."""
        return self.confidence is not None and self._before(pruning).ndim > 0

    def measure(self, model: Any, pruning: Pruning[Any], /) -> float:
        """Bound the loss, or measure it where there is no bound."""
        if model is pruning.model:
            return 0.0
        before, after = self._before(pruning), self.answers(model)
        measured = 100 * float(before.mean() - after.mean())
        if self.confidence is None or not before.ndim:
            return measured
        bound = Bound(100 * loss_bound(before, after, self.confidence))
        bound.measured = measured
        return bound

    def write(self, value: float) -> str:
        """Write the measured loss before its bound."""
        if not isinstance(value, Bound) or self.confidence is None:
            return super().write(value)
        bound = f"at most {value:.3g} with {100 * self.confidence:g} % confidence"
        return f"{value.measured:.3g} points, {bound}{self._too_few_examples()}"

    def describe(self, value: float, pruning: Pruning[Any], *, pruned: bool) -> str:
        """Also say how accurate both models are, and how sure that is."""
        before = self._before(pruning)
        after = float(before.mean()) - getattr(value, "measured", value) / 100
        interval = ""
        if before.ndim:
            low, high = wilson_interval(after, before.size)
            interval = f" ({100 * low:.1f} to {100 * high:.1f} % with 95 % confidence, on {before.size:,} examples)"
        outcome = super().describe(value, pruning, pruned=pruned)
        outcome = f"{outcome}, accuracy {after:.2%}{interval} after {before.mean():.2%}"
        if self.confidence is not None and not before.ndim:
            return f"{outcome}; as measured: an accuracy alone, without single answers, allows no bound"
        return outcome if pruned else outcome + self._too_few_examples()

    def _too_few_examples(self) -> str:
        """Say so where even equal answers would break the budget."""
        if self.confidence is None or self._whole is None:
            return ""
        least = 100 * loss_bound(self._whole[1], self._whole[1], self.confidence)
        few = f"; {len(self._whole[1]):,} examples cannot show a loss below {least:.3g} points, so give more"
        return "" if self.allows(least) else few


def loss_bound(before: Real, after: Real, confidence: float) -> float:
    """Return an upper bound on the mean of `before - after`, for the same examples (n,), right (1) or wrong (0).

    Of n examples, b are right before alone and c after alone. Exact one-sided limits of both shares
    [ClopperPearson1934], upper for b and lower for c, are combined by squaring and adding [Newcombe1998], with the
    correlation of the two counts. With c = 0 that is the exact limit; elsewhere too it is above the mean at least as
    often as `confidence` says. Examples with several answers have a share of right ones, and Student's limit.

    >>> round(loss_bound(np.ones(1000), np.ones(1000), 0.9), 5)  # the loss p with (1 - p)^1000 = 0.1
    0.0023
    """
    stats = need("scipy.stats", "torch", "A bound on a loss of accuracy needs SciPy")
    if before.shape != after.shape:
        raise InputError(f"Losses are of the same examples; got {before.shape} answers before and {after.shape} after.")
    n, lost = len(before), before - after
    if not np.isin(lost, (-1, 0, 1)).all():
        spread = lost.std(ddof=1) if n > 1 else math.inf
        return float(lost.mean() + stats.t.ppf(confidence, max(n - 1, 1)) * spread / math.sqrt(n))
    b, c = int((lost > 0).sum()), int((lost < 0).sum())
    up = stats.binomtest(b, n, alternative="less").proportion_ci(confidence).high - b / n
    down = c / n - stats.binomtest(c, n, alternative="greater").proportion_ci(confidence).low
    opposed = math.sqrt(b * c / max(1, (n - b) * (n - c)))  # two counts of one sample are negatively correlated
    return float((b - c) / n + math.sqrt(up**2 + down**2 + 2 * opposed * up * down))


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
        super().__init__(milliseconds)
        self.inputs = inputs

    def measure(self, model: Any, pruning: Pruning[Any], /) -> float:
        """Run the model a few times."""
        return milliseconds_of(model, self.inputs)


def energy_lost_by_model(pruning: Pruning[Classifier], small: Classifier) -> dict[str, float]:
    """Return what `certificates.energy_lost_by_plan` does, for any modified model, not only a pruned one."""
    comparisons = _compare_layers(pruning, small)
    if pruning.batches is None:
        return energy_lost(comparisons)
    systems = {path: comparison.difference for path, comparison in comparisons.items()}
    refuse_beyond_memory(sum(map(moment_bytes, systems.values())))
    from .calibration.collect import collect_states

    return energy_lost(comparisons, collect_states(pruning.model, systems, pruning.batches))


def certify_model(pruning: Pruning[Classifier], small: Classifier) -> dict[str, Certificate]:
    """Return what `certify` does, for any modified model, not only a pruned one."""
    lost = {} if pruning.batches is None else energy_lost_by_model(pruning, small)
    return certify_comparisons(pruning.systems, _compare_layers(pruning, small), lost)


def _compare_layers(pruning: Pruning[Classifier], small: Classifier) -> dict[str, Comparison]:
    after = read(small, unstable=pruning.unstable)
    comparisons = {}
    for path, system in pruning.systems.items():
        tensors = (model.get_parameter(f"{path}.D").detach() for model in (pruning.model, small))
        D, new_D = (tensor.double().cpu().numpy() for tensor in tensors)
        comparisons[path] = compare(system, after[path], new_D - D)
    return comparisons


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
