"""How sure a figure is: intervals of accuracies, models that answered the same examples, orders and trends."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable
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
        return float(stats.binomtest(self.only_first, differing).pvalue) if differing else 1.0

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
