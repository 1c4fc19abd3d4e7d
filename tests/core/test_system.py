import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import states
from ssmprune import DiagonalSystem, InputError
from ssmprune.core import bilinear, zoh
from strategies import systems


@given(systems(), st.integers(0, 2**32 - 1))
def test_simulate_is_the_recurrence(system, seed):
    u = np.random.default_rng(seed).normal(size=(7, system.inputs))
    expected = np.zeros((7, system.outputs))
    for i in range(system.n):
        drive = u @ system.B[i] if system.channel is None else u[:, system.channel[i]] * system.B[i, 0]
        forward = states(system.poles[i : i + 1], drive[:, None])[:, 0]
        backward = states(system.poles[i : i + 1], drive[::-1, None])[::-1, 0]
        backward = np.append(backward, 0)[system.backward_delay : system.backward_delay + 7]
        for C, x in zip(system.C, (forward, backward), strict=False):
            y = system.gain * (x[:, None] * C[:, i]).real
            if system.channel is None:
                expected += y
            else:
                expected[:, system.channel[i]] += y[:, 0]
    np.testing.assert_allclose(system.simulate(u), expected, atol=1e-9 * (1 + np.abs(expected).max()))


@given(systems())
def test_response_is_the_transform_of_the_impulse_response(system):
    system = system.select(np.abs(system.poles) < 0.9)
    length, theta = 400, np.array([0.0, 0.7, -2.0, np.pi])
    for j in range(system.inputs):
        u = np.zeros((2 * length + 1, system.inputs))
        u[length, j] = 1.0  # in the middle, so that both directions have room to decay
        lags = np.arange(-length, length + 1)
        expected = np.exp(-1j * theta[:, None] * lags) @ system.simulate(u)
        response = system.response(theta)
        if system.channel is None:
            np.testing.assert_allclose(response[:, :, j], expected, atol=1e-9)
        else:
            np.testing.assert_allclose(response[:, j], expected[:, j], atol=1e-9)


@given(systems(), st.integers(0, 2**32 - 1))
def test_selected_states_and_the_rest_add_up(system, seed):
    rng = np.random.default_rng(seed)
    keep, u = rng.random(system.n) < 0.5, rng.normal(size=(6, system.inputs))
    parts = system.select(keep).simulate(u) + system.select(~keep).simulate(u)
    np.testing.assert_allclose(parts, system.simulate(u), atol=1e-8)


@pytest.mark.parametrize("discretization", [zoh, bilinear])
def test_discretizations_agree_with_their_definitions(discretization):
    rng = np.random.default_rng(0)
    lam, step = -np.exp(rng.normal(size=50)) + 30j * rng.normal(size=50), np.exp(rng.uniform(-7, -1, 50))
    log_poles, factor = discretization(lam, step)
    if discretization is zoh:
        poles, expected = np.exp(lam * step), (np.exp(lam * step) - 1) / lam
    else:
        poles, expected = (1 + lam * step / 2) / (1 - lam * step / 2), step / (1 - lam * step / 2)
    np.testing.assert_allclose(np.exp(log_poles), poles, rtol=1e-12)
    np.testing.assert_allclose(factor, expected, rtol=1e-10)


def test_slow_poles_keep_their_digits():
    lam, step = np.array([-1e-3 + 0j]), np.array([1e-9])
    for discretization in (zoh, bilinear):
        log_poles, _ = discretization(lam, step)
        np.testing.assert_allclose(-np.expm1(log_poles.real), 1e-12, rtol=1e-9)


def test_a_pole_at_zero_is_legal():
    system = DiagonalSystem.from_discrete([0, 0.5], [[1], [1]], [[3, 0]])
    assert system.log_poles[0].real == -np.inf
    np.testing.assert_array_equal(system.simulate([[1.0], [0.0]]), [[3.0], [0.0]])
    np.testing.assert_allclose(system.response([0.3]), [[[3.0]]])
    np.testing.assert_allclose(np.exp(bilinear(np.array([-2 + 0j]), np.array([1.0]))[0]), 0)


def test_arrays_are_frozen_copies():
    B = np.ones((1, 1), complex)
    system = DiagonalSystem.from_discrete([0.5], B, [[1]])
    B[0] = 7
    assert system.B[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        system.B[0] = 7


def test_fingerprint_sees_every_number_and_no_rounding_noise():
    base = DiagonalSystem.from_discrete([0.5, 0.25], [[1], [2]], [[1, 2]])
    assert base.fingerprint == DiagonalSystem.from_discrete([0.5, 0.25], [[1], [2]], [[1, 2 + 1e-13]]).fingerprint
    changed = [
        DiagonalSystem.from_discrete([0.5, 0.26], [[1], [2]], [[1, 2]]),
        DiagonalSystem.from_discrete([0.5, 0.25], [[1], [3]], [[1, 2]]),
        DiagonalSystem.from_discrete([0.5, 0.25], [[1], [2]], [[1, 3]]),
        DiagonalSystem.from_discrete([0.5, 0.25], [[1], [2]], [[1, 2]], gain=2),
        DiagonalSystem.from_discrete([0.5, 0.25], [[1], [2]], [[1, 2]], channel=[0, 0], channels=1),
    ]
    assert len({base.fingerprint, *(system.fingerprint for system in changed)}) == 6


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"B": [[1]]}, r"B \(n, inputs\); got log_poles \(2,\) and B \(1, 1\)"),
        ({"C": [[1]]}, r"C \(directions, outputs, n\).*got C \(1, 1, 1\)"),
        ({"C": np.ones((3, 1, 2))}, "1 or 2 directions"),
        ({"poles": [0.5, np.nan]}, "State 1 has NaN or infinite"),
        ({"B": [[np.inf], [1]]}, "State 0 has NaN or infinite"),
        ({"gain": 3}, "gain is 1, or 2"),
        ({"backward_delay": 2}, "backward_delay is 0 or 1; got 2"),
        ({"channel": [0, 5], "channels": 2}, r"0\.\.1 \(channels = 2\); got 0\.\.5"),
        ({"channel": [0], "channels": 2}, "needs channel"),
    ],
)
def test_bad_systems_are_refused_with_a_reason(fields, message):
    good = {"poles": [0.5, 0.9], "B": [[1], [1]], "C": [[1, 1]]}
    with pytest.raises(InputError, match=message):
        DiagonalSystem.from_discrete(**(good | fields))


@pytest.mark.parametrize(("step", "message"), [([0.1], "shape"), (0.0, "positive"), (np.nan, "positive")])
def test_bad_steps_are_refused(step, message):
    with pytest.raises(InputError, match=message):
        DiagonalSystem.from_continuous([-1, -2], [[1], [1]], [[1, 1]], step)


def test_unstable_states_are_marked():
    system = DiagonalSystem.from_discrete([1.5, 0.5], [[1], [1]], [[1, 1]])
    assert system.unstable_states.tolist() == [True, False]
