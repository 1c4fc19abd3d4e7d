"""Elimination with delayed updates, against one that solves every problem afresh for every removal."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ssmprune as sp
from ssmprune.core.elimination import PENDING, REFRESH, eliminate, elimination_bytes


def problems(rng, count, groups, parts, outputs):
    """Correlated regressors of unit energy with a little noise, and random weights."""
    features = groups * parts
    mixed = rng.normal(size=(count, 3 * features, features)) @ rng.normal(size=(count, features, features))
    z = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    gram = z.swapaxes(1, 2) @ z + 1e-6 * np.eye(features)
    target = gram @ rng.normal(size=(count, features, outputs))
    shape = count, groups, parts
    return gram.reshape(*shape, *shape[1:]), target.reshape(*shape, outputs)


def slow(gram, target, removable, fixed):
    """One problem: always the group whose loss raises the error least, by solving anew for every removal."""
    groups, parts, outputs = target.shape
    costs = np.full(groups, np.inf)
    left, level = removable.copy(), -np.inf
    while left.any():
        present = np.flatnonzero(left | fixed)
        G = gram[present][:, :, present].reshape(2 * (len(present) * parts,))
        inverse = np.linalg.inv(G)
        W = (inverse @ target[present].reshape(-1, outputs)).reshape(-1, parts, outputs)
        blocks = inverse.reshape(2 * (len(present), parts))
        rises = {
            group: np.trace(W[k].T @ np.linalg.inv(blocks[k, :, k]) @ W[k])
            for k, group in enumerate(present)
            if left[group]
        }
        group = min(rises, key=rises.get)
        level = max(np.nextafter(level, np.inf), np.log(rises[group]))  # above the last, so that costs tell the order
        costs[group], left[group] = level, False
    return costs


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_costs_are_those_of_solving_anew(seed):
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 4)), int(rng.integers(1, 12)), int(rng.choice([2, 4])), int(rng.integers(1, 5)))
    gram, target = problems(rng, *shape)
    removable = rng.random(shape[:2]) < 0.8
    fixed = ~removable & (rng.random(shape[:2]) < 0.7)
    found = eliminate(gram, target, removable, fixed)
    for k in range(shape[0]):
        np.testing.assert_allclose(found[k], slow(gram[k], target[k], removable[k], fixed[k]), rtol=1e-6, atol=1e-6)


def test_pending_updates_lose_nothing():
    """So many groups that updates are done together several times between two refreshes."""
    groups = 3 * PENDING * REFRESH // 2
    gram, target = problems(np.random.default_rng(0), 1, groups, 2, 3)
    every = np.ones((1, groups), bool)
    found, expected = eliminate(gram, target, every, ~every)[0], slow(gram[0], target[0], every[0], ~every[0])
    np.testing.assert_array_equal(np.argsort(found), np.argsort(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("n", "outputs"), [(96, 96), (128, 1)])
def test_elimination_takes_the_announced_memory(n, outputs):
    gram, target = problems(np.random.default_rng(0), 1, n, 2, outputs)
    every = np.ones((1, n), bool)
    system = sp.DiagonalSystem.from_discrete(np.full(n, 0.5), np.ones((n, outputs)), np.ones((outputs, n)))
    tracemalloc.start()
    try:
        eliminate(gram, target, every, ~every)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= elimination_bytes(system) + 100_000
    assert sp.Pruning(_layer(outputs, n), sp.SURGEON).memory >= elimination_bytes(system)


def _layer(width, n):
    from ssmprune.models import S5Layer

    return S5Layer(width, n)


def test_an_elimination_beyond_all_memory_is_refused_before_it_starts(monkeypatch):
    from ssmprune import pruning

    monkeypatch.setattr(pruning, "physical_memory", lambda: 1000.0)
    with pytest.raises(sp.InputError, match=r"up to \S+ GB of memory and this machine has 0\.0: .* Prune by LAST"):
        sp.Pruning(_layer(3, 8), sp.SURGEON)
    assert sp.Pruning(_layer(3, 8)).memory == 0
