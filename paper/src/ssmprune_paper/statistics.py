"""How sure a figure is: intervals of accuracies, models that answered the same examples, orders and trends."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from ssmprune.errors import InputError
from ssmprune.sweeps import Cell

Answers = NDArray[np.bool_]  # (examples,): which are right
LEVEL = 0.05  # of the tests
NOT_SIGNIFICANT = " n.s."  # tables set this behind a difference that chance explains


@dataclass(frozen=True)
class Paired:
    """Two methods on the same examples, each by as many models: what an example says, and how many examples say it.

    Models of several seeds answer the same examples, and much alike, so an example is one observation however many
    models there are: by how many more of them the first method has it right.

    >>> better = Paired({1: 30, -1: 10}, answers=1000)  # a model each: 30 examples only the first has right
    >>> better.difference, round(better.p, 5), better.significant
    (2.0, 0.00222, True)
    >>> Paired({3: 30, -3: 10}, answers=3000).p == better.p  # three models that answer alike prove no more than one
    True
    """

    leads: Mapping[int, int]  # {by how many models the first is ahead on an example: how many such examples}
    answers: int  # of a method, all its models together

    @property
    def difference(self) -> float:
        """Return by how many points the first is better."""
        return 100 * self._lead / self.answers

    @property
    def p(self) -> float:
        """Return the probability of such a difference between equally good methods, two-sided.

        Exact, by changing the sign of an example's lead in all possible ways: then each lead, by one model or by more,
        is ahead or behind as a coin falls. With a model each that is McNemar's exact test.
        """
        chances = np.ones(1)  # of all totals that so many coins can give, from the lowest up
        for size in {abs(lead) for lead in self.leads} - {0}:
            coins = self.leads.get(size, 0) + self.leads.get(-size, 0)
            totals = np.zeros(2 * size * coins + 1)
            totals[:: 2 * size] = stats.binom.pmf(np.arange(coins + 1), coins, 0.5)
            chances = np.convolve(chances, totals)
        return min(1.0, 2 * float(chances[: len(chances) // 2 - abs(self._lead) + 1].sum()))

    @property
    def _lead(self) -> int:
        return sum(lead * examples for lead, examples in self.leads.items())

    @property
    def significant(self) -> bool:
        """Return whether chance is an unlikely reason for the difference."""
        return self.p < LEVEL

    @property
    def mark(self) -> str:
        """Return what tables show behind the difference."""
        return "" if self.significant else NOT_SIGNIFICANT


def answers_of(cell: Cell) -> Answers | None:
    """Return which examples a model answered rightly, None where that was not kept."""
    if cell.right is None:
        return None
    right = unpack(cell.right, cell.examples)
    if int(right.sum()) != round(cell.accuracy * cell.examples):
        raise InputError(
            f"The cell {cell.method} {cell.ratio:g} of {cell.checkpoint!r} has {int(right.sum())} right answers "
            f"but an accuracy of {cell.accuracy:.4f} on {cell.examples} examples; it is damaged, so sweep again."
        )
    return right


def unpack(text: str, examples: int) -> Answers:
    """Return the right answers that a text holds; refuse a text that is not of so many examples."""
    size = -(-examples // 8)
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), size + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise InputError(f"These are not answers to {examples} examples ({error}): {text[:40]!r}.") from error
    if len(content) != size:
        raise InputError(f"Expected answers to {examples} examples, {size} bytes; got {len(content)} or more.")
    return np.unpackbits(np.frombuffer(content, np.uint8), count=examples).astype(bool)


def compare(pairs: Iterable[tuple[Answers | None, Answers | None]]) -> Paired | None:
    """Compare two methods by models in pairs, example by example; None where answers were not kept.

    Pairs on fewer examples than others are left out, because theirs are a random part of the others.
    """
    leads = []
    for mine, other in pairs:
        if mine is None or other is None:
            return None
        if len(mine) != len(other):
            raise InputError(f"Answers to {len(mine)} and {len(other)} examples cannot be compared in pairs.")
        leads.append(mine.astype(int) - other)
    most = max(map(len, leads), default=0)
    whole = [lead for lead in leads if len(lead) == most]
    by_size = zip(*np.unique(np.sum(whole, axis=0), return_counts=True), strict=True)
    return Paired({int(lead): int(examples) for lead, examples in by_size}, most * len(whole)) if most else None


def interval(accuracy: float, examples: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of right answers.

    >>> [round(bound, 4) for bound in interval(0.99, 1000)]
    [0.9817, 0.9946]
    """
    low, high = stats.binomtest(round(accuracy * examples), examples).proportion_ci(method="wilson")
    return float(low), float(high)


def correlation(first: list[float], second: list[float]) -> tuple[float, float]:
    """Return Spearman's rank correlation and the probability of one as strong by chance."""
    rho, p = stats.spearmanr(first, second)
    return float(rho), float(p)


def probability_of_means(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the probability that means of values in pairs differ as much by chance: Student's test, two-sided.

    >>> round(probability_of_means(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 1.0])), 4)
    0.2254
    """
    differences = first - second
    return float(stats.ttest_1samp(differences, 0).pvalue) if differences.any() else 1.0
