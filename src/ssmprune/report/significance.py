"""How sure a figure is: intervals of accuracies, and differences between models that answered the same examples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..budgets import wilson_interval
from ..errors import InputError, need
from ..sweeps.store import Right

LEVEL = 0.05  # of the tests; intervals hold with the rest
NOT_SIGNIFICANT = " n.s."  # what tables set behind a difference that chance explains


@dataclass(frozen=True)
class Paired:
    """Answers to the same examples: those that only the first model has right, those only the second, of how many.

    >>> better = Paired(only_first=30, only_second=10, examples=1000)
    >>> better.difference, round(better.p, 5), better.significant
    (2.0, 0.00222, True)
    """

    only_first: int
    only_second: int
    examples: int

    @property
    def difference(self) -> float:
        """Return by how many points the first is better."""
        return 100 * (self.only_first - self.only_second) / self.examples

    @property
    def p(self) -> float:
        """Return the probability of such a difference between equally good models: McNemar's exact test."""
        differing = self.only_first + self.only_second
        return float(_scipy().binomtest(self.only_first, differing).pvalue) if differing else 1.0

    @property
    def significant(self) -> bool:
        """Return whether chance is an unlikely reason."""
        return self.p < LEVEL

    @property
    def mark(self) -> str:
        """Return what tables show behind the difference."""
        return "" if self.significant else NOT_SIGNIFICANT


def compare(pairs: Iterable[tuple[Right | None, Right | None]]) -> Paired | None:
    """Count the answers of models in pairs, all pairs together; None where answers were not kept."""
    first = second = examples = 0
    for one, other in pairs:
        if one is None or other is None:
            return None
        if len(one) != len(other):
            raise InputError(f"Answers to {len(one)} and {len(other)} examples cannot be compared in pairs.")
        first, second = first + int((one & ~other).sum()), second + int((other & ~one).sum())
        examples += len(one)
    return Paired(first, second, examples) if examples else None


def interval(accuracy: float, examples: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of right answers.

    >>> [round(bound, 4) for bound in interval(0.99, 1000)]
    [0.9817, 0.9946]
    """
    return wilson_interval(round(accuracy * examples) / examples, examples)


def interval_of_signs(count: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share, from counts."""
    return wilson_interval(count / total, total)


def correlation(first: list[float], second: list[float]) -> tuple[float, float]:
    """Return Spearman's rank correlation and the probability of one as strong by chance."""
    rho, p = _scipy().spearmanr(first, second)
    return float(rho), float(p)


def probability_of_means(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the probability that means of values in pairs differ as much by chance: Student's test, two-sided.

    >>> round(probability_of_means(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 1.0])), 4)
    0.2254
    """
    differences = first - second
    return float(_scipy().ttest_1samp(differences, 0).pvalue) if differences.any() else 1.0


def _scipy() -> Any:
    return need("scipy.stats", "stats", "Intervals and tests need SciPy")
