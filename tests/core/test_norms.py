from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2_norms import h2, pair_h2, state_h2
from reference import hinf_score
from ssmprune import DiagonalSystem, InputError
from ssmprune.core.norms import ORDER, RTOL, _bank_of_system, _cuts, hinf, pair_hinf, state_hinf
from strategies import systems

ORACLE = np.load(Path(__file__).parents[1] / "golden" / "hinf_oracle.npz")
CERTIFIED = 1 + 1.001 * RTOL  # the promise, and rounding
some = settings(max_examples=25)


@st.composite
def slowed(draw):
    """A system whose states are up to a million times slower, fed less so that no state drowns the others."""
    system = draw(systems(max_n=8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    factor = 10.0 ** rng.uniform(-6, 0, system.n)
    log_poles = factor * system.log_poles.real + 1j * rng.choice([1, 1e-3, 0, -20], system.n) * system.log_poles.imag
    return replace(system, log_poles=log_poles, B=system.B * factor[:, None] ** rng.uniform(0, 1))


def gains(system, theta):
    """Largest singular value of the response: for multi-SISO, a diagonal matrix, its largest entry."""
    response = system.response(theta)
    return np.abs(response).max(1) if system.channel is not None else np.linalg.norm(response, 2, axis=(1, 2))


def sampled_hinf(system):
    """The definition: the largest gain over frequencies, sampled on every pole's own scale, then zoomed in."""
    angle, decay = system.log_poles.imag, np.minimum(-system.log_poles.real, 1)
    near = np.concatenate([sign * angle + decay * np.sinh(np.linspace(-14, 14, 57))[:, None] for sign in (1, -1)])
    theta = np.unique(np.concatenate([near.ravel() % (2 * np.pi), np.linspace(0, np.pi, 181)]))
    theta = theta[theta <= np.pi]
    for _ in range(5):
        top = np.clip(np.argsort(gains(system, theta))[-8:], 1, len(theta) - 2)
        zoomed = [np.linspace(theta[k - 1], theta[k + 1], 25) for k in top]
        theta = np.unique(np.concatenate([theta[top], *zoomed]))
    return gains(system, theta).max()


def alone(system, i):
    return system.select(np.arange(system.n) == i)


def energies(system):
    """Squared Frobenius norm of the impulse response, each input's impulse in the middle of a long silence."""
    length, total = 400, 0.0
    for j in range(system.inputs):
        u = np.zeros((2 * length + 1, system.inputs))
        u[length, j] = 1.0
        total += np.sum(system.simulate(u) ** 2)
    return total


@pytest.mark.parametrize("name", [f"sys{i:02d}" for i in range(50)])
def test_norms_equal_the_oracle(name):
    expected = {key.split("/")[1]: ORACLE[key] for key in ORACLE if key.startswith(name)}
    system = DiagonalSystem.from_discrete(expected["Lambda_bar"], expected["B_bar"], expected["C"], gain=2.0)
    norm, theta = hinf(system)
    computed = {
        "hinf_sub_complex": state_hinf(system),
        "hinf_sub_pair": pair_hinf(system),
        "hinf_whole_real": norm,
        "h2_sub_complex": state_h2(system),
        "h2_sub_pair": pair_h2(system),
        "h2_whole_real": h2(system),
    }
    for key, value in computed.items():
        np.testing.assert_allclose(value, expected[key], rtol=1e-6, err_msg=key)
    np.testing.assert_allclose(gains(system, [theta]), expected["hinf_whole_real"], rtol=1e-6)


@some
@given(slowed())
def test_hinf_is_attained_and_no_frequency_exceeds_it(system):
    norm, theta = hinf(system)
    assert 0 <= theta <= np.pi
    assert sampled_hinf(system) <= norm * CERTIFIED
    np.testing.assert_allclose(gains(system, [theta]), norm, rtol=1e-9)


@some
@given(slowed())
def test_pair_hinf_is_the_norm_of_each_state_alone(system):
    norms = pair_hinf(system)
    for i in {int(norms.argmin()), int(norms.argmax())}:
        np.testing.assert_allclose(norms[i], hinf(alone(system, i))[0], rtol=2 * RTOL)
        assert sampled_hinf(alone(system, i)) <= norms[i] * CERTIFIED


def wide_system(directions, backward_delay=0):
    """Inputs and outputs enough for the search to go through the Gram matrix of the residues."""
    rng = np.random.default_rng(directions)
    poles = (1 - 10 ** rng.uniform(-5, -1, 20)) * np.exp(1j * rng.uniform(0, np.pi, 20))
    B = (1 - np.abs(poles))[:, None] * rng.normal(size=(20, 16, 2)).view(complex)[..., 0]
    C = rng.normal(size=(directions, 16, 20, 2)).view(complex)[..., 0]
    C[:, :, 3] = 0
    return DiagonalSystem.from_discrete(poles, B, C, gain=2.0, backward_delay=backward_delay)


@pytest.mark.parametrize("directions", [1, 2])
def test_a_wide_system_is_searched_right(directions):
    system = wide_system(directions)
    norm, theta = hinf(system)
    assert sampled_hinf(system) <= norm * CERTIFIED
    np.testing.assert_allclose(gains(system, [theta]), norm, rtol=1e-9)


@pytest.mark.parametrize("system", [wide_system(1), wide_system(2), wide_system(2, 1)])
def test_the_local_series_is_the_response(system):
    bank = _bank_of_system(system)
    theta, owner = np.linspace(0, np.pi, 30), np.zeros(30, int)
    x = 0.05 * np.abs(np.expm1(system.log_poles - 1j * theta[:, None])).min(axis=1)  # well within every pole's reach
    series = bank.frobenius @ bank.terms(theta, x, *bank.moebius(owner, theta, x), ORDER)  # (theta, rank, order)
    for s in (-1.0, 0.3, 1.0):
        expected = np.linalg.norm(system.response(theta + 2 * np.arctan(x * s)), axis=(1, 2))
        np.testing.assert_allclose(np.linalg.norm(series @ s ** np.arange(ORDER), axis=1), expected, rtol=1e-6)


@some
@given(slowed(), st.integers(0, 2**32 - 1))
def test_no_interval_with_a_larger_gain_is_settled(system, seed):
    rng = np.random.default_rng(seed)
    system = replace(system, channel=None, channels=0)
    middle = np.abs(rng.choice(system.log_poles.imag, 40) + 10 ** rng.uniform(-6, 0, 40)) % np.pi
    edges = np.clip(np.stack([middle, middle + 10 ** rng.uniform(-6, 0.5, 40)], axis=1), 0, np.pi)
    inside = np.linspace(edges[:, 0], edges[:, 1], 65)
    largest = gains(system, inside.ravel()).reshape(inside.shape)
    ends = np.stack([edges, largest[[0, -1]].T], axis=2)
    cut = _cuts(_bank_of_system(system), np.zeros(40, int), ends, largest.max(axis=0) * (1 - 1e-9))
    assert ((edges[:, 0] < cut) & (cut < edges[:, 1])).all()


@pytest.mark.parametrize("width", [1, 12])
def test_norms_see_what_two_systems_cancel(width):
    rng = np.random.default_rng(width)
    log_poles = -(10 ** rng.uniform(-5, -1, 8)) + 1j * rng.uniform(0, np.pi, 8)
    B, C = rng.normal(size=(8, width)), rng.normal(size=(1, width, 8))
    system = DiagonalSystem(log_poles, B, C, gain=2.0)
    poles, inputs = np.tile(log_poles, 2), np.tile(B, (2, 1))
    rest = DiagonalSystem(poles, inputs, np.concatenate([C, -(1 - 1e-5) * C], axis=2), gain=2.0)
    np.testing.assert_allclose(hinf(rest)[0], 1e-5 * hinf(system)[0], rtol=2 * RTOL)


@some
@given(slowed(), st.integers(0, 2**32 - 1))
def test_hinf_obeys_the_triangle_inequality(system, seed):
    keep = np.random.default_rng(seed).random(system.n) < 0.5
    norm, parts = hinf(system)[0], hinf(system.select(keep))[0] + hinf(system.select(~keep))[0]
    assert norm <= parts * CERTIFIED
    assert norm <= pair_hinf(system).sum() * CERTIFIED


@some
@given(systems(), st.sampled_from([-0.37, 1e-60, 1e60]))
def test_norms_scale_with_C(system, factor):
    scaled = replace(system, C=factor * system.C)
    np.testing.assert_allclose(hinf(scaled)[0], abs(factor) * hinf(system)[0], rtol=2 * RTOL)
    for norm in (state_hinf, state_h2, pair_h2, h2):
        np.testing.assert_allclose(norm(scaled), abs(factor) * norm(system), rtol=1e-9)


@some
@given(systems(), st.integers(0, 2**32 - 1))
def test_no_signal_gains_more_energy_than_hinf(system, seed):
    u = np.random.default_rng(seed).normal(size=(50, system.inputs))
    u[30:] = 0
    assert np.linalg.norm(system.simulate(u)) <= hinf(system)[0] * CERTIFIED * np.linalg.norm(u)


@some
@given(systems(multi_siso=(True,)))
def test_norms_of_a_multi_siso_system_come_from_its_channels(system):
    order = np.random.default_rng(0).permutation(system.n)  # states of one channel need not be neighbours
    mixed = replace(
        system,
        log_poles=system.log_poles[order],
        B=system.B[order],
        C=system.C[:, :, order],
        channel=system.channel[order],
    )
    channels = [system.select(system.channel == k) for k in range(system.channels)]
    np.testing.assert_allclose(hinf(mixed)[0], max(hinf(channel)[0] for channel in channels), rtol=2 * RTOL)
    np.testing.assert_allclose(h2(mixed), np.sqrt(sum(h2(channel) ** 2 for channel in channels)), rtol=1e-9)


@settings(max_examples=20)
@given(systems(max_n=4))
def test_h2_is_the_size_of_the_impulse_response(system):
    system = system.select(np.abs(system.poles) < 0.96)
    np.testing.assert_allclose(h2(system) ** 2, energies(system), rtol=1e-9, atol=1e-12)
    expected = [energies(alone(system, i)) for i in range(system.n)]
    np.testing.assert_allclose(pair_h2(system) ** 2, expected, rtol=1e-9, atol=1e-12)


@some
@given(systems())
def test_state_norms_are_the_papers(system):
    expected = [hinf_score(system, i) for i in range(system.n)]
    np.testing.assert_allclose(state_hinf(system) ** 2, expected, rtol=1e-9)
    energy = [hinf_score(system, i) * (1 - abs(p)) / (1 + abs(p)) for i, p in enumerate(system.poles)]
    np.testing.assert_allclose(state_h2(system) ** 2, energy, rtol=1e-9)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1.0])
@pytest.mark.parametrize("decay", [1e-6, 1e-9, 1e-12])
def test_a_pole_next_to_the_circle_keeps_its_digits(decay, angle):
    system = DiagonalSystem(np.array([-decay + 1j * angle]), [[1]], [[[1]]], gain=2.0)
    norm, theta = hinf(system)
    if angle == 1e-9:
        assert sampled_hinf(system) <= norm * CERTIFIED
    else:  # a real pole doubles with its conjugate, a fast oscillation hardly meets it
        np.testing.assert_allclose(norm * decay, 2 if angle == 0 else 1, rtol=RTOL + decay)
    assert abs(theta - angle) <= max(decay, angle / 2)


def test_a_silent_system_has_no_norm():
    silent = DiagonalSystem.from_discrete([0.5, 0.9j], np.ones((2, 3)), np.zeros((2, 3, 2)), gain=2.0)
    empty = silent.select(np.zeros(2, bool))
    no_channel = DiagonalSystem.from_discrete([], np.ones((0, 1)), np.ones((1, 0)), channel=[], channels=3)
    for system in (silent, empty, no_channel):
        assert (hinf(system)[0], h2(system)) == (0, 0)
        for norm in (state_hinf, state_h2, pair_hinf, pair_h2):
            np.testing.assert_array_equal(norm(system), np.zeros(system.n))


def test_a_real_pole_read_out_by_an_imaginary_C_is_silent_to_rounding():
    system = DiagonalSystem.from_discrete([0.9, 0.5], np.ones((2, 2)), 1j * np.ones((1, 2, 2)), gain=2.0)
    assert hinf(system)[0] <= 1e-13
    assert pair_hinf(system).max() <= 1e-13
    assert h2(system) <= 1e-7  # the root of a sum of squares that cancel


@pytest.mark.parametrize("backward_delay", [0, 1])
def test_a_pole_at_zero_forgets_at_once(backward_delay):
    fields = {"gain": 2.0, "backward_delay": backward_delay}
    system = DiagonalSystem.from_discrete([0.0], [[3, 4]], np.ones((2, 1, 1)), **fields)
    assert system.log_poles.real == -np.inf
    # y_k = 2 (b u_k + b u_{k + delay}): both directions in step at θ = 0, side by side in energy if delayed
    np.testing.assert_allclose(hinf(system)[0], 20, rtol=2 * RTOL)
    np.testing.assert_allclose(pair_hinf(system), 20, rtol=2 * RTOL)
    np.testing.assert_allclose((h2(system), pair_h2(system)[0]), np.sqrt(200) if backward_delay else 20)
    np.testing.assert_allclose((state_hinf(system), state_h2(system)), 5)


@pytest.mark.parametrize("norm", [state_hinf, state_h2, pair_hinf, pair_h2, hinf, h2])
def test_an_unstable_system_is_refused(norm):
    system = DiagonalSystem.from_discrete([0.5, 1.0, 1.1j], np.ones((3, 1)), np.ones((1, 3)))
    with pytest.raises(InputError, match="2 of 3 do not, first state 1"):
        norm(system)
    norm(system.select(~system.unstable_states))
