"""Allocations: from the scores of all layers and a ratio to the states that stay.

An allocation is a function `(scores, ratio, stay) -> keep`: `scores` maps a layer to its log-scores (n,), `ratio` is
the share to prune, `stay` maps a layer to the states that may not go (floors, caps and unstable poles all arrive as
this one mask), `keep` maps a layer to its bool mask. Equal scores lose the lower index first.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from typing import TypeAlias

import numpy as np

from ..arrays import Index, Mask, Real

Scores: TypeAlias = dict[str, Real]
Masks: TypeAlias = dict[str, Mask]
LARGEST_RANGE = 600.0  # of log-scores in a layer whose shares a float can hold
Allocation: TypeAlias = Callable[[Scores, float, Masks], Masks]


def uniform(scores: Scores, ratio: float, stay: Masks) -> Masks:
    """Prune the same share of every layer, its lowest scores first.

    >>> free = {"a": np.zeros(2, bool), "b": np.zeros(2, bool)}
    >>> uniform({"a": np.array([1., 2.]), "b": np.array([3., 4.])}, 0.5, free)
    {'a': array([False,  True]), 'b': array([False,  True])}
    """
    return {layer: highest(s, kept_count(len(s), ratio), stay[layer]) for layer, s in scores.items()}


def pooled(scores: Scores, ratio: float, stay: Masks) -> Masks:
    """Prune the lowest scores over all layers as they are ("Global" in the paper).

    >>> free = {"a": np.zeros(2, bool), "b": np.zeros(2, bool)}
    >>> pooled({"a": np.array([1., 2.]), "b": np.array([3., 4.])}, 0.5, free)
    {'a': array([False, False]), 'b': array([ True,  True])}
    """
    if not scores:
        return {}
    everything = np.concatenate(list(scores.values()))
    keep = _mark(everything, kept_count(len(everything), ratio), np.concatenate([stay[layer] for layer in scores]))
    cuts = np.cumsum([len(s) for s in scores.values()])[:-1]
    return dict(zip(scores, np.split(keep, cuts), strict=True))


def layer_adaptive(scores: Scores, ratio: float, stay: Masks) -> Masks:
    """Prune the lowest energy-normalised scores over all layers (LAST, equation 10).

    >>> free = {"a": np.zeros(2, bool), "b": np.zeros(2, bool)}
    >>> layer_adaptive({"a": np.array([1., 2.]), "b": np.array([3., 9.])}, 0.5, free)
    {'a': array([False,  True]), 'b': array([False,  True])}
    """
    # Shares order the states as their logarithms do, and are cheaper, unless some are too small for a float.
    fit = all(s.max() < s.min() + LARGEST_RANGE for s in scores.values() if len(s))  # false for infinite scores
    normalise = partial(_in_order, divide=_shares) if fit else energy_normalised
    return pooled({layer: normalise(s) for layer, s in scores.items()}, ratio, stay)


def layer_share(scores: Scores, ratio: float, stay: Masks) -> Masks:
    """Prune the lowest shares of their layer's whole sum, the variant that section 5.4.1 argues against.

    >>> free = {"a": np.zeros(2, bool), "b": np.zeros(2, bool)}
    >>> layer_share({"a": np.array([1., 1.]), "b": np.array([3., 9.])}, 0.5, free)
    {'a': array([False,  True]), 'b': array([False,  True])}
    """
    return pooled({layer: _log_ratio(s, partial(np.sum, keepdims=True)) for layer, s in scores.items()}, ratio, stay)


def energy_normalised(scores: Real) -> Real:
    """Divide each score by the sum of the scores down to and including it, in the log-domain (equation 10).

    The best state of a layer gets exactly 1 (log 0), so no layer is emptied before all others.

    >>> np.exp(energy_normalised(np.log([1.0, 2.0, 1.0])))
    array([0.25      , 1.        , 0.33333333])
    """
    return _in_order(scores, partial(_log_ratio, total=_running_sum))


def descending(scores: Real) -> Index:
    """Return the indices that sort `scores` from best to worst; of equal scores the higher index comes first."""
    return _sort(scores)[0]


def highest(scores: Real, count: int, stay: Mask) -> Mask:
    """Mark the `count` highest scores, those in `stay` before all others and never fewer than them."""
    return _mark(scores.copy() if stay.any() else scores, count, stay)


def kept_count(n: int, ratio: float) -> int:
    """Return floor(n (1 - ratio)) in exact arithmetic on the ratio as it is written, so that 0.9 of 100 leaves 10.

    >>> kept_count(100, 0.9), int(100 * (1 - 0.9))
    (10, 9)
    """
    return int(n * (1 - exact(ratio)))


@cache
def exact(ratio: float) -> Fraction:
    """Return the decimal number a float was written as, so that counts do not depend on its last binary digit."""
    return Fraction(repr(float(ratio)))


def _mark(scores: Real, count: int, stay: Mask) -> Mask:
    """Do what `highest` does, overwriting the scores of the states that stay."""
    forced = np.flatnonzero(stay)
    count = max(count, len(forced))
    if count == 0:
        return np.zeros(len(scores), bool)
    if len(forced):  # else the scores may be a plan's, which cannot be written
        scores[forced] = np.inf
    threshold = scores.max() if count == 1 else np.partition(scores, len(scores) - count)[len(scores) - count]
    keep: Mask = scores > threshold
    ties = np.flatnonzero(scores == threshold)
    keep[ties[len(ties) - (count - np.count_nonzero(keep)) :]] = True
    return keep


def _sort(scores: Real) -> tuple[Index, Real]:
    """Return the descending order of the scores and the scores in it."""
    order = np.argsort(scores)
    ranked = scores[order]
    if (ranked[1:] == ranked[:-1]).any():  # only ties need the stable sort, which is several times slower
        order = np.argsort(scores, kind="stable")
    return order[::-1], ranked[::-1]


def _in_order(scores: Real, divide: Callable[[Real], Real]) -> Real:
    """Apply a function to the scores in descending order, and return its results in the original order."""
    order, ranked = _sort(scores)
    result = np.empty_like(scores)
    result[order] = divide(ranked)
    return result


def _shares(ranked: Real) -> Real:
    """Return e^score / the sum of those down to it, for finite scores in descending order."""
    energy: Real = np.exp(ranked - ranked[:1])
    energy /= np.cumsum(energy)
    return energy


def _log_ratio(scores: Real, total: Callable[[Real], Real]) -> Real:
    """Return log(e^scores / total(e^scores)), relative to the best score: what underflows is below its last digit."""
    best = scores.max(initial=-np.inf)
    if best == np.inf:  # a pole on the circle is its layer's all
        return np.where(scores == np.inf, 0.0, -np.inf)
    if best == -np.inf:  # a layer without gain: shares of nothing are nothing
        return scores
    relative: Real = scores - best
    sums = total(np.exp(relative))
    relative -= np.log(sums, out=sums)
    return relative


def _running_sum(values: Real) -> Real:
    """Return the cumulative sum in the memory of the values, since new memory takes longer than adding."""
    total: Real = np.cumsum(values, out=values)
    return total
