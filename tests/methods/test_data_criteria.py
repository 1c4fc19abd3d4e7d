"""The criteria that look at data: elimination against solving every least squares problem, energy against outputs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import ssmprune as sp
from calibrated import moments
from ssmprune.core import white_noise
from ssmprune.core.least_squares import RIDGE
from ssmprune.core.moments import Moments, weights
from ssmprune.methods import Evidence
from ssmprune.methods.criterion import elimination, energy
from strategies import systems


def evidence(found):
    return Evidence(lambda: found, np.random.default_rng(0))


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
    layout, parts = system.layout, 2 * system.directions
    W, scores, energy = weights(system), np.full(system.n, np.inf), 0.0
    for channel in range(layout.channels):
        states = np.flatnonzero(layout.channel == channel)
        gram = found.gram[channel].reshape(layout.slots * parts, -1)
        gram = gram + np.diag(np.where(gram.diagonal() > 0, RIDGE * gram.diagonal(), 1))
        w = W[channel].reshape(layout.slots * parts, -1)
        energy += np.trace(w.T @ gram @ w)
        groups = {i: [layout.slot[i] * parts + part for part in range(parts)] for i in states}
        costs = brute_force(gram, w, groups, {i for i in states if not system.unstable_states[i]})
        scores[list(costs)] = np.maximum.accumulate(list(costs.values()))
    return scores / energy


@settings(max_examples=200)
@given(systems(max_n=7), st.booleans())
def test_costs_equal_solving_the_least_squares_for_every_candidate(system, white):
    if white:
        found = white_noise(system)
    else:
        sequences = np.random.default_rng(0).normal(size=(3, 30, system.inputs))
        found = Moments(*moments(system, sequences, [range(0, 30, 2)] * 3))
    expected = brute_force_scores(system, found)
    np.testing.assert_allclose(np.exp(elimination(system, evidence(found))), expected, atol=1e-8)


def test_the_order_survives_many_exact_updates():
    rng = np.random.default_rng(0)
    n, poles = 24, 1 - 0.3 * rng.random(24) ** 3
    poles = poles * np.exp(0.2j * rng.random(n))
    system = sp.DiagonalSystem.from_discrete(poles, rng.normal(size=(n, 2)), rng.normal(size=(2, n)), gain=2)
    found = white_noise(system)
    scores, expected = elimination(system, evidence(found)), brute_force_scores(system, found)
    np.testing.assert_array_equal(np.argsort(scores), np.argsort(np.log(expected), kind="stable"))
    np.testing.assert_allclose(scores[expected > 1e-9], np.log(expected[expected > 1e-9]), rtol=1e-4)
    assert len(set(scores)) == n


@settings(max_examples=20)
@given(systems(max_n=5))
def test_the_energy_of_a_state_is_that_of_its_own_output(system):
    rng = np.random.default_rng(0)
    sequences = rng.normal(size=(2, 11, system.inputs))
    gram, cross, power = moments(system, sequences, [range(11)] * 2)
    found = energy(system, evidence(Moments(gram, cross, power)))
    for i in range(system.n):
        alone = system.select(np.arange(system.n) == i)
        expected = np.mean([np.sum(alone.simulate(u) ** 2, axis=1) for u in sequences])
        np.testing.assert_allclose(np.exp(found[i]), expected, rtol=1e-9)
