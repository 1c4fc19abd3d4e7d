"""The search for the largest ratio within a budget, against trying every count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssmprune.budgets import GRID, ratio_for
from ssmprune.errors import InputError
from ssmprune.methods.allocation import kept_count
from ssmprune_paper.bisection import Largest, largest_within


@given(st.integers(1, 500), st.floats(0, 1), st.floats(0.1, 9))
def test_of_a_rising_loss_it_finds_what_trying_everything_finds(states, budget, power):
    def loss(ratio):
        return (1 - kept_count(states, ratio) / states) ** power

    found = largest_within(loss, budget, states)
    assert found.on_grid == max([0.0, *(ratio for ratio in GRID if loss(ratio) <= budget + 1e-9)])
    counts = [removed for removed in range(states + 1) if (removed / states) ** power <= budget + 1e-9]
    assert states - kept_count(states, found.exact) == max(counts)


@given(st.lists(st.floats(0, 2), min_size=10, max_size=10))
def test_of_any_loss_the_grid_is_exact_and_one_state_more_costs_too_much(losses):
    def loss(ratio):
        return float(np.interp(ratio, [0, *GRID], [0, *losses]))

    found = largest_within(loss, 1.0, 64)
    assert found.on_grid == max([0.0, *(ratio for ratio, lost in zip(GRID, losses, strict=True) if lost <= 1)])
    removed = 64 - kept_count(64, found.exact)
    assert found.exact == 0 or loss(found.exact) <= 1 + 1e-9
    assert removed == 64 or loss(ratio_for(removed + 1, 64)) > 1 or removed + 1 == 64 - kept_count(64, _next(found))


def _next(found: Largest) -> float:
    """The ratio of the grid above, whose own loss was found to be too much."""
    return min([1.0, *(ratio for ratio in GRID if ratio > found.on_grid)])


def test_nothing_is_tried_above_the_grid_and_wrong_grids_are_refused():
    tried = []
    assert largest_within(lambda ratio: tried.append(ratio) or 0, 1.0, 64, [0.2, 0.5]) == Largest(0.5, 0.5)
    assert tried == [0.5]
    with pytest.raises(InputError, match="above 0"):
        largest_within(lambda ratio: 0, 1.0, 64, [0.0, 0.5])
