"""Right answers as a text: what goes in comes out, and what is damaged is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ssmprune as sp
from ssmprune.sweeps import Cell
from ssmprune.sweeps.runners import pack
from ssmprune_paper.statistics import answers_of, unpack


@given(st.lists(st.booleans(), min_size=1, max_size=50))
def test_unpacking_returns_what_was_packed(right):
    assert unpack(pack(np.array(right)), len(right)).tolist() == right


def test_answers_of_a_good_model_pack_into_few_letters():
    right = np.random.default_rng(0).random(10_000) < 0.99
    assert len(pack(right)) < 10_000 / 8 * 0.4


@pytest.mark.parametrize("text", ["", "?", "AAAA", pack(np.ones(8, bool)), pack(np.ones(9_000, bool))])
def test_answers_to_other_examples_are_refused(text):
    with pytest.raises(sp.InputError, match="answers"):
        unpack(text, 100)


def test_a_cell_whose_answers_are_not_its_accuracy_is_refused():
    cell = Cell("m", "smnist", "last", 0.5, 0, "test", 4, 1.0, 0.5, 0.0, {}, {}, 1, 1)
    assert answers_of(cell) is None
    right = np.array([True, False, True, False])
    whole = Cell(**{**vars(cell), "right": pack(right)})
    np.testing.assert_array_equal(answers_of(whole), right)
    with pytest.raises(sp.InputError, match="3 right answers but an accuracy of 0"):
        answers_of(Cell(**{**vars(cell), "right": pack(np.array([True, True, True, False]))}))
