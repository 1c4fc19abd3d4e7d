"""The scores of released codes: against what LAST's code gave, and against AIRE-Prune's expression, transcribed."""

import numpy as np
import pytest

import ssmprune as sp
from flax_oracle import LAST, build, golden
from ssmprune.methods import AIRE, Evidence
from ssmprune.sweeps import approaches
from ssmprune_paper.baselines.as_released import AIRE_AS_RELEASED, LAST_AS_RELEASED, aire_as_released, last_as_released

SATURATED = "last_reference_s5_var_uni_saturated.npz"
BIDIRECTIONAL = [name for name in LAST if "_bi" in name]


def read(name):
    arrays = golden(name)
    return arrays, sp.read(build(arrays), unstable="keep")


def rounding(arrays, layer, denominator, slope):
    """How far a score moves with the last digits of |pole|, and of the pole - 1 that B is made of."""
    poles = arrays[f"layer{layer}/Lambda_bar_f64"]
    moved_by_pole = np.abs(slope(np.abs(poles)) / (denominator(np.abs(poles)) + 1e-8))
    return 1e-5 + 4 * np.finfo(np.float32).eps * (moved_by_pole + 2 / np.abs(poles - 1))


def rounding_of_last(arrays, layer):
    return rounding(arrays, layer, lambda r: (1 - r) ** 2, lambda r: 2 * (1 - r) + 1e-7)


def rounding_of_aire(arrays, layer):
    return rounding(arrays, layer, lambda r: 1 - r**2, lambda r: 2 * r)


@pytest.mark.parametrize("name", LAST)
def test_last_scores_are_those_of_the_released_code(name):
    arrays, systems = read(name)
    for i, system in enumerate(systems.values()):
        found = np.exp(last_as_released(system, Evidence.without_data(system)))
        for expected in (arrays[f"layer{i}/Hinfscore_code"], arrays[f"layer{i}/Hinfscore_code_f64"]):
            assert (np.abs(found / expected - 1) < rounding_of_last(arrays, i)).all()


@pytest.mark.parametrize("name", [name for name in LAST if name != SATURATED])  # its unstable states: ours stay
def test_last_prunes_what_the_released_code_prunes(name):
    arrays, systems = read(name)
    for ratio, expected in zip(arrays["prune/ratios"], arrays["prune/mask"], strict=True):
        plan = sp.make_plan(systems, ratio / 100, LAST_AS_RELEASED)
        np.testing.assert_array_equal(np.array(list(plan.keep.values())), expected)


@pytest.mark.parametrize("name", LAST)
def test_aire_scores_are_its_expression(name):
    arrays, systems = read(name)
    for i, system in enumerate(systems.values()):
        poles, B, C = (arrays[f"layer{i}/{key}"] for key in ("Lambda_bar", "B_bar", "C_tilde"))
        P = len(poles)
        if name in BIDIRECTIONAL:
            both = np.linalg.norm(C[:, :P], axis=0) + np.linalg.norm(C[:, -P:], axis=0)
            expected = both / 2**2 * np.linalg.norm(B, axis=1) ** 2 / ((1 - np.abs(poles) ** 2) + 1e-8)
        else:
            C_norm, B_norm = np.linalg.norm(C, axis=0), np.linalg.norm(B, axis=1)
            expected = C_norm**2 * B_norm**2 / ((1 - np.abs(poles) ** 2) + 1e-8)
        stable = ~system.unstable_states
        found = np.exp(aire_as_released(system, Evidence.without_data(system)))
        assert (np.abs(found / expected - 1) < rounding_of_aire(arrays, i))[stable].all()


def test_the_papers_scores_rank_two_directions_otherwise():
    """(|C_f| + |C_b|)/4 against (|C_f|² + |C_b|²)/2: a large C beats a slow pole in the paper alone."""
    C = np.array([[[1, 8]], [[1, 8]]])
    system = sp.DiagonalSystem.from_discrete(poles=[0.9, 0.5], B=[[1], [1]], C=C)
    keep = {
        method.name: sp.make_plan({"ssm": system}, 0.5, method).keep["ssm"].tolist()
        for method in (sp.LAST, LAST_AS_RELEASED, AIRE, AIRE_AS_RELEASED)
    }
    assert keep["last"] == [False, True]
    assert keep["last-as-released"] == [True, False]
    assert keep["aire"] == keep["aire-as-released"] == [False, True]
    one_way = sp.DiagonalSystem.from_discrete(poles=[0.9, 0.5], B=[[1], [1]], C=C[0])
    assert sp.make_plan({"ssm": one_way}, 0.5, LAST_AS_RELEASED).keep["ssm"].tolist() == [False, True]


def test_what_is_added_caps_slow_states():
    """At 1 - |pole| = 1e-5 the 1e-8 leaves one per cent of the score."""
    system = sp.DiagonalSystem.from_discrete(poles=[1 - 1e-5], B=[[1]], C=[[1]])
    evidence = Evidence.without_data(system)
    ratio = np.exp(last_as_released(system, evidence) - sp.LAST.criterion(system, evidence))
    assert 0.009 < ratio[0] < 0.011


def test_they_are_approaches_of_the_sweep():
    assert {"last-as-released", "aire-as-released"} <= set(approaches.default())
