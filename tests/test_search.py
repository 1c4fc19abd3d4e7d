"""The search for the largest ratio within a budget, against trying every count."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssmprune.budgets import GRID, _largest, ratio_for, upwards
from ssmprune.methods.allocation import kept_count

LOSS = SimpleNamespace(starts_from_layers=False, on_grid_first=True, climbs=lambda pruning: False)
CLIMBING = SimpleNamespace(climbs=lambda pruning: True)


def largest(loss, budget, states, kind=LOSS, finish=None):
    """Return the ratio that a search finds, and the ratios it tries, of models that lose so much at a ratio."""
    tried = []
    trials = SimpleNamespace(
        pruning=SimpleNamespace(states=states),
        kept=lambda _, ratio: tried.append(ratio) or loss(ratio) <= budget,
        costs_unpruned=finish is not None,
    )
    return _largest([kind], trials), tried


@given(st.integers(1, 500), st.floats(0, 1), st.floats(0.1, 9))
def test_of_a_rising_loss_it_finds_what_trying_everything_finds(states, budget, power):
    found, _ = largest(lambda ratio: (1 - kept_count(states, ratio) / states) ** power, budget, states)
    counts = [removed for removed in range(states + 1) if (1 - (states - removed) / states) ** power <= budget]
    assert states - kept_count(states, found) == max(counts)


@given(st.lists(st.floats(0, 2), min_size=10, max_size=10))
def test_of_any_loss_one_state_more_than_found_costs_too_much(losses):
    def loss(ratio):
        return float(np.interp(ratio, [0, *GRID], [0, *losses]))

    found, _ = largest(loss, 1.0, 64)
    on_grid = max([0.0, *(ratio for ratio, lost in zip(GRID, losses, strict=True) if lost <= 1)])
    above = min([1.0, *(ratio for ratio in GRID if ratio > on_grid)])  # found to lose too much
    removed = 64 - kept_count(64, found)
    assert on_grid <= found <= above
    assert found == 0 or loss(found) <= 1
    assert removed == 64 or loss(ratio_for(removed + 1, 64)) > 1 or removed + 1 == 64 - kept_count(64, above)


@given(st.data())
def test_a_ratio_names_its_count_exactly(data):
    states = data.draw(st.integers(1, 100_000))
    removed = data.draw(st.integers(0, states))
    assert states - kept_count(states, ratio_for(removed, states)) == removed


@pytest.mark.parametrize("states", [1, 3, 10, 16, 100, 257])
def test_a_climb_stops_at_the_first_ratio_that_costs_too_much(states):
    steps = upwards(states)
    assert steps == sorted(set(steps))
    assert steps[-1] == states
    left = states - np.array([0, *steps])
    assert all(before - after <= max(1, states / 10, before / 8) for before, after in pairwise(left))
    for removed in range(states + 1):
        found, tried = largest(float, removed / states, states, CLIMBING)
        assert found == max([0.0, *(ratio_for(step, states) for step in steps if step <= removed)])
        assert tried == [ratio_for(step, states) for step in steps][: len(tried)]
        assert sum(ratio > removed / states for ratio in tried) <= 1


def test_a_climb_begins_with_what_is_done_to_the_unpruned_model():
    assert largest(lambda ratio: 1.0, 0.5, 10, CLIMBING, finish=str) == (0.0, [0.0])
    assert largest(lambda ratio: ratio, 0.15, 10, CLIMBING, finish=str) == (0.1, [0.0, 0.1, 0.2])
