"""Intervals and paired tests against their equations."""

from math import comb, sqrt

import numpy as np
import pytest

import ssmprune as sp
from ssmprune_paper.statistics import Paired, compare, interval


@pytest.mark.parametrize(("right", "examples"), [(489, 500), (1, 10), (0, 30), (990, 1000)])
def test_the_interval_is_wilsons(right, examples):
    z, share = 1.959963984540054, right / examples
    middle = share + z**2 / (2 * examples)
    half = z * sqrt(share * (1 - share) / examples + z**2 / (4 * examples**2))
    expected = [(middle - half) / (1 + z**2 / examples), (middle + half) / (1 + z**2 / examples)]
    assert interval(share, examples) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (1, 0), (7, 2), (5, 5), (30, 10), (2, 40)])
def test_p_is_mcnemars_exact(first, second):
    differing = first + second
    tail = sum(comb(differing, k) for k in range(min(first, second) + 1)) / 2**differing
    assert Paired(first, second, 1000).p == pytest.approx(min(1.0, 2 * tail))


def test_answers_are_compared_example_by_example_over_all_pairs():
    a, b = np.array([1, 1, 0, 0], bool), np.array([1, 0, 0, 0], bool)
    assert compare([(a, b), (b, a), (a, b)]) == Paired(2, 1, 12)
    assert compare([(a, None)]) is None
    assert compare([]) is None
    with pytest.raises(sp.InputError, match="4 and 3 examples"):
        compare([(a, b[:3])])
