import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import hinf_score, last_scores, prune_lowest
from ssmprune import layer_adaptive, pooled, uniform
from ssmprune.methods import Evidence, criteria, layer_share, named
from ssmprune.methods.allocation import descending, energy_normalised, highest, kept_count
from strategies import systems

ALLOCATIONS = [uniform, pooled, layer_adaptive, layer_share]
log_scores = st.one_of(st.floats(-1e4, 1e4).map(lambda x: round(x, 3)), st.just(-np.inf), st.integers(-3, 3).map(float))
layers = st.lists(st.lists(log_scores, min_size=1, max_size=15).map(np.array), min_size=1, max_size=4).map(
    lambda arrays: {f"layer{i}": a for i, a in enumerate(arrays)}
)
ratios = st.one_of(st.floats(0, 1), st.integers(0, 10).map(lambda k: k / 10))


def best_of_each(scores):
    return {layer: highest(s, 1, np.zeros(len(s), bool)) for layer, s in scores.items()}


@given(systems())
def test_hinf_scores_are_the_papers(system):
    expected = [hinf_score(system, i) for i in range(system.n)]
    np.testing.assert_allclose(np.exp(criteria()["hinf"](system, Evidence.without_data(system))), expected, rtol=1e-9)


@pytest.mark.parametrize("name", sorted(criteria()))
@given(system=systems())
def test_every_criterion_scores_every_state(name, system):
    scores = criteria()[name](system, Evidence.without_data(system))
    assert scores.shape == (system.n,)
    assert scores.dtype == np.float64
    assert not np.isnan(scores).any()
    np.testing.assert_array_equal(scores, criteria()[name](system, Evidence.without_data(system)))


@given(st.lists(st.floats(0, 1e3).map(lambda x: round(x, 6)), min_size=1, max_size=20).map(np.array))
def test_energy_normalisation_is_the_papers(scores):
    with np.errstate(divide="ignore"):
        fast = np.exp(energy_normalised(np.log(scores)))
    np.testing.assert_allclose(fast, last_scores(scores), rtol=1e-12, atol=1e-300)


@given(layers, ratios)
def test_pooling_removes_the_lowest_one_at_a_time(scores, ratio):
    keep = pooled(scores, ratio, best_of_each(scores))
    expected = prune_lowest(scores, repr(ratio))
    for layer in scores:
        np.testing.assert_array_equal(keep[layer], expected[layer])


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@given(scores=layers, ratio=ratios)
def test_counts_are_exact_and_no_layer_is_emptied(allocation, scores, ratio):
    keep = allocation(scores, ratio, best_of_each(scores))
    assert all(mask.any() for mask in keep.values())
    if allocation is uniform:
        for layer, s in scores.items():
            assert keep[layer].sum() == max(1, kept_count(len(s), ratio))
    else:
        total = sum(map(len, scores.values()))
        assert sum(mask.sum() for mask in keep.values()) == max(len(scores), kept_count(total, ratio))


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@given(scores=layers, ratio=ratios)
def test_within_a_layer_the_better_state_stays(allocation, scores, ratio):
    keep = allocation(scores, ratio, best_of_each(scores))
    for layer, s in scores.items():
        ranked = keep[layer][descending(s)]
        if allocation is not layer_share and np.isfinite(s).all():
            assert not (ranked[1:] & ~ranked[:-1]).any()


@given(layers, ratios, st.floats(0, 1))
def test_more_pruning_never_brings_a_state_back(scores, ratio, more):
    stay = best_of_each(scores)
    mild, hard = (layer_adaptive(scores, r, stay) for r in sorted([ratio, more]))
    assert not any((hard[layer] & ~mild[layer]).any() for layer in scores)


def test_a_layer_without_gain_goes_first_and_nothing_turns_nan():
    scores = {"dead": np.full(4, -np.inf), "alive": np.array([-800.0, 3.0, 2.0, -900.0])}
    for allocation in (pooled, layer_adaptive, layer_share):
        keep = allocation(scores, 3 / 8, best_of_each(scores))
        assert keep["dead"].tolist() == [False, False, False, True]
        assert keep["alive"].all()


def test_an_infinite_gain_is_its_layers_all():
    np.testing.assert_array_equal(energy_normalised(np.array([np.inf, 0.0, -np.inf])), [0, -np.inf, -np.inf])


def test_scores_far_beyond_single_precision_stay_ranked():
    scores = np.array([-2000.0, -2001.0, -2002.0])
    np.testing.assert_allclose(np.exp(energy_normalised(scores)), last_scores(np.exp(scores + 2000)), rtol=1e-12)


def test_counts_do_not_depend_on_the_last_binary_digit():
    for n in (10, 100, 24, 98304):
        for percent in range(0, 101, 10):
            assert kept_count(n, percent / 100) == n * (100 - percent) // 100


def test_scores_may_be_read_only_and_are_not_changed():
    scores = {"a": np.array([3.0, 1.0, 2.0]), "b": np.array([5.0, 4.0])}
    for array in scores.values():
        array.flags.writeable = False
    for allocation in ALLOCATIONS:
        assert allocation(scores, 0.5, best_of_each(scores))["b"][0]


def test_ties_rank_the_higher_index_first():
    assert descending(np.array([1.0, 2.0, 1.0, 2.0])).tolist() == [3, 1, 2, 0]


def test_every_pair_has_a_name():
    methods = named()
    assert {
        "last",
        "last+refit",
        "surgeon",
        "lamp",
        "random",
        "uniform-hinf",
        "global-hinf",
        "hinf/layer_share",
    } <= methods.keys()
    choosing = [method for method in methods.values() if method.reduce is None]
    assert len({(m.criterion, m.allocation) for m in choosing}) == 4 * len(criteria())
    assert len({(m.criterion, m.allocation, m.refits) for m in methods.values()}) == len(methods)
    assert all(name == method.name for name, method in methods.items())
