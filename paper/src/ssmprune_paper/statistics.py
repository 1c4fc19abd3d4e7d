"""Tests of what the paper claims about orders and trends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

LEVEL = 0.05  # of the tests


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
