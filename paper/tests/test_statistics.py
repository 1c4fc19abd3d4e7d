"""Intervals and paired tests against their equations."""

from math import comb, sqrt

import numpy as np
import pytest
from scipy import stats

import ssmprune as sp
from ssmprune_paper.statistics import LEVEL, Paired, compare, interval


@pytest.mark.parametrize(("right", "examples"), [(489, 500), (1, 10), (0, 30), (990, 1000)])
def test_the_interval_is_wilsons(right, examples):
    z, share = 1.959963984540054, right / examples
    middle = share + z**2 / (2 * examples)
    half = z * sqrt(share * (1 - share) / examples + z**2 / (4 * examples**2))
    expected = [(middle - half) / (1 + z**2 / examples), (middle + half) / (1 + z**2 / examples)]
    assert interval(share, examples) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (1, 0), (7, 2), (5, 5), (30, 10), (2, 40)])
def test_with_a_model_each_p_is_mcnemars_exact(first, second):
    differing = first + second
    tail = sum(comb(differing, k) for k in range(min(first, second) + 1)) / 2**differing
    assert Paired({1: first, -1: second, 0: 5}, 1000).p == pytest.approx(min(1.0, 2 * tail))


def test_answers_are_compared_example_by_example_over_all_pairs():
    a, b = np.array([1, 1, 0, 0], bool), np.array([1, 0, 0, 0], bool)
    assert compare([(a, b), (b, a), (a, b)]) == Paired({0: 3, 1: 1}, 12)
    assert compare([(a, b), (a, b)]).difference == 25
    assert compare([(a, None)]) is None
    assert compare([]) is None
    with pytest.raises(sp.InputError, match="4 and 3 examples"):
        compare([(a, b[:3])])


def test_pairs_on_fewer_examples_are_left_out_because_they_are_others():
    a, b = np.array([1, 1, 0, 0], bool), np.array([1, 0, 0, 0], bool)
    assert compare([(b[:2], a[:2]), (a, b)]) == compare([(a, b)])


@pytest.mark.parametrize("leads", [[3, 1, -2, 1, 1, 2], [2, 2, -1, 3, 0, -1, 1], [1, -1, 0], [3, 3, 3, 3, 3, -2]])
def test_over_seeds_p_is_that_of_changing_all_signs(leads):
    """SciPy tries all the ways to change signs, which takes long for more than a few examples."""
    expected = stats.permutation_test((leads,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue
    counts = {lead: leads.count(lead) for lead in leads}
    assert Paired(counts, 3 * len(leads)).p == pytest.approx(expected)


def models_that_agree(random: np.random.Generator, seeds: int, examples: int = 300) -> list[tuple]:
    """Answers of two equally good methods by models of several seeds, which have almost the same examples right."""
    one, other = random.random((2, examples)) < 0.8
    noise = random.random((2, seeds, examples)) < 0.02
    return [(one ^ noise[0, seed], other ^ noise[1, seed]) for seed in range(seeds)]


def test_counting_an_example_once_for_each_seed_overstates_and_this_test_does_not():
    random, old, new, robust = np.random.default_rng(0), 0, 0, 0
    for _ in range(400):
        pairs = models_that_agree(random, seeds=3)
        only = [sum(int((pair[k] & ~pair[1 - k]).sum()) for pair in pairs) for k in (0, 1)]
        old += stats.binomtest(only[0], sum(only)).pvalue < LEVEL
        new += compare(pairs).p < LEVEL
        robust += stats.ttest_1samp(np.sum([one.astype(int) - other for one, other in pairs], axis=0), 0).pvalue < LEVEL
    assert old / 400 > 0.15, "equally good methods, found to differ by pooling three times as often as promised"
    assert new / 400 < 0.07
    assert abs(new - robust) <= 8, "an error clustered by example, with its normal approximation, says the same"


def test_seeds_that_answer_alike_prove_as_much_as_one_and_independent_seeds_more():
    random = np.random.default_rng(1)
    one, other = random.random((2, 400)) < [[0.8], [0.76]]
    alone = compare([(one, other)])
    assert compare([(one, other)] * 3).p == pytest.approx(alone.p)
    assert compare([(one, other)] * 3).difference == pytest.approx(alone.difference)
    independent = [tuple(random.random((2, 400)) < [[0.8], [0.72]]) for _ in range(9)]
    assert compare(independent).p < min(compare([pair]).p for pair in independent)
