"""Pruning at once: budgets that find the ratio, and every family with data."""

import numpy as np
import pytest
import torch
from torch import nn

import families
import ssmprune as sp
from calibrated import model, refit_on_data
from ssmprune import adapters, budgets, pruning
from ssmprune.budgets import ratio_for, search
from ssmprune.calibration.collect import collect_states
from ssmprune.methods import AIRE, RANDOM
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config
from ssmprune.planning import plan_from_scores, refit_each_layer
from ssmprune.planning.certificates import energy_lost_by_plan

X = torch.randn(6, 60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def neighbours(work, ratio):
    """The ratios that prune one state less and one more."""
    removed = work.states - sum(keep.sum() for keep in work.choose_states(ratio).keep.values())
    return [ratio_for(count, work.states) for count in (removed - 1, removed + 1)]


def works():
    net = model("s5")
    return {"last": sp.Pruning(net), "surgeon": sp.Pruning(net, data=[X]), "s4d": sp.Pruning(model("s4d"), data=[X])}


@pytest.mark.parametrize("kind", ["last", "surgeon", "s4d"])
@pytest.mark.parametrize("share", [0.003, 0.05, 0.4])
def test_the_largest_ratio_within_an_energy(kind, share):
    work = works()[kind]

    def lost(ratio):
        return max(energy_lost_by_plan(work.plan(ratio), work.systems, work.moments).values())

    ratio = search([sp.max_energy(share)], work).ratio
    assert lost(ratio) <= share
    assert ratio == 1 or lost(neighbours(work, ratio)[1]) > share


def test_the_surgeons_costs_add_up_to_the_energy_it_loses():
    """The share of energy is that of the layer's pruned scores, up to the ridge and what D takes over."""
    work = works()["surgeon"]
    plan = work.plan_each_layer(0.5)
    for layer, lost in energy_lost_by_plan(plan, work.systems, work.moments).items():
        costs = np.exp(plan.scores[layer][~plan.keep[layer]]).sum()
        assert lost <= costs * (1 + 1e-3) + 1e-5


@pytest.mark.parametrize("kind", ["last", "surgeon"])
def test_the_largest_ratio_within_a_gain(kind):
    work = works()[kind]

    def error(ratio):
        return max(one.exact / one.gain for one in sp.certify(work.plan(ratio), work.systems).values())

    share = 0.5 * error(0.5)
    ratio = search([sp.max_gain(share)], work).ratio
    assert error(ratio) <= share
    assert ratio == 1 or error(neighbours(work, ratio)[1]) > share  # a re-fitted layer's error need not rise


def test_the_largest_ratio_within_a_loss():
    """A model that is right as long as it has seven of its eleven states."""
    net = model("s5")

    def accuracy(candidate):
        return 0.9 if sum(candidate.config.states) >= 7 else 0.85

    assert sum(sp.prune(net, sp.max_loss(1.0, accuracy)).config.states) == 7
    assert sum(sp.prune(net, sp.max_loss(5.0, accuracy)).config.states) == 2


def test_the_smallest_ratio_that_fits_a_memory():
    net = model("s4d")
    whole = budgets.megabytes_of(net)
    small = sp.prune(net, sp.max_memory(0.8 * whole))
    assert 0.8 * whole - 100e-6 < budgets.megabytes_of(small) <= 0.8 * whole  # a state takes 65 bytes
    with pytest.warns(UserWarning, match=r"Nothing was pruned: max_memory \S+ holds without pruning: the model has"):
        assert sum(sp.prune(net, sp.max_memory(whole)).config.states) == sum(net.config.states)
    with pytest.raises(sp.InputError, match="cannot reach 1e-06 MB: without its states the model has"):
        sp.prune(net, sp.max_memory(1e-6))


def test_the_smallest_ratio_that_is_fast_enough(monkeypatch):
    net, seen = model("s5"), []

    def tenth_of_a_millisecond_for_a_state(candidate, inputs):
        seen.append(inputs)
        return sum(candidate.config.states) / 10

    monkeypatch.setattr(budgets, "milliseconds_of", tenth_of_a_millisecond_for_a_state)
    assert sum(sp.prune(net, sp.max_latency(0.75, X)).config.states) == 7
    assert all(inputs[0] is X for inputs in seen)


def test_a_model_is_timed_on_the_inputs_given():
    assert 0 < budgets.milliseconds_of(model("s5"), (X,)) < 60_000


@pytest.mark.parametrize(
    ("budget", "value", "message"),
    [
        (sp.max_energy, 1.1, "from 0 to 1; got 1.1"),
        (sp.max_gain, -1, "from 0; got -1"),
        (sp.max_memory, float("nan"), "megabytes; got nan"),
        (sp.max_latency, -2, "milliseconds; got -2"),
        (lambda points: sp.max_loss(points, len), 101, "from 0 to 100; got 101"),
        (lambda points: sp.max_loss(points, None), 1, "takes labelled batches, or a function .* got NoneType"),
    ],
)
def test_budgets_out_of_range_are_refused(budget, value, message):
    with pytest.raises(sp.InputError, match=message):
        budget(value)


def test_excluded_layers_do_not_count():
    work = sp.Pruning(model("s5"), limits=sp.Limits(exclude=["layers.0.ssm"]))
    assert work.states == 6
    kept = search([sp.max_energy(1.0)], work).plan.keep
    assert kept["layers.0.ssm"].all()
    assert kept["layers.1.ssm"].sum() == 1


@pytest.mark.parametrize("method", [sp.SURGEON, sp.LAST, AIRE])
@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_with_data_what_any_method_leaves_is_refitted_in_sequence(family, method, monkeypatch):
    net = model(family)
    moments = sp.collect(net, [X])
    chosen = sp.make_plan(sp.read(net), 0.5, method, moments=moments)
    expected = refit_on_data(chosen, net, [X])
    monkeypatch.setattr(pruning, "refit_each_layer", lambda *_: pytest.fail("re-fitted only to be thrown away"))
    plan = sp.Pruning(net, method, data=[X]).plan(0.5)
    assert plan.title == expected.title
    for layer, C in expected.C.items():
        np.testing.assert_array_equal(plan.C[layer], C)
        np.testing.assert_array_equal(plan.D_change[layer], expected.D_change[layer])


@pytest.mark.parametrize("method", [sp.SURGEON, sp.LAST, RANDOM])
def test_without_data_a_plan_is_that_of_make_plan(method):
    net = model("s5")
    work = sp.Pruning(net, method, seed=3)
    for ratio in (0.3, 0.6):
        plan, expected = work.plan(ratio), sp.make_plan(work.systems, ratio, method, seed=3)
        assert str(plan) == str(expected)
        assert not any(plan.difference(expected).values())
        assert plan.C.keys() == expected.C.keys()
        assert all(np.array_equal(plan.C[layer], C) for layer, C in expected.C.items())


def test_data_are_looked_at_once_and_only_for_methods_that_ask(monkeypatch):
    calls = []
    path = "ssmprune.calibration.collect.collect_states"
    monkeypatch.setattr(path, lambda *given, **options: calls.append(1) or collect_states(*given, **options))
    for method, count in ((sp.LAST, 0), (sp.SURGEON, 1)):
        calls.clear()
        work = sp.Pruning(model("s5"), method, data=[X])
        for ratio in (0.3, 0.6):
            work.plan(ratio)
        assert len(calls) == count


@pytest.mark.parametrize("family", sorted(adapters.found()))
def test_every_family_is_calibrated_or_says_why_not(family):
    torch.manual_seed(0)
    adapter, net, _, _ = getattr(families, family)(np.random.default_rng(0))
    if not isinstance(net, nn.Module):
        with pytest.raises(sp.InputError, match="needs a torch model; this is dict"):
            sp.prune(net, 0.4, data=[torch.randn(8, 50, families.WIDTH)], adapter=adapter)
        return
    x = torch.randn(8, 50, families.WIDTH)
    with torch.no_grad():
        y = net(x)
        errors = [(sp.prune(net, 0.4, data=data, adapter=adapter)(x) - y).square().mean() for data in (None, [x])]
    assert errors[1] < 0.5 * errors[0]


def test_a_foreign_model_keeps_its_other_parts():
    """Calibration runs the caller's own forward, whatever else is in it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), families.s5_package().S5Block(4, 8, bidir=False), nn.Linear(4, 3))
    small = sp.prune(net, 0.5, data=[X.float()])
    assert small(X.float()).shape == net(X.float()).shape
    assert sum(system.n for system in sp.read(small).values()) == 4


def test_retrieval_models_are_calibrated_on_pairs():
    torch.manual_seed(0)
    net = Classifier(Config("s5", 5, 2, 4, (6,), tokens=True, retrieval=True)).eval()
    x = torch.randint(0, 5, (8, 20))
    assert sum(sp.prune(net, 0.5, data=[sp.Sequences(x, torch.full((8,), 15))]).config.states) == 3


def test_data_may_be_of_another_precision_than_the_model():
    net = model("s5").float()
    for batch in (X, X.numpy()):
        ours, theirs = (sp.prune(net, 0.5, data=[x]).state_dict() for x in (X.float(), batch))
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda net: sp.prune(net, 0.5, data=X), r"list of batches; got one array of shape \(6, 60, 2\)"),
        (lambda net: sp.prune(net, "0.5"), "from 0 to 1; got '0.5'"),
        (lambda net: sp.prune(net, None, data=[X]), "from 0 to 1; got None"),
        (lambda net: sp.prune(net, [0.5]), "from 0 to 1; got .0.5"),
        (lambda net: sp.Pruning(net, seed=-1), "at least 0; got -1"),
        (lambda net: sp.prune(net, 0.5, limits=sp.Limits(exclude=["layers.2.ssm"])), "No layer is called 'layers.2"),
        (lambda net: sp.prune(net, 0.5, limits=sp.Limits(exclude=list(sp.read(net)))), "All layers are excluded"),
        (lambda net: sp.Pruning(net, data=[X], sequences=0), "at least 1, or None for all; got 0"),
        (lambda net: sp.prune(net, 0.5, data=X[0, 0, 0].item), "list of batches or a DataLoader; got builtin"),
        (lambda net: sp.prune(net, sp.max_energy("0.1")), "from 0 to 1; got '0.1'"),
        (lambda net: sp.prune(net, 0.5, "last"), "method is a Method.*got 'last'"),
        (lambda net: sp.make_plan(net, 0.5), r"ssmprune.read\(model\); got Classifier"),
        (lambda net: plan_from_scores(net, {}, 0.5, sp.pooled, "mine"), r"ssmprune.read\(model\); got Classifier"),
        (lambda net: sp.mask(net, None), "plan is what ssmprune.make_plan or Plan.load returns; got NoneType"),
        (lambda net: sp.shrink(net, "plan.safetensors"), "plan is what .* returns; got str"),
        (lambda net: sp.convert(net, 0.5), "plan is what .* returns; got float"),
        (
            lambda net: refit_each_layer(sp.make_plan(sp.read(net), 0.5), sp.read(net), ridge=None),
            "ridge is .* got None",
        ),
        (lambda net: refit_each_layer(sp.make_plan(sp.read(net), 0.5), sp.read(net), ridge=-1), "at least 0; got -1"),
        (lambda net: sp.save(nn.Sequential(net), "model.safetensors"), "own classifiers; this is Sequential"),
    ],
)
def test_mistakes_are_explained(call, message):
    with pytest.raises(sp.InputError, match=message):
        call(model("s5"))
