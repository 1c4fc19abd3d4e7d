"""How sure a figure is: intervals of accuracies, and differences between models that answered the same examples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..budgets import wilson_interval
from ..errors import InputError
from ..sweeps.store import Right

LEVEL = 0.05  # of the tests
NOT_SIGNIFICANT = " n.s."  # tables set this behind a difference that chance explains


@dataclass(frozen=True)
class Paired:
    """Two models on the same examples: how many only the first has right, how many only the second, of how many.

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
        ways = tail = 1
        for count in range(min(self.only_first, self.only_second)):
            ways = ways * (differing - count) // (count + 1)
            tail += ways
        return min(1.0, tail / 2 ** (differing - 1)) if differing else 1.0

    @property
    def significant(self) -> bool:
        """Return whether chance is an unlikely reason for the difference."""
        return self.p < LEVEL

    @property
    def mark(self) -> str:
        """Return what tables show behind the difference."""
        return "" if self.significant else NOT_SIGNIFICANT


def compare(pairs: Iterable[tuple[Right | None, Right | None]]) -> Paired | None:
    """Count the answers of models in pairs, all pairs together; None where answers were not kept."""
    first = second = examples = 0
    for mine, other in pairs:
        if mine is None or other is None:
            return None
        if len(mine) != len(other):
            raise InputError(f"Answers to {len(mine)} and {len(other)} examples cannot be compared in pairs.")
        first, second = first + int((mine & ~other).sum()), second + int((other & ~mine).sum())
        examples += len(mine)
    return Paired(first, second, examples) if examples else None


def interval(accuracy: float, examples: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of right answers.

    >>> [round(bound, 4) for bound in interval(0.99, 1000)]
    [0.9817, 0.9946]
    """
    return wilson_interval(round(accuracy * examples) / examples, examples)
