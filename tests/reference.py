"""The paper's equations literally, loops and all: slow twins for the fast core, and how results are compared."""

from fractions import Fraction

import numpy as np
import torch

from ssmprune import DiagonalSystem


def close(ours, reference, tolerance=1e-5):
    """Assert that arrays or tensors are equal up to `tolerance` of the largest absolute value."""
    ours, reference = (np.asarray(x.detach() if torch.is_tensor(x) else x) for x in (ours, reference))
    assert ours.shape == reference.shape
    np.testing.assert_allclose(ours, reference, rtol=0, atol=tolerance * np.abs(reference).max())


def hinf_score(system, i):
    """Equation 6, with the average over directions of section 3.1."""
    c = np.mean([np.sum(np.abs(C[:, i]) ** 2) for C in system.C])
    b = np.sum(np.abs(system.B[i]) ** 2)
    return c * b / (1 - np.exp(system.log_poles[i].real)) ** 2


def last_scores(scores):
    """Equation 10: sort, then divide by the sum down to and including the state; ties rank the higher index first."""
    order = sorted(range(len(scores)), key=lambda i: (scores[i], i), reverse=True)
    result, total = np.zeros(len(scores)), 0.0
    for i in order:
        total += scores[i]
        result[i] = scores[i] / total if total else 0.0
    return result


def prune_lowest(scores, ratio):
    """Remove states one at a time, the lowest of all layers first, skipping the best state of each layer."""
    alive = {(layer, i) for layer, s in scores.items() for i in range(len(s))}
    best = {layer: max(range(len(s)), key=lambda i: (s[i], i)) for layer, s in scores.items()}
    target = max(int(len(alive) * (1 - Fraction(str(ratio)))), len(scores))
    places = {layer: place for place, layer in enumerate(scores)}
    for layer, i in sorted(alive, key=lambda state: (scores[state[0]][state[1]], places[state[0]], state[1])):
        if len(alive) > target and i != best[layer]:
            alive.discard((layer, i))
    return {layer: np.array([(layer, i) in alive for i in range(len(s))]) for layer, s in scores.items()}


def states(poles, drive):
    """x_k = pole x_{k-1} + drive_k from rest, for drive (length, n)."""
    x, result = np.zeros(len(poles), complex), []
    for term in drive:
        x = poles * x + term
        result.append(x)
    return np.array(result)


def channels(system):
    """Every channel of a multi-SISO system as a system of its own."""
    for channel in range(system.channels):
        own = system.select(system.channel == channel)
        fields = {"gain": system.gain, "backward_delay": system.backward_delay}
        yield DiagonalSystem(own.log_poles, own.B, own.C, **fields)
