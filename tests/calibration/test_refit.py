"""Re-fitting what stays: in closed form for each layer, or layer by layer on data; and the plans of the surgeon."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import ssmprune as sp
from calibrated import features, kinds, layer_inputs, model, refit_on_all_data
from ssmprune.adapters.ours import S5Adapter
from ssmprune.core.least_squares import RIDGE
from ssmprune.models import S5Layer
from ssmprune.models.classifier import Classifier
from ssmprune.models.config import Config, LayerOptions
from ssmprune.planning import plan_from_scores, refit_each_layer


@kinds
def test_refit_explains_the_pruned_layers_output_best(family, bidirectional, delay):
    net, x = model(family, bidirectional, delay), torch.randn(4, 50, 2, dtype=torch.float64)
    systems, inputs = sp.read(net), layer_inputs(net, x)
    plan = refit_each_layer(sp.make_plan(systems, 0.5), systems, sp.collect(net, [x], every=1), ridge=0)
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
def test_refit_in_sequence_fits_each_layer_to_the_whole_models(family, bidirectional, delay):
    net, x = model(family, bidirectional, delay), torch.randn(6, 40, 2, dtype=torch.float64)
    plan = refit_on_all_data(sp.make_plan(sp.read(net), 0.5), net, x.split(2), ridge=0)
    small = sp.shrink(net, plan)
    whole_inputs, small_inputs = layer_inputs(net, x), layer_inputs(small, x)
    for layer, system in sp.read(small).items():
        u = small_inputs[layer]
        with torch.no_grad():
            expected, y = (
                candidate.get_submodule(layer)(torch.from_numpy(v)).numpy().reshape(-1, 4)
                for candidate, v in ((net, whole_inputs[layer]), (small, u))
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


def test_the_sequence_is_that_of_the_forward_pass():
    torch.manual_seed(0)
    net, x = Backwards().double(), torch.randn(8, 60, 3, dtype=torch.float64)
    plan = sp.make_plan(sp.read(net), 0.5)
    alone = refit_each_layer(plan, sp.read(net), sp.collect(net, [x], every=1))
    after = refit_on_all_data(plan, net, [x], ridge=RIDGE)
    np.testing.assert_allclose(after.C["second"], alone.C["second"], atol=1e-5)
    assert np.abs(after.C["first"] - alone.C["first"]).max() > 1e-3
    with torch.no_grad():
        errors = [(sp.shrink(net, refitted)(x) - net(x)).square().mean() for refitted in (after, alone)]
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
    plan = sp.make_plan({"ssm": system}, 1 / 6, sp.SURGEON)
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
    plan = sp.make_plan({"ssm": dead}, 1 / 3, sp.SURGEON)
    assert np.flatnonzero(~plan.keep["ssm"]).tolist() == [1, 4]
    assert plan.scores["ssm"][[1, 4]].tolist() == [-np.inf, -np.inf]
    np.testing.assert_allclose(plan.C["ssm"], dead.C[:, :, plan.keep["ssm"]], atol=1e-9)
    np.testing.assert_allclose(plan.D_change["ssm"], 0, atol=1e-9)


def test_a_layer_without_output_goes_before_others():
    silent = sp.DiagonalSystem.from_discrete([0.5, 0.6], np.zeros((2, 1)), np.ones((1, 2)))
    loud = sp.DiagonalSystem.from_discrete([0.5, 0.6], np.ones((2, 1)), np.ones((1, 2)))
    plan = sp.make_plan({"loud": loud, "silent": silent}, 0.25, sp.SURGEON)
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


NEARLY_REAL = (1e-40, 1e-20, 1e-12, 1e-6)


def nearly_real(width=4, n=24, dead=0):
    """Two layers; in each, half of the poles and their B are real but for an imaginary part next to nothing."""
    torch.manual_seed(0)
    net = nn.Sequential(*(S5Layer(width, n, LayerOptions(pole_form="free")) for _ in range(2)))
    with torch.no_grad():
        for layer in net:
            layer.pole_re.uniform_(-8, -0.3)
            layer.pole_im.uniform_(1, 40)
            layer.pole_im[: n // 2] = torch.tensor(NEARLY_REAL).repeat(n)[: n // 2]
            layer.B[: n // 2, :, 1] = 0
            layer.B[n - dead :] *= 1e-30
            layer.log_step.fill_(np.log(0.02))
    return net


@pytest.mark.parametrize("dead", [0, 4])
@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5, 0.7])
@pytest.mark.parametrize("way", ["without data", "once", "in sequence"])
def test_a_fit_gives_no_weight_to_what_has_no_energy(way, ratio, dead):
    net, x, unseen = nearly_real(dead=dead), torch.randn(24, 80, 4), torch.randn(16, 80, 4)
    systems = sp.read(net)
    if way == "in sequence":
        plan = sp.Pruning(net, data=[x]).plan(ratio)
    else:
        plan = sp.make_plan(systems, ratio, sp.SURGEON, moments=sp.collect(net, [x]) if way == "once" else None)
    assert plan.C or dead  # states that died out leave nothing to take over
    for path, C in plan.C.items():
        assert np.abs(C).max() < 1e4 * np.abs(systems[path].C).max()
    with torch.no_grad():
        expected = net(unseen)
        refitted, chosen = (
            (sp.shrink(net, pruned)(unseen) - expected).square().mean() for pruned in (plan, replace(plan, C={}))
        )
    assert refitted < 1e-3 * expected.square().mean()
    assert refitted <= chosen


def test_a_readout_beyond_the_layers_type_is_refused_by_name():
    net = nearly_real()[:1]
    ((path, system),) = sp.read(net).items()
    plan = sp.make_plan({path: system}, 0.5)
    huge = replace(plan, C={path: np.full((1, 4, 12), 1e39 + 0j)}, D_change={path: np.zeros(4)})
    for use in (sp.shrink, sp.mask, sp.convert):
        with pytest.raises(sp.InputError, match=r"^Layer '0': Numbers of up to 1\.0e\+39 do not fit into .*float32"):
            use(net, huge)


@pytest.mark.parametrize("sequences", [1, 8])
def test_outputs_that_are_not_finite_are_refused_by_name(sequences):
    net, x = nearly_real(), torch.randn(sequences, 30, 4)
    for layer in net:
        nn.init.constant_(layer.D, 1e38)
    with pytest.raises(sp.InputError, match=r"Layer '1' of the unpruned model answers .* NaN or infinite"):
        sp.prune(net, 0.5, sp.LAST, data=[x])


class Overflowing(S5Adapter):
    def refit(self, layer, keep, C, D_change):
        nn.init.constant_(layer.module.C, np.inf)


@pytest.mark.parametrize("sequences", [1, 8])
def test_a_refit_that_overflows_is_refused_by_name(sequences):
    with pytest.raises(sp.InputError, match="Layer '0' of the re-fitted model answers"):
        sp.prune(nearly_real(), 0.5, data=[torch.randn(sequences, 30, 4)], adapter=Overflowing())


@given(st.integers(0, 10).map(lambda k: k / 10), st.sampled_from(["s5", "s4d"]))
@settings(max_examples=20)
def test_limits_are_those_of_every_plan(ratio, family):
    found = sp.read(model(family))
    counts = {layer: system.n for layer, system in found.items()}
    plan = sp.make_plan(found, ratio, sp.SURGEON)
    total = sum(counts.values())
    assert sum(keep.sum() for keep in plan.keep.values()) == max(total * (10 - round(10 * ratio)) // 10, 2)
    assert all(sp.make_plan(found, ratio, sp.SURGEON, limits=sp.Limits(exclude=["layers.0.ssm"])).keep["layers.0.ssm"])
    capped = sp.make_plan(found, ratio, sp.SURGEON, limits=sp.Limits(caps=0.5))
    assert all(keep.sum() >= np.ceil(counts[layer] / 2) for layer, keep in capped.keep.items())
    rounded = sp.make_plan(found, ratio, sp.SURGEON, limits=sp.Limits(round_to=4))
    assert all(keep.sum() % 2 == 0 or keep.all() for keep in rounded.keep.values())
    assert all((plan.keep[layer] <= rounded.keep[layer]).all() for layer in counts)
    if family == "s4d":
        channels = sp.make_plan(found, ratio, sp.SURGEON, limits=sp.Limits(floor="channel")).keep
        assert all(set(found[layer].channel[keep]) == set(found[layer].channel) for layer, keep in channels.items())


def test_less_pruned_plans_keep_all_that_more_pruned_ones_do():
    found = sp.read(model("s4d"))
    plans = [sp.make_plan(found, k / 20, sp.SURGEON) for k in range(21)]
    for more, less in zip(plans[1:], plans, strict=False):
        assert all((more.keep[layer] <= less.keep[layer]).all() for layer in found)


def test_scores_of_a_plan_make_other_plans():
    found = sp.read(model("s5"))
    first = sp.make_plan(found, 0.5, sp.SURGEON)
    second = plan_from_scores(found, first.scores, 0.5, sp.pooled, "again")
    assert not any(first.difference(second).values())
    assert plan_from_scores(found, first.scores, 0.8, sp.uniform, "more").kept < first.kept


def test_moments_of_another_model_are_refused():
    x = torch.randn(4, 30, 2, dtype=torch.float64)
    found, other = sp.read(model("s5")), sp.collect(model("s4d"), [x])
    plan = sp.make_plan(found, 0.5)
    for wrong in (other, {}):
        for use in (
            partial(sp.make_plan, found, 0.5, sp.SURGEON),
            partial(refit_each_layer, plan, found),
            partial(sp.certify, plan, found),
        ):
            with pytest.raises(sp.InputError, match=r"not those of layer 'layers\.0\.ssm'"):
                use(moments=wrong)


def test_unstable_states_stay_as_they_are():
    rng = np.random.default_rng(0)
    poles = np.array([0.9, 1.2, 0.8, 0.7])
    system = sp.DiagonalSystem.from_discrete(poles, rng.normal(size=(4, 2)), rng.normal(size=(2, 4)))
    plan = sp.make_plan({"ssm": system}, 0.5, sp.SURGEON)
    assert plan.keep["ssm"][1]
    kept = np.flatnonzero(plan.keep["ssm"]).tolist()
    np.testing.assert_array_equal(plan.C["ssm"][:, :, kept.index(1)], system.C[:, :, 1])


def test_refitted_plans_reload_as_they_were(tmp_path):
    found = sp.read(model("s4d", bidirectional=True))
    plan = sp.make_plan(found, 0.6, sp.SURGEON)
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
    with pytest.raises(
        sp.InputError, match=r"keeps 3 states, so it needs finite complex128 C \(directions, outputs, 3\)"
    ):
        sp.Plan(**fields, states_per_entry=plan.states_per_entry, C={"ssm": C}, D_change={"ssm": D})


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_data_let_far_more_states_go(family):
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
