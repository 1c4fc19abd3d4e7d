"""The search for the largest ratio within a budget, against trying every count."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssmprune.budgets import GRID, _largest, most_trials, ratio_for
from ssmprune.methods.allocation import kept_count

LOSS = SimpleNamespace(starts_from_layers=False, on_grid_first=True)


def largest(loss, budget, states):
    """Return the ratio that a search finds, and the ratios it tries, of models that lose so much at a ratio."""
    tried = []
    trials = SimpleNamespace(
        pruning=SimpleNamespace(states=states), kept=lambda _, ratio: tried.append(ratio) or loss(ratio) <= budget
    )
    return _largest([LOSS], trials), tried


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
def test_no_search_tries_more_ratios_than_is_said(states):
    most = max(len(largest(float, removed / states - 1e-6, states)[1]) for removed in range(states + 1))
    assert most <= most_trials(states) <= most + 1
