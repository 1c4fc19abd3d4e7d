"""Calibration data as people have it: labels are ignored, lengths are named, a few sequences are enough."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import ssmprune as sp
from calibrated import model, refit_on_data
from ssmprune.calibration.data import take
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.training.calibration_inputs import load_unlabelled

X = torch.randn(12, 40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) % 3 + 1  # whole numbers that could be taken for lengths


def assert_same(plan, expected):
    assert plan.title == expected.title
    for layer, keep in expected.keep.items():
        np.testing.assert_array_equal(plan.keep[layer], keep)
        np.testing.assert_array_equal(plan.scores[layer], expected.scores[layer])
    assert plan.C.keys() == expected.C.keys()
    for layer, C in expected.C.items():
        np.testing.assert_array_equal(plan.C[layer], C)
        np.testing.assert_array_equal(plan.D_change[layer], expected.D_change[layer])


@pytest.mark.parametrize("family", ["s5", "s4d"])
@pytest.mark.parametrize(
    "data",
    [
        [(X, LABELS)],
        [[X, LABELS]],
        [(X, LABELS, "names", {"more": 1})],
        [(X,)],
        [X.numpy()],
        DataLoader(TensorDataset(X, LABELS), batch_size=12),
        iter([(X, LABELS)]),
    ],
    ids=["tuple", "list", "more members", "inputs alone", "numpy", "DataLoader", "iterator"],
)
def test_labels_are_ignored(family, data):
    if hasattr(data, "__next__"):
        data = iter([(X, LABELS)])  # afresh for every family
    net = model(family)
    expected = sp.Pruning(net, data=[X]).plan(0.5)
    assert_same(sp.Pruning(net, data=data).plan(0.5), expected)


def test_pairs_stay_together_however_many_are_taken():
    net = Classifier(Config("s5", 2, 3, width=4, states=(5,), retrieval=True))
    lengths = torch.arange(29, 41)
    work = sp.Pruning(net, data=[sp.Sequences(X, lengths)] * 2, sequences=14)
    partners = [(k, 6 + k) for k in [*range(6), 0]]  # of a batch of twelve
    assert [batch.lengths.tolist() for batch in work.batches] == [[29 + a, 29 + b] for a, b in partners]
    assert all(torch.equal(batch.x, X[list(pair)]) for batch, pair in zip(work.batches, partners, strict=True))
    with pytest.raises(sp.InputError, match="even number of documents"):
        sp.Pruning(net, data=[X[:5]])


def test_an_error_of_answers_is_that_of_the_pairs():
    torch.manual_seed(0)
    net = Classifier(Config("s5", 2, 3, width=4, states=(9,), retrieval=True)).double().eval()
    small = sp.prune(net, 0.5)
    with torch.no_grad():
        wanted, given = net(X), small(X)
    budget, work = sp.max_error(0.1, [X]), sp.Pruning(net)
    expected = float((given - wanted).square().sum() / wanted.square().sum())
    assert budget.prepare(work) is work
    assert budget.measure(small, work) == pytest.approx(expected, rel=1e-9)


def test_lengths_are_taken_by_name_alone():
    net, lengths = model("s5"), torch.full((12,), 25)
    named, ignored = (sp.collect(net, [batch]) for batch in (sp.Sequences(X, lengths), (X, lengths)))
    cut = sp.collect(net, [X])
    for layer, moments in cut.items():
        np.testing.assert_array_equal(ignored[layer].gram, moments.gram)
        assert not np.allclose(named[layer].gram, moments.gram)


def test_a_loader_may_collate_padded_sequences():
    sequences = [sp.Sequences(x, length) for x, length in zip(X, range(29, 41), strict=True)]
    loader = DataLoader(sequences, batch_size=12)
    found, expected = (sp.collect(model("s5"), data) for data in (loader, [sp.Sequences(X, torch.arange(29, 41))]))
    for layer, moments in expected.items():
        np.testing.assert_array_equal(found[layer].gram, moments.gram)


def endless(drawn):
    while True:
        drawn.append(1)
        yield X, LABELS


def test_no_more_is_drawn_than_needed():
    drawn = []
    assert [len(batch.x) for batch in take(endless(drawn), 30)] == [12, 12, 6]
    assert len(drawn) == 3
    drawn.clear()
    assert len(take(endless(drawn), 24)) == len(drawn) == 2
    padded = take([sp.Sequences(X, LABELS)] * 2, 15)
    assert [batch.lengths.tolist() for batch in padded] == [LABELS.tolist(), LABELS[:3].tolist()]


def test_two_hundred_sequences_unless_told_otherwise():
    net, drawn = model("s5"), []
    assert {moments.sequences for moments in sp.collect(net, endless(drawn)).values()} == {200}
    assert len(drawn) == 17
    many = [X] * 20
    plans = {count: sp.Pruning(net, data=many, sequences=count).plan(0.5) for count in (8, None)}
    assert plans[8].title.endswith("at 55% (asked for 50%), C and D re-fitted, on 8 sequences")
    assert {count: plan.sequences for count, plan in plans.items()} == {8: 8, None: 240}
    assert refit_on_data(sp.make_plan(sp.read(net), 0.5), net, many).sequences == 200
    small = sp.Pruning(net, data=many, sequences=8).shrink(plans[8])
    assert all(
        torch.equal(value, small.state_dict()[name]) for name, value in sp.shrink(net, plans[8]).state_dict().items()
    )


def test_the_moments_say_how_many_sequences_they_are_of():
    net = model("s5")
    plan = sp.make_plan(sp.read(net), 0.5, sp.SURGEON, moments=sp.collect(net, [X]))
    assert plan.sequences == 12
    assert sp.make_plan(sp.read(net), 0.5, sp.SURGEON).sequences == 0


def test_a_file_of_inputs_gives_a_sample_not_its_beginning(tmp_path):
    """Files come sorted, say by their labels."""
    path = str(tmp_path / "inputs.npy")
    np.save(path, np.arange(1000.0)[:, None, None] + np.zeros((7, 1)))
    chosen, again = (np.concatenate([batch.x[:, 0, 0] for batch in load_unlabelled(path, 60)]) for _ in range(2))
    assert len(chosen) == 60
    assert chosen.min() < 100
    assert chosen.max() > 900
    np.testing.assert_array_equal(chosen, again)
    everything = np.concatenate([batch.x[:, 0, 0] for batch in load_unlabelled(path, 2000)])
    np.testing.assert_array_equal(everything, np.arange(1000.0))
