"""Narrower models: what is deleted, what the readers take over, and what held-out data have to say."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

import ssmprune as sp
from ssmprune import Classifier, Sequences
from ssmprune.models.config import Config
from ssmprune.models.costs import operations
from ssmprune.narrowing import RIDGE, Narrowing, Reader, Sums, narrower, rank
from ssmprune.planning.plan import Features

WIDTH = 6
OPTIONS = {
    "s5": {},
    "s4d": {"family": "s4d"},
    "both directions": {"bidirectional": True},
    "both directions, s4d": {"family": "s4d", "bidirectional": True},
    "no pairs": {"conj_sym": False},
    "lru": {"initial_poles": "ring"},
    "gelu": {"activation": "gelu"},
    "half_glu2": {"activation": "half_glu2"},
    "full_glu": {"activation": "full_glu"},
    "tanh": {"exact_gelu": False},
    "norm after": {"prenorm": False},
    "layer norm": {"norm": "layer"},
    "layer norm after": {"norm": "layer", "prenorm": False},
    "last": {"pooling": "last"},
    "every step": {"pooling": "none"},
    "tokens": {"tokens": True, "inputs": 11},
    "retrieval": {"retrieval": True, "tokens": True, "inputs": 11},
    "retrieval, both directions": {"retrieval": True, "bidirectional": True},
}


def build(seed=0, **options):
    torch.manual_seed(seed)
    states = (12, 7) if options.get("family") == "s4d" else (4, 5)
    options = {"family": "s5", "inputs": 2, "outputs": 3, "width": WIDTH, "states": states, **options}
    model = Classifier(Config(**options)).double().eval()
    for tensor in model.state_dict().values():
        if tensor.is_floating_point() and tensor.ndim == 1:  # norms, steps and biases that are not all alike
            tensor.add_(0.2 * torch.randn_like(tensor).abs())
    return model


def inputs(model, batch=24, length=15, seed=1):
    torch.manual_seed(seed)
    x = torch.randint(11, (batch, length)) if model.config.tokens else torch.randn(batch, length, 2).double()
    return Sequences(x, torch.randint(length // 2, length + 1, (batch,)))


def some_features(model, seed=2):
    torch.manual_seed(seed)
    keep = np.zeros(WIDTH, bool)
    keep[torch.randperm(WIDTH)[:4].numpy()] = True
    return Features(keep, np.roll(keep, 1) if model.config.retrieval else None)


def silence(model, features):
    """Set all that belongs to features that go to zero: the same answers, where norms treat features one by one."""
    for name, tensor in model.state_dict().items():
        owner, leaf = name.rsplit(".", 1)
        gone = torch.from_numpy(np.flatnonzero(~features.keep))
        if owner == "encoder":
            tensor[(slice(None), gone) if model.config.tokens else gone] = 0
        elif (
            (owner.endswith("norm") and leaf in ("weight", "bias")) or leaf == "D" or owner.endswith(("gate", "value"))
        ):
            tensor[gone] = 0
        elif leaf == "C" and "channel" in dict(model.get_submodule(owner).named_buffers()):
            tensor[:, torch.isin(model.get_submodule(owner).channel, gone)] = 0
        elif leaf == "C":
            tensor[:, gone] = 0
    if features.units is not None:
        model.decoder.weight.data[:, ~features.units] = 0


@pytest.mark.parametrize("options", [value for name, value in OPTIONS.items() if "layer norm" not in name])
def test_deleted_features_might_as_well_be_silent(options):
    model = build(**options)
    features, (x, lengths) = some_features(model), inputs(model)
    small = narrower(model, features)
    silence(model, features)
    assert small.config.width == 4
    with torch.no_grad():
        torch.testing.assert_close(small(x, lengths), model(x, lengths), rtol=0, atol=1e-10)


@pytest.mark.parametrize("prenorm", [True, False])
def test_a_layer_norm_normalises_the_features_that_stay(prenorm):
    model = build(norm="layer", prenorm=prenorm, activation="gelu", states=(4,))
    features = some_features(model)
    x = inputs(model).x
    block, keep = model.layers[0], torch.from_numpy(features.keep)

    def norm(values):
        centred = values - values.mean(-1, keepdim=True)
        unit = centred / (centred.square().mean(-1, keepdim=True) + model.config.norm_eps).sqrt()
        return unit * block.norm.weight[keep] + block.norm.bias[keep]

    stream = model.encoder(x)[..., keep]
    u = torch.zeros(*stream.shape[:2], WIDTH).double()
    u[..., keep] = norm(stream) if prenorm else stream
    after = stream + torch.nn.functional.gelu(block.ssm(u)[..., keep])
    pooled = (after if prenorm else norm(after)).mean(1)
    expected = pooled @ model.decoder.weight[:, keep].T + model.decoder.bias
    torch.testing.assert_close(narrower(model, features)(x), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_all_options_narrow_and_come_nearer_than_deletion_does(options):
    model = build(**options)
    features = Narrowing(model, [inputs(model, batch=60)]).narrow(4)
    assert features.kept == 4
    new = inputs(model, batch=60, seed=5)
    with torch.no_grad():
        wanted = model(*new)
        errors = [
            float((narrower(model, each)(*new) - wanted).square().sum())
            for each in (features, Features(features.keep, features.units))
        ]
    assert errors[0] < errors[1]


def test_no_feature_less_changes_no_bit():
    model = build()
    x, lengths = inputs(model)
    features = Narrowing(model, [Sequences(x, lengths)]).narrow(WIDTH)
    assert not features.arrays
    assert torch.equal(narrower(model, features)(x, lengths), model(x, lengths))


@pytest.mark.parametrize("options", [{}, {"family": "s4d"}, {"activation": "full_glu"}, {"bidirectional": True}])
def test_a_feature_that_another_reproduces_goes_first_and_costs_nothing(options):
    model = build(**options)
    for name, tensor in model.state_dict().items():  # feature 3 does what feature 1 does
        leaf = name.rsplit(".", 1)[1]
        if leaf == "C" and options.get("family") != "s4d":
            tensor[:, 3] = tensor[:, 1]
        elif (
            leaf in ("D", "running_mean", "running_var")
            or (leaf in ("weight", "bias") and len(tensor) == WIDTH)
            or (leaf == "log_step" and len(tensor) == WIDTH)
        ):
            tensor[3] = tensor[1]
    if options.get("family") == "s4d":
        for block in model.blocks:  # one state each, all with their channel's parameters
            ssm = block.ssm
            for tensor in (ssm.pole_re, ssm.pole_im, ssm.C, ssm.B, ssm.log_step):
                tensor.data[...] = tensor.data.flatten()[0]
            counts = np.bincount(ssm.channel, minlength=WIDTH)
            ssm.C.data[..., np.isin(ssm.channel, [3]), :] *= counts[1] / counts[3]
    data = inputs(model, batch=40)
    work = Narrowing(model, [data])
    order, costs, _ = work.ranking
    assert order[0] in (1, 3)
    assert costs[0] < 10 * RIDGE < costs[1]
    with torch.no_grad():
        difference = narrower(model, work.narrow(WIDTH - 1))(*data) - model(*data)
        assert difference.abs().max() < 1e-3 * model(*data).abs().max()


def test_costs_are_what_least_squares_loses():
    """Twin: each feature's cost is the rise of the error of the readers' outputs, all weights fitted anew."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(500, 5)) @ rng.normal(size=(5, 5))
    W = rng.normal(size=(5, 3))
    sums = Sums()
    sums.add(torch.from_numpy(z))
    order, costs = rank([Reader(sums, [W])])
    centred = z - z.mean(0)
    y = centred @ W
    left, lost = list(range(5)), 0.0
    for gone, cost in zip(order, costs, strict=True):
        errors = {}
        for j in left:
            rest = [k for k in left if k != j]
            fit = np.linalg.lstsq(centred[:, rest], y, rcond=None)[0]
            errors[j] = np.square(y - centred[:, rest] @ fit).sum() / np.square(y).sum()
        assert gone == min(errors, key=errors.get)
        assert cost == pytest.approx(errors[gone] - lost, rel=2e-3)
        lost = errors[gone]
        left.remove(gone)


def test_fits_are_least_squares():
    rng = np.random.default_rng(1)
    z, r = rng.normal(size=(200, 4)) + 1, rng.normal(size=(200, 2)) + 3
    sums = Sums()
    sums.add(torch.from_numpy(z), torch.from_numpy(r))
    with_constant = np.linalg.lstsq(np.column_stack([z, np.ones(200)]), r, rcond=None)[0]
    without = np.linalg.lstsq(z, r, rcond=None)[0]
    np.testing.assert_allclose(sums.solve(1e-12, constant=True), with_constant, atol=1e-8)
    np.testing.assert_allclose(sums.solve(1e-12, constant=False), np.vstack([without, [0, 0]]), atol=1e-8)
    assert sums.error(np.vstack([without, [0, 0]])) == pytest.approx(np.square(r - z @ without).sum())


@pytest.mark.slow
def test_held_out_errors_are_hardly_ever_above_those_of_deletion():
    worse = []
    for seed, (family, activation, few) in enumerate(
        itertools.product(("s5", "s4d"), ("gelu", "half_glu1", "full_glu"), [6, 12, 24, 60] * 10)
    ):
        model = build(seed, family=family, activation=activation)
        features = Narrowing(model, [inputs(model, batch=few, seed=seed)]).narrow(3)
        new = inputs(model, batch=50, seed=1000 + seed)
        with torch.no_grad():
            wanted = model(*new)
            fitted, deleted = (
                float((narrower(model, each)(*new) - wanted).square().sum())
                for each in (features, Features(features.keep))
            )
        worse.append(fitted / deleted - 1)
    assert max(worse) < 0.01


@pytest.fixture
def digits():
    """Return a model in single precision and batches of sequences."""
    model = build(width=12, states=(10, 10)).float()
    return model, [torch.randn(60, 20, 2)]


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_a_narrower_model_is_an_ordinary_one(tmp_path, family):
    model = build(family=family, width=WIDTH).float()
    x = torch.randn(60, 20, 2)
    small = sp.prune(model, 0.5, width=0.5, data=[x])
    assert (model.config.width, small.config.width) == (WIDTH, WIDTH // 2)
    assert small.history[-1].endswith("3 of 6 features, on 60 sequences")
    path = tmp_path / "small.safetensors"
    sp.save(small, path)
    again = sp.load(path)
    with torch.no_grad():
        answers = small(x)
        assert torch.equal(again(x), answers)
        assert torch.allclose(small.stream(x)[0][:, -1], answers, atol=1e-5)
    np.testing.assert_allclose(sp.compile(again)(x.numpy()), answers.numpy(), atol=1e-5)
    assert sp.quantize(again, bits=8).grid is not None
    small.train()(x).sum().backward()


def test_plans_replay_features(tmp_path, digits):
    model, data = digits
    work = sp.Pruning(model, width=0.5, data=data)
    plan = work.plan(0.5)
    plan.save(tmp_path / "plan")
    again = sp.Plan.load(tmp_path / "plan")
    assert str(again) == str(plan)
    pruned, replayed = work.shrink(plan), sp.shrink(model, again)
    assert all(torch.equal(one, two) for one, two in zip(pruned.parameters(), replayed.parameters(), strict=True))
    with pytest.raises(sp.InputError, match="features too"):
        sp.mask(model, again)
    with pytest.raises(sp.InputError, match="make a new plan"):
        sp.shrink(build(width=8).float(), again)


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_operations_are_what_stays_of_a_step(family):
    model, data = build(family=family, width=12, states=(40, 40)).float(), [torch.randn(60, 20, 2)]
    for share in (0.7, 0.3):
        small = sp.prune(model, operations=share, data=data)
        assert 0.5 * share < operations(small.config) / operations(model.config) <= share


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_a_mix_is_the_cheapest_of_all(family):
    """Twin: prune all ratios to all widths, and count the operations of what is left."""
    model, data = build(family=family, states=(5, 5)).float(), [torch.randn(60, 20, 2)]
    work = sp.Pruning(model, width="auto", data=data)
    costs = np.concatenate([[0], np.cumsum(work.narrowing.ranking[1])])
    found = {}
    for ratio in np.linspace(0, 1, 51):
        plan = work.choose_states(ratio)
        lost = sum(np.exp(plan.scores[layer][~keep]).sum() for layer, keep in plan.keep.items())
        for width in range(1, WIDTH + 1):
            narrow = work.shrink(dataclasses.replace(plan, features=work.narrowing.choose(width)))
            if operations(narrow.config) <= 0.5 * operations(model.config):
                found[float(ratio), width] = lost + costs[WIDTH - width]
    assert found[work.narrowing.mix(0.5, work._without_states)] == pytest.approx(min(found.values()))


def test_budgets_search_states_and_features_together(digits):
    model, data = digits
    whole = sum(tensor.numel() for tensor in model.state_dict().values()) * 4 / 1e6
    small = sp.prune(model, sp.max_memory(0.4 * whole), width="auto", data=data)
    assert small.config.width < 12
    assert sum(tensor.numel() for tensor in small.state_dict().values()) * 4 / 1e6 <= 0.4 * whole


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, data: sp.prune(model, 0.5, width=0.5), "give data"),
        (lambda model, data: sp.prune(model, 0.5, width=1.5, data=data), "share of features to prune, or .auto."),
        (lambda model, data: sp.prune(model, operations=-1, data=data), "operations that stays, from 0 to 1"),
        (lambda model, data: sp.prune(model, 0.5, operations=0.5, data=data), "not both"),
        (lambda model, data: sp.prune(model, operations=0.001, data=data), "of this model at least .* stay, not 0.10%"),
        (lambda model, data: sp.prune(model, sp.max_energy(0.1), width=0.5, data=data), "features must stay"),
        (lambda model, data: sp.prune(sp.S5Layer(2, 4), 0.5, width=0.5, data=data), "own classifiers; this is S5Layer"),
    ],
)
def test_what_cannot_be_narrowed_is_refused(digits, call, message):
    with pytest.raises(sp.InputError, match=message):
        call(*digits)


def test_a_budget_measures_the_narrower_model_also_where_no_state_goes(digits):
    class Wide(sp.Budget):
        name = "wide"

        def measure(self, model, pruning):
            return float(model.config.width)

    model, data = digits
    assert Wide(100).measure_plan(sp.Pruning(model, width=0.5, data=data).plan(0), sp.Pruning(model)) == 6
