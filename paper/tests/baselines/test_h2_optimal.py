from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ssmprune as sp
from calibrated import kinds, model
from reference import channels
from ssmprune_paper.baselines.h2_optimal import descend, h2_distance, h2_optimal, h2_optimal_model
from strategies import systems


def balanced_truncation(found, ratio):
    return sp.make_plan(found, ratio, sp.BALANCED).apply(found)


def impulse_responses(system, length):
    """gain Re(C λ^k B) of every direction, a loop over steps: (length, directions, outputs, inputs)."""
    responses, powers = [], np.ones(system.n, complex)
    for _ in range(length):
        responses.append(system.gain * (system.C * powers @ system.B).real)
        powers = powers * system.poles
    return np.array(responses)


def reference_distance(one, other, length=2000):
    if one.channel is None:
        return np.linalg.norm(impulse_responses(one, length) - impulse_responses(other, length))
    pairs = zip(channels(one), channels(other), strict=True)
    return np.linalg.norm([reference_distance(a, b, length) for a, b in pairs])


def size_of(system):
    """The system's own norm."""
    return h2_distance(replace(system, C=0 * system.C), system)


fast = systems(max_n=8).filter(lambda system: np.abs(system.poles).max() < 0.98)


@settings(max_examples=40)
@given(fast, st.integers(1, 10))
def test_the_distance_is_that_of_the_impulse_responses(system, tenths):
    small = balanced_truncation({"ssm": system}, tenths / 10)["ssm"]
    expected = reference_distance(small, system)
    assert h2_distance(small, system) == pytest.approx(expected, rel=1e-5, abs=1e-6 * size_of(system))


@pytest.mark.slow
@settings(max_examples=60)
@given(systems(max_n=8), st.integers(1, 10))
def test_it_is_never_further_than_balanced_truncation_and_stable(system, tenths):
    ratio = tenths / 10
    balanced, small = balanced_truncation({"ssm": system}, ratio)["ssm"], h2_optimal({"ssm": system}, ratio)["ssm"]
    assert small.n == balanced.n
    assert (small.channel is None) == (balanced.channel is None)
    assert not small.unstable_states.any()
    assert h2_distance(small, system) <= h2_distance(balanced, system) * (1 + 1e-9) + 1e-9 * size_of(system)


def test_it_is_nearer_by_the_sum_over_steps_too():
    rng = np.random.default_rng(1)
    poles = rng.uniform(0.3, 0.95, 10) * np.exp(1j * rng.uniform(0, np.pi, 10))
    B, C = (rng.normal(size=shape) + 1j * rng.normal(size=shape) for shape in ((10, 2), (2, 10)))
    system = sp.DiagonalSystem.from_discrete(poles, B, C, gain=2)
    balanced, small = balanced_truncation({"ssm": system}, 0.7)["ssm"], h2_optimal({"ssm": system}, 0.7)["ssm"]
    assert small.n == balanced.n == 3
    assert reference_distance(small, system) < 0.99 * reference_distance(balanced, system)


def test_an_optimum_meets_the_interpolation_conditions():
    """At an optimum G(1/conj λ) and G'(1/conj λ) agree on B and C of every state (Meier and Luenberger)."""
    rng = np.random.default_rng(2)
    poles = rng.uniform(0.3, 0.9, 6) * np.exp(1j * rng.uniform(0.2, 3, 6))
    B, C = (rng.normal(size=shape) + 1j * rng.normal(size=shape) for shape in ((6, 2), (3, 6)))
    system = sp.DiagonalSystem.from_discrete(poles, B, C, gain=2)
    start = balanced_truncation({"ssm": system}, 0.5)["ssm"]
    small = descend(start, system, steps=3000)
    away = []
    for found in (start, small):
        for pole, b, c in zip(found.poles, found.B, found.C[0].T, strict=True):
            error = transfer(system, pole.conj()) - transfer(found, pole.conj())
            scale = np.linalg.norm(transfer(system, pole.conj()))
            right, left = error @ b.conj() / np.linalg.norm(b), c.conj() @ error / np.linalg.norm(c)
            away.append(max(np.linalg.norm(right), np.linalg.norm(left)) / scale)
    before, after = np.split(np.array(away), 2)
    assert after.max() < 1e-4 < before.max()


def transfer(system, w):
    """Σ_k h_k w^k of the real system, at a point w = 1/z inside the unit circle."""
    one_half = (system.C[0] / (1 - system.poles * w)) @ system.B
    other_half = (system.C[0].conj() / (1 - system.poles.conj() * w)) @ system.B.conj()
    return system.gain / 2 * (one_half + other_half)


@pytest.mark.slow
@kinds
def test_the_model_computes_the_reduced_systems(family, bidirectional, delay):
    net = model(family, bidirectional, delay)
    expected = h2_optimal(sp.read(net), 0.4)
    small = h2_optimal_model(net, 0.4)
    u = torch.randn(1, 40, 4, dtype=torch.float64)
    assert sum(small.config.states) < sum(net.config.states)
    for layer, system in sp.read(small).items():
        assert system.n == expected[layer].n
        module = small.get_submodule(layer)
        with torch.no_grad():
            y = (module(u) - module.D * u)[0].numpy()
        np.testing.assert_allclose(y, expected[layer].simulate(u[0].numpy()), atol=1e-9)


@kinds
def test_nothing_pruned_is_the_model_itself(family, bidirectional, delay):
    net, x = model(family, bidirectional, delay), torch.randn(2, 30, 2, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(h2_optimal_model(net, 0)(x), net(x))


def test_what_cannot_be_balanced_is_refused():
    unstable = sp.DiagonalSystem.from_discrete([1.1, 0.5], [[1], [1]], [[1, 1]])
    with pytest.raises(sp.InputError, match="'ssm': State 0 has a pole on or outside the unit circle"):
        h2_optimal({"ssm": unstable}, 0.5)
