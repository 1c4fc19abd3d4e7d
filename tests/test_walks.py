"""How often a call copies and reads a model."""

import sys
from pathlib import Path

import pytest

import ssmprune as sp

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
import trace_walks


@pytest.mark.parametrize(
    ("options", "copies", "reads"),
    [
        ({"ratio": 0.5}, 1, 1),
        ({"ratio": 0.8, "data": trace_walks.tiny_data()}, 2, 1),
        ({"ratio": sp.max_energy(0.05), "data": trace_walks.tiny_data()}, 5, 1),  # one for each of four trials
    ],
)
def test_a_model_is_copied_and_read_as_rarely_as_can_be(options, copies, reads):
    model = trace_walks.tiny_model()
    walk = trace_walks.trace(lambda: sp.prune(model, **options))
    assert (walk.copies, walk.reads, walk.hashes) == (copies, reads, 0)


def test_a_plan_from_outside_is_checked():
    model = trace_walks.tiny_model()
    plan = sp.make_plan(sp.read(model), 0.5)
    walk = trace_walks.trace(lambda: sp.shrink(model, plan))
    assert (walk.copies, walk.reads, walk.hashes) == (1, 1, 1)


def test_pruning_refuses_the_plan_of_another_model():
    plan = sp.make_plan(sp.read(trace_walks.tiny_model()), 0.5)
    other = trace_walks.tiny_model()
    other.layers[0].ssm.B.data += 1
    with pytest.raises(sp.InputError, match="are not those the plan was made for"):
        sp.Pruning(other).shrink(plan)
