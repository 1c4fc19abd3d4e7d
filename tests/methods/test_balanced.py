"""Balanced truncation: against the textbook, its bound, plans that make new states, and the models they give."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import families
import ssmprune as sp
from calibrated import kinds, model
from reference import channels
from ssmprune import pruning
from ssmprune.adapters import layers_of
from ssmprune.core.norms import hinf
from ssmprune.methods import Reduced
from ssmprune.methods.balanced import FAINTEST, Balanced, truncate
from ssmprune.planning import refit_each_layer
from ssmprune.training.gradual_pruning import Schedule
from strategies import systems

GOLDEN = Path(__file__).parents[1] / "golden" / "balanced.npz"
THETA = np.linspace(0, np.pi, 17)


def balanced(found, ratio, **options):
    return sp.make_plan(found, ratio, sp.BALANCED, **options).apply(found)


def realisation(system):
    """Real A, B and C (of all directions, stacked) of one MIMO system, x = [Re x_1, ..., Im x_1, ...]."""
    A = np.diag(system.poles)
    C = np.concatenate(system.C)
    return (
        np.block([[A.real, -A.imag], [A.imag, A.real]]),
        np.concatenate([system.B.real, system.B.imag]),
        system.gain * np.concatenate([C.real, -C.imag], axis=1),
    )


def gramians(A, B, C):
    """P and Q, summed step by step."""
    P, Q, power = np.zeros_like(A), np.zeros_like(A), np.eye(len(A))
    for _ in range(400):
        P += power @ B @ B.T @ power.T
        Q += power.T @ C.T @ C @ power
        power = A @ power
    return P, Q


def reference_sigma(system):
    P, Q = gramians(*realisation(system))
    return np.sort(np.sqrt(np.abs(np.linalg.eigvals(P @ Q))))[::-1]


fast = systems(max_n=6).filter(lambda system: np.abs(system.poles).max() < 0.97)


@settings(max_examples=40)
@given(fast)
def test_singular_values_are_those_of_the_gramians(system):
    found = Balanced.of(system).sigma
    alone = [system] if system.channel is None else list(channels(system))
    for sigma, one in zip(found, alone, strict=True):
        expected = reference_sigma(one) if one.n else np.zeros(0)
        np.testing.assert_allclose(sigma[: 2 * one.n], expected, atol=1e-6 * max([1, *expected]))
        assert not sigma[2 * one.n :].any()


def textbook(system, order):
    """The square-root algorithm with Cholesky factors, P = SᵀS and Q = RᵀR, S Rᵀ = U Σ Vᵀ; A, B and C are dense."""
    A, B, C = realisation(system)
    P, Q = gramians(A, B, C)
    S, R = np.linalg.cholesky(P).T, np.linalg.cholesky(Q).T
    U, sigma, Vt = np.linalg.svd(S @ R.T)
    half = np.diag(sigma[:order] ** -0.5)
    W, V = R.T @ Vt[:order].T @ half, S.T @ U[:, :order] @ half
    return W.T @ A @ V, W.T @ B, C @ V


def dense_response(A, B, C):
    """Outputs include the present input: y_k = C x_k with x_k = A x_{k-1} + B u_k."""
    return np.array([C @ np.linalg.solve(np.eye(len(A)) - A * np.exp(-1j * theta), B) for theta in THETA])


@settings(max_examples=40)
@given(st.integers(0, 1000), st.integers(2, 6), st.integers(1, 5))
def test_the_textbooks_algorithm_gives_the_same_system(seed, n, states):
    system = layer(np.random.default_rng(seed), n)
    small = truncate(system, np.arange(n) < states).system
    kept = 2 * small.n - np.count_nonzero(is_real(small))
    expected = dense_response(*textbook(system, kept))
    np.testing.assert_allclose(small.response(THETA), expected, atol=1e-6 * np.abs(expected).max())


def layer(rng, n, width=3, directions=1, gain=2.0, channels=0):
    """A layer with poles that are neither slow nor near one another."""
    poles = rng.uniform(0.3, 0.95, n) * np.exp(1j * np.pi * (np.arange(n) + rng.uniform(0.2, 0.8, n)) / n)
    side = 1 if channels else width
    B, C = (rng.normal(size=shape) + 1j * rng.normal(size=shape) for shape in ((n, side), (directions, side, n)))
    owners = {"channel": np.sort(rng.integers(channels, size=n)), "channels": channels} if channels else {}
    return sp.DiagonalSystem.from_discrete(poles, B, C, gain=gain, **owners)


def cases():
    """Models of two layers of every kind."""
    named = {"mimo": {}, "no pairs": {"gain": 1.0}, "both ways": {"directions": 2}, "channels": {"channels": 4}}
    rng = np.random.default_rng(0)
    return {name: {f"layer{k}": layer(rng, n, **kind) for k, n in enumerate((12, 9))} for name, kind in named.items()}


def test_it_is_what_sweeps_had_as_a_baseline():
    """golden/balanced.npz holds what `ssmprune.sweeps.balanced_truncation` of version 0.3.0 gave at 40 %."""
    golden = np.load(GOLDEN)
    for name, found in cases().items():
        for path, small in balanced(found, 0.4).items():
            expected = golden[f"{name}/{path}"]
            np.testing.assert_allclose(small.response(THETA), expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def halves(system):
    """Both directions as systems of their own."""
    for C in system.C:
        yield sp.DiagonalSystem(system.log_poles, system.B, C[None], system.channel, system.channels, system.gain)


def difference(one, other):
    """The system one - other."""
    join = None if one.channel is None else np.append(one.channel, other.channel)
    log_poles, B = np.append(one.log_poles, other.log_poles), np.concatenate([one.B, other.B])
    return sp.DiagonalSystem(log_poles, B, np.append(one.C, -other.C, axis=2), join, one.channels, one.gain)


def is_real(system):
    """Which poles are real: the angle of a negative one is π, whose pole as a number has a trace of imaginary part."""
    return np.abs(np.sin(system.log_poles.imag)) < 1e-12


@pytest.mark.slow
@settings(max_examples=60)
@given(systems(max_n=8), st.integers(0, 10))
def test_the_error_stays_within_the_bound(system, tenths):
    """|G - G'| <= 2 Σ cut-off σ, for each direction; with fewer states than asked only where real poles need room."""
    small = balanced({"ssm": system}, tenths / 10)["ssm"]
    sigma, whole = Balanced.of(system).sigma, small.n == system.n
    assert small.n <= max(system.n * (10 - tenths) // 10, 1)
    if small.channel is None:
        kept = [2 * small.n - np.count_nonzero(is_real(small))] if not whole else [2 * system.n]
    else:
        real = np.bincount(small.channel, is_real(small), small.channels).astype(int)
        kept = 2 * np.bincount(small.channel, minlength=small.channels) - real
        kept = kept if not whole else [sigma.shape[1]] * small.channels
    bound = max(2 * values[count:].sum() for values, count in zip(sigma, kept, strict=True))
    for before, after in zip(halves(system), halves(small), strict=True):
        assert hinf(difference(before, after))[0] <= bound * (1 + 1e-6) + 1e-5 * sigma.max()


def frequencies(*found):
    """A fine grid of frequencies, finer still at the poles, where responses peak."""
    angles = np.concatenate([np.angle(system.poles) for system in found])
    widths = np.concatenate([-np.expm1(system.log_poles.real) for system in found])
    near = angles[:, None] + widths[:, None] * np.linspace(-4, 4, 33)
    return np.concatenate([np.linspace(0, np.pi, 513), np.abs(near).ravel() % np.pi])


@pytest.mark.parametrize("seed", range(200))
def test_no_certificate_is_violated(seed):
    """200 random systems: slow and fast poles, real ones, near twins, outputs of very different sizes."""
    rng = np.random.default_rng(seed)
    n, d, (p, q) = int(rng.integers(2, 16)), int(rng.integers(1, 3)), rng.integers(1, 5, 2)
    spread = np.pi * rng.choice([0, 1e-3, 1])
    poles = rng.uniform(0, 1, n) ** rng.choice([1e-3, 0.1, 1]) * np.exp(1j * rng.uniform(-spread, spread, n))
    poles[1] = poles[0] * (1 - 10.0 ** -rng.integers(1, 9))
    fields = {"gain": float(rng.choice([1, 2])), "backward_delay": int(rng.integers(2))}
    if seed % 3 == 0:
        p = q = 1
        fields |= {"channel": np.sort(rng.integers(0, 3, n)), "channels": 3}
    B, C = (rng.normal(size=shape) + 1j * rng.normal(size=shape) for shape in ((n, p), (d, q, n)))
    system = sp.DiagonalSystem.from_discrete(poles, B, C * 10.0 ** rng.uniform(-2, 2, n), **fields)
    plan = sp.make_plan({"ssm": system}, rng.uniform(0.1, 0.9), sp.BALANCED)
    certificate, small = sp.certify(plan, {"ssm": system})["ssm"], plan.apply({"ssm": system})["ssm"]
    theta = frequencies(system, small)
    error = system.response(theta) - small.response(theta)
    gains = np.abs(error).max(axis=1) if error.ndim == 2 else np.linalg.norm(error, ord=2, axis=(1, 2))
    assert gains.max(initial=0) <= certificate.exact * (1 + 1e-6) + 1e-12 * certificate.gain
    assert certificate.exact <= certificate.bound
    assert certificate.paper is None is certificate.paper_model


def test_the_bound_is_twice_the_tail_of_the_singular_values():
    system = layer(np.random.default_rng(1), 8)
    plan = sp.make_plan({"ssm": system}, 0.5, sp.BALANCED)
    sigma = Balanced.of(system).sigma[0]
    small = plan.new["ssm"].system
    order = 2 * small.n - np.count_nonzero(is_real(small))
    rounding = 4 * FAINTEST * 2 * system.n * hinf(system)[0]
    assert 0 <= sp.certify(plan, {"ssm": system})["ssm"].bound - 2 * sigma[order:].sum() <= rounding


def test_two_nearly_equal_states_become_one_state():
    rng = np.random.default_rng(0)
    poles = np.array([0.9, 0.9001, 0.5]) * np.exp(1j * np.array([0.3, 0.3001, 2]))
    system = sp.DiagonalSystem.from_discrete(poles, [[1, 1], [1, 1], [1, -1]], rng.normal(size=(2, 3)), gain=2)
    small = balanced({"ssm": system}, 1 / 3)["ssm"]
    assert small.n == 2
    u = rng.normal(size=(200, 2))
    lost = {
        name: np.linalg.norm(one.simulate(u) - system.simulate(u)) / np.linalg.norm(system.simulate(u))
        for name, one in {
            "balanced": small,
            "last": sp.make_plan({"ssm": system}, 1 / 3).apply({"ssm": system})["ssm"],
        }.items()
    }
    assert lost["balanced"] < 1e-3 < 1e-1 < lost["last"]


@kinds
@pytest.mark.parametrize("discretization", ["zoh", "bilinear"])
@pytest.mark.parametrize("pole_form", ["exp", "free", "clip"])
def test_the_model_computes_the_truncated_systems(family, bidirectional, delay, discretization, pole_form):
    net = model(family, bidirectional, delay, discretization=discretization, pole_form=pole_form).at_rate(2)
    expected = balanced(sp.read(net), 0.4)
    small = sp.prune(net, 0.4, sp.BALANCED)
    u = torch.randn(1, 40, 4, dtype=torch.float64)
    assert sum(small.config.states) < sum(net.config.states)
    for path, system in sp.read(small).items():
        assert system.n == expected[path].n
        module = small.get_submodule(path)
        with torch.no_grad():
            y = (module(u) - module.D * u)[0].numpy()
        np.testing.assert_allclose(y, expected[path].simulate(u[0].numpy()), atol=1e-9)
    with torch.no_grad():
        assert torch.isfinite(small(torch.randn(2, 30, 2, dtype=torch.float64))).all()


@kinds
def test_at_ratio_zero_the_model_stays_as_it_is(family, bidirectional, delay):
    net, x = model(family, bidirectional, delay), torch.randn(2, 30, 2, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(sp.prune(net, 0.0, sp.BALANCED)(x), net(x))


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_plans_are_saved_loaded_and_replayed(family, tmp_path):
    net = model(family).float()
    found = sp.read(net)
    plan = sp.make_plan(found, 0.5, sp.BALANCED)
    plan.save(tmp_path / "plan.safetensors")
    again = sp.Plan.load(tmp_path / "plan.safetensors")
    assert str(again) == str(plan)
    assert plan.title.startswith("balanced at 5")
    assert plan.title.endswith("new states")
    assert sp.certify(again, found) == sp.certify(plan, found)
    for path, small in plan.apply(found).items():
        assert again.apply(found)[path].fingerprint == small.fingerprint
    x = torch.randn(2, 30, 2)
    one, other = sp.shrink(net, plan), sp.shrink(net, again)
    assert one.config.states == tuple(int(keep.sum()) for keep in again.keep.values())
    assert one.history == (f"pruned by {plan.title}",)
    with torch.no_grad():
        assert torch.equal(one(x), other(x))
        sp.save(one, tmp_path / "small.safetensors")
        assert torch.equal(sp.load(tmp_path / "small.safetensors").eval()(x), one(x))
    with pytest.raises(sp.InputError, match="not those the plan was made for"):
        sp.shrink(model(family, discretization="bilinear").float(), again)


def test_a_plan_with_new_states_of_another_width_is_refused():
    found = cases()["mimo"]
    plan = sp.make_plan(found, 0.4, sp.BALANCED)
    other = truncate(layer(np.random.default_rng(0), 12, width=2), plan.keep["layer0"])
    with pytest.raises(
        sp.InputError, match=r"new states of layer 'layer0' are those of .*2 -> 2.*the layer is .*3 -> 3"
    ):
        replaced(plan, "layer0", other).apply(found)
    with pytest.raises(sp.InputError, match="'layer0' keeps 6 states, so it needs a system of 6 new states"):
        replaced(plan, "layer0", Reduced(found["layer0"], 0.0))
    with pytest.raises(sp.InputError, match=r"a finite bound; got .* nan"):
        replaced(plan, "layer0", Reduced(plan.new["layer0"].system, float("nan")))


def replaced(plan, path, reduced):
    plan = copy.copy(plan)
    object.__setattr__(plan, "new", plan.new | {path: reduced})
    plan.__post_init__()
    return plan


def test_limits_hold_for_new_states():
    found = cases()["mimo"]
    limited = sp.make_plan(found, 0.6, sp.BALANCED, limits=sp.Limits(exclude=["layer1"]))
    assert limited.new.keys() == {"layer0"}
    assert limited.apply(found)["layer1"].fingerprint == found["layer1"].fingerprint
    capped = sp.make_plan(found, 0.9, sp.BALANCED, limits=sp.Limits(caps=0.5))
    assert all(small.n >= found[path].n // 2 - 1 for path, small in capped.apply(found).items())


@pytest.mark.parametrize("kind", ["mimo", "no pairs", "channels"])
@pytest.mark.parametrize("multiple", [3, 4, 8])
def test_new_states_are_rounded_up_with_silent_ones(kind, multiple):
    """A system with real poles may need fewer states than it was given."""
    found, real = (
        cases()[kind],
        sp.DiagonalSystem.from_discrete(
            np.linspace(0.2, 0.9, 16), np.ones((16, 1)), np.cos(np.arange(16))[None], gain=2
        ),
    )
    found |= {"real": real}
    plan = sp.make_plan(found, 0.45, sp.BALANCED, limits=sp.Limits(round_to=multiple))
    for path, small in plan.apply(found).items():
        assert small.states % multiple == 0 or small.n == found[path].n
        assert small.n == plan.keep[path].sum()
    certificates = sp.certify(plan, found)
    assert all(certificate.exact <= certificate.bound for certificate in certificates.values())


def test_each_real_pole_takes_a_state():
    """Two real poles in one state's room: the truncated system has one of them, not a pair that is none."""
    system = sp.DiagonalSystem.from_discrete([0.9, 0.5], [[1], [1]], [[1, -1]], gain=2)
    small = balanced({"ssm": system}, 0.5)["ssm"]
    assert small.n == 1
    assert small.poles.imag == 0


def test_budgets_find_the_ratio():
    net = model("s5")
    for budget in (
        sp.max_energy(0.05),
        sp.max_gain(0.2),
        sp.max_memory(sum(t.numel() * 8e-6 for t in net.parameters())),
    ):
        small = sp.prune(net, budget, sp.BALANCED)
        assert sum(small.config.states) <= sum(net.config.states)
    found = sp.read(net)
    assert sum(sp.prune(net, sp.max_gain(0.2), sp.BALANCED).config.states) < sum(system.n for system in found.values())


def test_systems_that_cannot_be_balanced_are_refused():
    unstable = sp.DiagonalSystem.from_discrete([1.1, 0.5], [[1], [1]], [[1, 1]])
    with pytest.raises(sp.InputError, match=r"Layer 'ssm': State 0 has a pole on or outside .* such as LAST"):
        sp.make_plan({"ssm": unstable}, 0.5, sp.BALANCED)
    twins = sp.DiagonalSystem.from_discrete([0.5] * 3, np.eye(3), np.eye(3) + 0.1)
    assert balanced({"ssm": twins}, 0.4)["ssm"].n <= 1


def test_a_silent_layer_stays_silent():
    silent = sp.DiagonalSystem.from_discrete([0.9, 0.5], [[0], [0]], [[1, 1]])
    small = balanced({"ssm": silent}, 0.5)["ssm"]
    assert small.n == 1
    assert not small.response(THETA).any()


def test_what_needs_the_old_states_is_refused():
    net = model("s5")
    found = sp.read(net)
    plan = sp.make_plan(found, 0.5, sp.BALANCED)
    with pytest.raises(
        sp.InputError, match="'balanced' makes new states in place of the old, so there is nothing to sil"
    ):
        sp.mask(net, plan)
    with pytest.raises(sp.InputError, match="so there are none on which it could agree"):
        sp.make_plan(found, 0.5).difference(plan)
    with pytest.raises(sp.InputError, match="a re-fit needs states that were in the model"):
        refit_each_layer(plan, found)
    with pytest.raises(sp.InputError, match=r"'balanced' makes new states from a model's parameters.*take the surgeon"):
        sp.prune(net, 0.5, sp.BALANCED, data=[torch.randn(4, 20, 2, dtype=torch.float64)])
    with pytest.raises(sp.InputError, match="for which an optimiser has no history"):
        Schedule(0.5, method="balanced")


HOLD = ["s5", "s4d", "s5_pytorch", "flax_s5", "minimal_lru"]
CONVERT = ["annotated_s4d", "state_spaces_s4d", "state_spaces_diag", "state_spaces_dplr"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", HOLD)
def test_layers_of_other_codes_compute_the_new_systems(family, seed):
    torch.manual_seed(seed)
    adapter, net, run, _ = getattr(families, family)(np.random.default_rng(seed))
    check_new_states(adapter, net, run, sp.read(net, adapter=adapter))


@pytest.mark.parametrize("rule", ["zoh", "bilinear", "dirac", "no_discretization"])
def test_of_lrnnx_the_event_layer_holds_new_states(rule):
    rng = np.random.default_rng(0)
    A = np.stack([-np.exp(rng.normal(size=6)), rng.normal(size=6) * 10], 1)
    if rule == "no_discretization":
        poles = np.exp(0.1 * (A[:, 0] + 1j * A[:, 1]))
        A = np.stack([poles.real, poles.imag], 1)
    arrays = {"A": A, "B": rng.normal(size=(6, 4, 2)), "C": rng.normal(size=(4, 6, 2))}
    event = families.LrnnxLayer(arrays | {"D": rng.normal(size=4), "log_dt": rng.uniform(-3, -1, 6)}, rule, True, 2.0)
    net = torch.nn.Sequential(event.double())
    check_new_states(None, net, families.torch_run, sp.read(net))


def check_new_states(adapter, net, run, found):
    plan = sp.make_plan(found, 0.4, sp.BALANCED)
    small, rng = sp.shrink(net, plan, adapter=adapter), np.random.default_rng(0)
    assert plan.new
    for path, system in plan.apply(found).items():
        u = rng.normal(size=(24, system.inputs))
        D = run(net, path, u) - found[path].simulate(u)
        expected = system.simulate(u) + D
        np.testing.assert_allclose(run(small, path, u), expected, atol=2e-4 * np.abs(expected).max())
        assert layers_of(small, adapter)[path].read().n == system.n


@pytest.mark.parametrize("family", CONVERT)
def test_families_that_cannot_hold_new_states_say_what_can(family):
    torch.manual_seed(0)
    adapter, net, _, _ = getattr(families, family)(np.random.default_rng(0))
    found = sp.read(net, adapter=adapter)
    plan = sp.make_plan(found, 0.5, sp.BALANCED)
    path = next(iter(plan.new))
    with pytest.raises(
        sp.InputError, match=rf"Layer '{path}': New states cannot be written .*sp\.convert\(model, plan\)"
    ):
        sp.shrink(net, plan, adapter=adapter)
    for path, ours in sp.convert(net, plan, adapter=adapter).items():
        expected = plan.apply(found)[path]
        u = np.random.default_rng(0).normal(size=(24, expected.inputs))
        with torch.no_grad():
            y = (ours(torch.from_numpy(u)[None]) - ours.D * torch.from_numpy(u))[0].numpy()
        wanted = expected.simulate(u)
        np.testing.assert_allclose(y, wanted, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("family", ["s5", "s4d"])
@pytest.mark.parametrize("discretization", ["zoh", "bilinear"])
def test_layers_with_clipped_poles_hold_slower_ones(family, discretization):
    """Steps get shorter, since no pole may have a real part above -1e-4."""
    net = model(family, discretization=discretization, pole_form="clip").at_rate(2)
    (path, ours), *_ = layers_of(net).items()
    before = ours.read()
    slow = replace(before, log_poles=before.log_poles * 0.9)
    slow = replace(slow, log_poles=np.where(np.arange(slow.n) % 3 == 0, -1e-9 + 0.1j, slow.log_poles))
    ours.write(slow)
    after = layers_of(net)[path].read()
    np.testing.assert_allclose(after.log_poles, slow.log_poles, rtol=1e-9)
    np.testing.assert_allclose(after.response(THETA), slow.response(THETA), rtol=1e-6)
    with pytest.raises(sp.InputError, match="holds stable poles alone"):
        ours.write(replace(slow, log_poles=slow.log_poles + 1))


def test_a_layer_with_a_real_B_and_one_of_a_users_family_are_refused():
    _, net, _, _ = families.lrnnx_s5(np.random.default_rng(0))
    with pytest.raises(sp.InputError, match=r"Layer '0': The layer holds a real B, .*sp\.convert"):
        sp.prune(net, 0.5, sp.BALANCED)

    class Another(sp.Adapter):
        name = "another"

        def layers(self, net):
            return {"ssm": net}

        def read(self, layer):
            return sp.DiagonalSystem.from_discrete([0.9, 0.5], [[1], [1]], [[1, 1]])

        def mask(self, layer, keep):
            raise NotImplementedError

        def shrink(self, layer, keep):
            raise NotImplementedError

    with pytest.raises(sp.InputError, match=r"Layer 'ssm': New states cannot be written .* of the family another"):
        sp.prune(object(), 0.5, sp.BALANCED, adapter=Another())


@pytest.mark.parametrize("family", ["s5", "s4d"])
def test_the_smaller_model_streams_and_runs_in_c(family, tmp_path):
    torch.manual_seed(0)
    small = sp.prune(model(family).float(), 0.5, sp.BALANCED)
    x = torch.randn(3, 25, 2)
    with torch.no_grad():
        expected = small(x)
        _, state = small.stream(x[:, :10])
        streamed, _ = small.stream(x[:, 10:], state)
    torch.testing.assert_close(streamed[:, -1], expected, atol=1e-5, rtol=0)
    sp.export_c(small, tmp_path / "small.c")
    assert (tmp_path / "small.h").is_file()
    fast = sp.compile(small)
    torch.testing.assert_close(fast(x), expected, atol=1e-5, rtol=0)
    stream = fast.stream(3)
    for step in x.unbind(1):
        last = stream(step)
    torch.testing.assert_close(last, expected, atol=1e-5, rtol=0)


def test_a_layer_too_large_for_the_machine_is_refused(monkeypatch):
    monkeypatch.setattr(pruning, "physical_memory", lambda: 1e3)
    with pytest.raises(sp.InputError, match=r"this machine has 0\.0: .*Prune by LAST without data"):
        sp.prune(model("s5"), 0.5, sp.BALANCED)
    sp.prune(model("s5"), 0.5)


def test_weights_of_8_bits_become_floats_again():
    small = sp.prune(sp.quantize(model("s5").float(), bits=8), 0.5, sp.BALANCED)
    assert small.grid is None
    assert small.history[-1].endswith("in floats again")


def test_the_command_line(ssmprune, tmp_path):
    sp.save(model("s5").float(), tmp_path / "model.safetensors")
    whole, plan, direct, again = (tmp_path / f"{name}.safetensors" for name in ("model", "plan", "direct", "again"))
    first = ssmprune(
        *(
            "prune",
            whole,
            "--ratio",
            0.5,
            "--method",
            "balanced",
            "--certify",
            "--plan",
            plan,
            "--out",
            direct,
            "--json",
        )
    )
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    assert told["method"] == "balanced"
    assert all(figures["exact"] <= figures["bound"] for figures in told["certificates"].values())
    assert ssmprune("prune", whole, "--from-plan", plan, "--out", again).returncode == 0
    for name, tensor in sp.load(direct).state_dict().items():
        assert torch.equal(tensor, sp.load(again).state_dict()[name])
    np.save(tmp_path / "x.npy", np.zeros((4, 20, 2), np.float32))
    refused = ssmprune(
        *("prune", whole, "--ratio", 0.5, "--method", "balanced"),
        *("--calibrate", tmp_path / "x.npy", "--out", tmp_path / "none.safetensors"),
    )
    assert refused.returncode == 2
    assert "leave out data" in refused.stderr
    assert not (tmp_path / "none.safetensors").exists()
