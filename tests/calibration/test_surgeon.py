from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import ssmprune as sp
from calibrated import features, kinds, layer_inputs, model, moments
from ssmprune import sampling, surgeon
from ssmprune.calibration import Moments, Residual
from ssmprune.features import Layout, weights
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config, LayerOptions
from ssmprune.models.s5 import S5Layer
from ssmprune.surgeon import elimination_scores, take_over
from strategies import systems


def brute_force(gram, W, groups, removable):
    """Remove the group whose best re-fit loses least, solving the least squares again for every candidate."""
    there, costs, before = list(groups), {}, 0.0
    while any(group in removable for group in there):
        losses = {}
        for group in there:
            if group in removable:
                kept = [feature for other in there if other != group for feature in groups[other]]
                left = W.copy()
                left[kept] -= np.linalg.solve(gram[np.ix_(kept, kept)], gram[kept] @ W)
                losses[group] = np.trace(left.T @ gram @ left)
        best = min(losses, key=losses.get)
        costs[best] = losses[best] - before
        before = losses[best]
        there.remove(best)
    return costs


def brute_force_scores(system, found):
    """The share of the layer's energy each state costs in its turn, never less than one before it."""
    layout, parts = Layout.of(system), 2 * system.directions
    W, scores, energy = weights(system), np.full(system.n, np.inf), 0.0
    for problem in range(layout.problems):
        states = np.flatnonzero(layout.problem == problem)
        gram = found.gram[problem].reshape(layout.slots * parts, -1)
        gram = gram + np.diag(np.where(gram.diagonal() > 0, surgeon.RIDGE * gram.diagonal(), 1))
        w = W[problem].reshape(layout.slots * parts, -1)
        energy += np.trace(w.T @ gram @ w)
        groups = {i: [layout.slot[i] * parts + part for part in range(parts)] for i in states}
        costs = brute_force(gram, w, groups, {i for i in states if not system.unstable_states[i]})
        scores[list(costs)] = np.maximum.accumulate(list(costs.values()))
    return scores / energy


@settings(max_examples=200)
@given(systems(max_n=7), st.booleans())
def test_costs_equal_solving_the_least_squares_for_every_candidate(system, white):
    if white:
        found = sp.white_noise(system)
    else:
        sequences = np.random.default_rng(0).normal(size=(3, 30, system.inputs))
        found = Moments(*moments(system, sequences, [range(0, 30, 2)] * 3))
    expected = brute_force_scores(system, found)
    np.testing.assert_allclose(np.exp(elimination_scores(system, found)), expected, atol=1e-8)


def test_the_order_survives_many_exact_updates():
    rng = np.random.default_rng(0)
    n, poles = 24, 1 - 0.3 * rng.random(24) ** 3
    poles = poles * np.exp(0.2j * rng.random(n))
    system = sp.DiagonalSystem.from_discrete(poles, rng.normal(size=(n, 2)), rng.normal(size=(2, n)), gain=2)
    found = sp.white_noise(system)
    scores, expected = elimination_scores(system, found), brute_force_scores(system, found)
    np.testing.assert_array_equal(np.argsort(scores), np.argsort(np.log(expected), kind="stable"))
    np.testing.assert_allclose(scores[expected > 1e-9], np.log(expected[expected > 1e-9]), rtol=1e-4)
    assert len(set(scores)) == n


def least_squares(z, u, r):
    """For every output: weights of z and of its own input that explain r, by numpy's least squares on rows.

    The ridge is one more row for each regressor that asks its weight to be 0, as strongly as its energy says.
    """
    solved = []
    for j in range(r.shape[1]):
        regressors = np.column_stack([z, u[:, j]])
        rows = np.concatenate([regressors, np.diag(np.sqrt(surgeon.RIDGE) * np.linalg.norm(regressors, axis=0))])
        solved.append(np.linalg.lstsq(rows, np.append(r[:, j], np.zeros(rows.shape[1])), rcond=1e-14)[0])
    return np.array([w[:-1] for w in solved]).T, np.array([w[-1] for w in solved])


@given(systems(max_n=4, multi_siso=(False,)), st.data())
def test_what_is_taken_over_is_the_least_squares_fit(system, data):
    """The ridge makes the problem well posed whatever the states: the condition number is below features / RIDGE."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    width = system.inputs
    u, r = rng.normal(size=(60, width)), rng.normal(size=(60, width))
    heirs = rng.random(system.n) < 0.7
    z = features(system, u)
    gram, cross, power = moments(system, [u], [range(60)])
    residual = Residual(np.einsum("tsa,tq->saq", z, r)[None] / 60, np.mean(u * r, axis=0)[None], 0.0)
    change, D = take_over(Moments(gram, cross, power), residual, heirs[None])
    expected_change, expected_D = least_squares(z[:, heirs].reshape(60, -1), u, r)
    assert not change[0, ~heirs].any()
    fitted = np.einsum("tsa,saq->tq", z, change[0]) + D * u
    expected = z[:, heirs].reshape(60, -1) @ expected_change + expected_D * u
    np.testing.assert_allclose(fitted, expected, atol=1e-7)
    assert (np.linalg.norm(r - fitted, axis=0) < np.linalg.norm(r, axis=0)).all()


@kinds
def test_refit_explains_the_pruned_layers_output_best(family, bidirectional, delay, monkeypatch):
    monkeypatch.setattr(sampling, "stride", lambda *_: 1)
    monkeypatch.setattr(surgeon, "RIDGE", 0)
    net, x = model(family, bidirectional, delay), torch.randn(4, 50, 2, dtype=torch.float64)
    systems, inputs = sp.read(net), layer_inputs(net, x)
    plan = sp.refit(sp.make_plan(systems, 0.5), systems, sp.collect(net, [x]))
    for layer, small in plan.apply(systems).items():
        u = np.concatenate(inputs[layer])
        expected = np.concatenate([systems[layer].simulate(v) for v in inputs[layer]])
        y = np.concatenate([small.simulate(v) for v in inputs[layer]]) + plan.D_change[layer] * u
        z = np.concatenate([features(small, v) for v in inputs[layer]])
        for j in range(u.shape[1]):
            own = z if small.channel is None else z[:, small.channel == j]
            regressors = np.column_stack([own.reshape(len(u), -1), u[:, j]])
            best = regressors @ np.linalg.lstsq(regressors, expected[:, j], rcond=None)[0]
            np.testing.assert_allclose(y[:, j], best, atol=1e-8 * np.abs(expected).max())


@kinds
def test_refit_in_sequence_fits_each_layer_to_the_whole_models(family, bidirectional, delay, monkeypatch):
    monkeypatch.setattr(sampling, "stride", lambda *_: 1)
    monkeypatch.setattr(surgeon, "RIDGE", 0)
    net, x = model(family, bidirectional, delay), torch.randn(6, 40, 2, dtype=torch.float64)
    plan = sp.refit_in_sequence(sp.make_plan(sp.read(net), 0.5), net, x.split(2))
    small = sp.shrink(net, plan)
    whole_inputs, small_inputs = layer_inputs(net, x), layer_inputs(small, x)
    for layer, system in sp.read(small).items():
        u = small_inputs[layer]
        with torch.no_grad():
            expected, y = (
                one.get_submodule(layer)(torch.from_numpy(v)).numpy().reshape(-1, 4)
                for one, v in ((net, whole_inputs[layer]), (small, u))
            )
        z = np.concatenate([features(system, v) for v in u])
        for j in range(4):
            own = z if system.channel is None else z[:, system.channel == j]
            regressors = np.column_stack([own.reshape(len(y), -1), u.reshape(-1, 4)[:, j]])
            best = regressors @ np.linalg.lstsq(regressors, expected[:, j], rcond=None)[0]
            np.testing.assert_allclose(y[:, j], best, atol=1e-7 * np.abs(expected).max())


class Backwards(nn.Module):
    """Runs its layers against the order of their names."""

    def __init__(self):
        super().__init__()
        self.first, self.second = S5Layer(3, 8), S5Layer(3, 8)

    def forward(self, x):
        return self.first(self.second(x).tanh())


def test_the_sequence_is_that_of_the_forward_pass(monkeypatch):
    monkeypatch.setattr(sampling, "stride", lambda *_: 1)
    torch.manual_seed(0)
    net, x = Backwards().double(), torch.randn(8, 60, 3, dtype=torch.float64)
    plan = sp.make_plan(sp.read(net), 0.5)
    alone, after = sp.refit(plan, sp.read(net), sp.collect(net, [x])), sp.refit_in_sequence(plan, net, [x])
    np.testing.assert_allclose(after.C["second"], alone.C["second"], atol=1e-5)
    assert np.abs(after.C["first"] - alone.C["first"]).max() > 1e-3
    with torch.no_grad():
        errors = [(sp.shrink(net, one)(x) - net(x)).square().mean() for one in (after, alone)]
    assert errors[0] < errors[1]


def twins(n=6):
    """A system in which state n - 1 does what state 0 does."""
    rng = np.random.default_rng(1)
    poles = rng.uniform(0.3, 0.95, n) * np.exp(1j * rng.uniform(0, 3, n))
    B, C = rng.normal(size=(n, 3)) + 0j, rng.normal(size=(3, n))
    poles[-1], B[-1] = poles[0], 3 * B[0]
    return sp.DiagonalSystem.from_discrete(poles, B, C, gain=2)


def test_a_state_whose_twin_stays_costs_nothing():
    system = twins()
    plan = sp.surgeon_plan({"ssm": system}, ratio=1 / 6)
    assert plan.keep["ssm"].sum() == 5
    assert not plan.keep["ssm"][[0, -1]].all()
    u = np.random.default_rng(0).normal(size=(50, 3))
    y, expected = plan.apply({"ssm": system})["ssm"].simulate(u), system.simulate(u)
    np.testing.assert_allclose(y, expected, atol=1e-4 * np.abs(expected).max())


def test_dead_states_go_first_and_change_nothing():
    system = twins()
    B = np.array(system.B)
    B[[1, 4]] = 0
    dead = sp.DiagonalSystem(system.log_poles, B, system.C, gain=2.0)
    plan = sp.surgeon_plan({"ssm": dead}, ratio=1 / 3)
    assert np.flatnonzero(~plan.keep["ssm"]).tolist() == [1, 4]
    assert plan.scores["ssm"][[1, 4]].tolist() == [-np.inf, -np.inf]
    np.testing.assert_allclose(plan.C["ssm"], dead.C[:, :, plan.keep["ssm"]], atol=1e-9)
    np.testing.assert_allclose(plan.D_change["ssm"], 0, atol=1e-9)


def test_a_layer_without_output_goes_before_others():
    silent = sp.DiagonalSystem.from_discrete([0.5, 0.6], np.zeros((2, 1)), np.ones((1, 2)))
    loud = sp.DiagonalSystem.from_discrete([0.5, 0.6], np.ones((2, 1)), np.ones((1, 2)))
    plan = sp.surgeon_plan({"loud": loud, "silent": silent}, ratio=0.25)
    assert plan.keep["loud"].all()
    assert plan.keep["silent"].tolist() == [False, True]


def test_nearly_collinear_states_do_not_blow_up():
    rng = np.random.default_rng(0)
    n, width = 64, 4
    poles = 0.98 + 0.005 * rng.random(n) + 0.01j * rng.random(n)  # effective rank far below n
    net = S5Layer(width, n, LayerOptions(pole_form="free"))
    with torch.no_grad():
        lam = torch.from_numpy(np.log(poles))
        net.pole_re.copy_(lam.real)
        net.pole_im.copy_(lam.imag)
        net.log_step.zero_()
        net.B[3] = 0
    x = torch.from_numpy(rng.normal(size=(20, 200, width)).astype(np.float32))
    with torch.no_grad():
        y = net(x)
        for ratio, worst in ((0.1, 1e-3), (0.5, 1e-2), (0.9, 0.3)):
            lost = (sp.prune(net, ratio, data=[x])(x) - y).square().mean() / y.square().mean()
            assert lost < worst**2
            assert (sp.prune(net, ratio)(x) - y).square().mean() / y.square().mean() > 10 * lost


@given(st.integers(0, 10).map(lambda k: k / 10), st.sampled_from(["s5", "s4d"]))
@settings(max_examples=20)
def test_limits_are_those_of_every_plan(ratio, family):
    found = sp.read(model(family))
    counts = {layer: system.n for layer, system in found.items()}
    plan = sp.surgeon_plan(found, ratio)
    total = sum(counts.values())
    assert sum(keep.sum() for keep in plan.keep.values()) == max(total * (10 - round(10 * ratio)) // 10, 2)
    assert all(sp.surgeon_plan(found, ratio, exclude=["layers.0.ssm"]).keep["layers.0.ssm"])
    capped = sp.surgeon_plan(found, ratio, caps=0.5)
    assert all(keep.sum() >= np.ceil(counts[layer] / 2) for layer, keep in capped.keep.items())
    rounded = sp.surgeon_plan(found, ratio, round_to=4)
    assert all(keep.sum() % 2 == 0 or keep.all() for keep in rounded.keep.values())
    assert all((plan.keep[layer] <= rounded.keep[layer]).all() for layer in counts)
    if family == "s4d":
        channels = sp.surgeon_plan(found, ratio, floor="channel").keep
        assert all(set(found[layer].channel[keep]) == set(found[layer].channel) for layer, keep in channels.items())


def test_less_pruned_plans_keep_all_that_more_pruned_ones_do():
    found = sp.read(model("s4d"))
    plans = [sp.surgeon_plan(found, k / 20) for k in range(21)]
    for more, less in zip(plans[1:], plans, strict=False):
        assert all((more.keep[layer] <= less.keep[layer]).all() for layer in found)


def test_scores_of_a_plan_make_other_plans():
    found = sp.read(model("s5"))
    first = sp.surgeon_plan(found, 0.5)
    second = sp.plan_from_scores(found, first.scores, 0.5, sp.pooled, "again")
    assert not any(first.difference(second).values())
    assert sp.plan_from_scores(found, first.scores, 0.8, sp.uniform, "more").kept < first.kept


def test_moments_of_another_model_are_refused():
    x = torch.randn(4, 30, 2, dtype=torch.float64)
    found, other = sp.read(model("s5")), sp.collect(model("s4d"), [x])
    plan = sp.make_plan(found, 0.5)
    for wrong in (other, {}):
        for use in (
            partial(sp.surgeon_plan, found, 0.5),
            partial(sp.refit, plan, found),
            partial(sp.certify, plan, found),
        ):
            with pytest.raises(sp.InputError, match=r"not those of layer 'layers\.0\.ssm'"):
                use(wrong)


def test_unstable_states_stay_as_they_are():
    rng = np.random.default_rng(0)
    poles = np.array([0.9, 1.2, 0.8, 0.7])
    system = sp.DiagonalSystem.from_discrete(poles, rng.normal(size=(4, 2)), rng.normal(size=(2, 4)))
    plan = sp.surgeon_plan({"ssm": system}, 0.5)
    assert plan.keep["ssm"][1]
    kept = np.flatnonzero(plan.keep["ssm"]).tolist()
    np.testing.assert_array_equal(plan.C["ssm"][:, :, kept.index(1)], system.C[:, :, 1])


def test_refitted_plans_reload_as_they_were(tmp_path):
    found = sp.read(model("s4d", bidirectional=True))
    plan = sp.surgeon_plan(found, 0.6)
    plan.save(tmp_path / "plan.safetensors")
    again = sp.Plan.load(tmp_path / "plan.safetensors")
    assert str(again) == str(plan)
    assert "surgeon without data at 60%, C and D re-fitted" in str(plan)
    for layer in found:
        np.testing.assert_array_equal(again.C[layer], plan.C[layer])
        np.testing.assert_array_equal(again.D_change[layer], plan.D_change[layer])


@pytest.mark.parametrize(
    ("C", "D"),
    [
        (np.zeros((1, 4, 2), complex), np.zeros(4)),
        (np.full((1, 4, 3), np.nan + 0j), np.zeros(4)),
        (np.zeros((1, 4, 3), complex), np.zeros((1, 4))),
    ],
)
def test_a_plan_refuses_a_readout_of_other_states(C, D):
    plan = sp.make_plan({"ssm": twins()}, 0.5)
    fields = {name: getattr(plan, name) for name in ("keep", "scores", "method", "ratio", "fingerprints")}
    with pytest.raises(sp.InputError, match=r"keeps 3 states, so it needs finite C \(directions, outputs, 3\)"):
        sp.Plan(**fields, states_per_entry=plan.states_per_entry, C={"ssm": C}, D_change={"ssm": D})


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_the_two_line_door_with_data(family):
    torch.manual_seed(0)
    width, states = 6, (20, 20) if family == "s5" else (60, 60)
    net = Classifier(Config(family, 2, 3, width, states)).eval()
    x = torch.randn(30, 80, 2)
    loss = {}
    with torch.no_grad():
        for name, method, data in (("last", None, None), ("last, re-fitted", sp.LAST, [x]), ("surgeon", None, [x])):
            small = sp.prune(net, 0.6, method, data=data and iter(data))
            assert sum(small.config.states) == int(sum(states) * 0.4)
            loss[name] = (small(x) - net(x)).square().mean().item()
    assert loss["surgeon"] < loss["last, re-fitted"] < loss["last"]
    assert loss["surgeon"] < 0.1 * loss["last"]
