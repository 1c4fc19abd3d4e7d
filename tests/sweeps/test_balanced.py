import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ssmprune as sp
from calibrated import kinds, model
from reference import channels
from ssmprune.core.norms import hinf
from ssmprune.sweeps.balanced import Balanced, balanced_truncation, rewrite
from strategies import systems


def balanced_model(net, ratio, adapter=None):
    return rewrite(net, lambda systems: balanced_truncation(systems, ratio), adapter)


def realisation(system, outputs_of=slice(None)):
    """Real A, B and C (of all directions, stacked) of one MIMO system, x = [Re x_1, ..., Im x_1, ...]."""
    A = np.diag(system.poles)
    C = np.concatenate(system.C[outputs_of])
    return (
        np.block([[A.real, -A.imag], [A.imag, A.real]]),
        np.concatenate([system.B.real, system.B.imag]),
        system.gain * np.concatenate([C.real, -C.imag], axis=1),
    )


def reference_sigma(system):
    """Hankel singular values from Gramians summed step by step."""
    A, B, C = realisation(system)
    P, Q, power = np.zeros_like(A), np.zeros_like(A), np.eye(len(A))
    for _ in range(400):
        P += power @ B @ B.T @ power.T
        Q += power.T @ C.T @ C @ power
        power = A @ power
    return np.sort(np.sqrt(np.abs(np.linalg.eigvals(P @ Q))))[::-1]


fast = systems(max_n=6).filter(lambda system: np.abs(system.poles).max() < 0.97)


@settings(max_examples=40)
@given(fast)
def test_singular_values_are_those_of_the_gramians(system):
    found = Balanced.of("ssm", system).sigma
    alone = [system] if system.channel is None else list(channels(system))
    for sigma, one in zip(found, alone, strict=True):
        expected = reference_sigma(one) if one.n else np.zeros(0)
        np.testing.assert_allclose(sigma[: 2 * one.n], expected, atol=1e-6 * max([1, *expected]))
        assert not sigma[2 * one.n :].any()


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
    small = balanced_truncation({"ssm": system}, tenths / 10)["ssm"]
    sigma = Balanced.of("ssm", system).sigma
    assert small.n <= max(system.n * (10 - tenths) // 10, 1)
    if small.channel is None:
        kept = [2 * small.n - np.count_nonzero(is_real(small))] if small is not system else [2 * system.n]
    else:
        real = np.bincount(small.channel, is_real(small), small.channels).astype(int)
        kept = 2 * np.bincount(small.channel, minlength=small.channels) - real
        kept = kept if small is not system else [sigma.shape[1]] * small.channels
    bound = max(2 * values[count:].sum() for values, count in zip(sigma, kept, strict=True))
    for before, after in zip(halves(system), halves(small), strict=True):
        assert hinf(difference(before, after))[0] <= bound * (1 + 1e-6) + 1e-5 * sigma.max()


def test_two_nearly_equal_states_become_one_state():
    rng = np.random.default_rng(0)
    poles = np.array([0.9, 0.9001, 0.5]) * np.exp(1j * np.array([0.3, 0.3001, 2]))
    system = sp.DiagonalSystem.from_discrete(poles, [[1, 1], [1, 1], [1, -1]], rng.normal(size=(2, 3)), gain=2)
    small = balanced_truncation({"ssm": system}, 1 / 3)["ssm"]
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
    expected = balanced_truncation(sp.read(net), 0.4)
    small = balanced_model(net, 0.4)
    u = torch.randn(1, 40, 4, dtype=torch.float64)
    assert sum(small.config.states) < sum(net.config.states)
    for layer, system in sp.read(small).items():
        assert system.n == expected[layer].n
        module = small.get_submodule(layer)
        with torch.no_grad():
            y = (module(u) - module.D * u)[0].numpy()
        np.testing.assert_allclose(y, expected[layer].simulate(u[0].numpy()), atol=1e-9)
    with torch.no_grad():
        assert torch.isfinite(small(torch.randn(2, 30, 2, dtype=torch.float64))).all()


@kinds
def test_at_ratio_zero_the_model_stays_as_it_is(family, bidirectional, delay):
    net, x = model(family, bidirectional, delay), torch.randn(2, 30, 2, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(balanced_model(net, 0)(x), net(x))


def test_truncated_models_save_and_load(tmp_path):
    small = balanced_model(model("s4d").float(), 0.5)
    sp.save(small, tmp_path / "small.safetensors")
    x = torch.randn(2, 30, 2)
    with torch.no_grad():
        assert torch.equal(sp.load(tmp_path / "small.safetensors").eval()(x), small(x))


def test_each_real_pole_takes_a_state():
    """Two real poles in one state's room: the truncated system has one of them, not a pair that is none."""
    system = sp.DiagonalSystem.from_discrete([0.9, 0.5], [[1], [1]], [[1, -1]], gain=2)
    small = balanced_truncation({"ssm": system}, 0.5)["ssm"]
    assert small.n == 1
    assert small.poles.imag == 0


def test_systems_that_cannot_be_balanced_are_refused():
    unstable = sp.DiagonalSystem.from_discrete([1.1, 0.5], [[1], [1]], [[1, 1]])
    with pytest.raises(sp.InputError, match="'ssm' has unstable poles"):
        balanced_truncation({"ssm": unstable}, 0.5)
    silent = sp.DiagonalSystem.from_discrete([0.9, 0.5], [[0], [0]], [[1, 1]])
    with pytest.raises(sp.InputError, match="'ssm' has no truncated system of 1 states"):
        balanced_truncation({"ssm": silent}, 0.5)
    with pytest.raises(sp.InputError, match="ratio is the share"):
        balanced_truncation({"ssm": silent}, 1.5)


def test_a_family_that_cannot_take_new_states_is_refused():
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
        balanced_model(object(), 0.5, adapter=Another())
