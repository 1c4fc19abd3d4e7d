"""Elimination scores: what the loss of a state costs when the others take over as well as they can (the surgeon's).

States are correlated, so others can take over much of what a state carries once the readout is re-fitted. States go one
after the other, always the state whose loss costs the least output energy after the others are re-fitted, and each
score is what that state cost in its turn. Scores are shares of the layer's output energy, so that layers compare.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Real
from ..core.elimination import eliminate
from ..core.layout import ChannelLayout
from ..core.least_squares import correlations
from ..core.moments import weights
from ..core.system import DiagonalSystem
from .method import Evidence


def elimination(system: DiagonalSystem, evidence: Evidence) -> Real:
    """Return the logarithm of the share of the layer's output energy that each state costs when its turn comes.

    The scores of all layers, sorted together, name the state that is cheapest next, one after the other.

    >>> twins = DiagonalSystem.from_discrete(poles=[0.5, 0.9, 0.9], B=[[1], [1], [2]], C=[[1, 1, 1]])
    >>> np.exp(elimination(twins, Evidence.without_data(twins))).round(3)
    array([0.012, 0.   , 0.988])
    """
    layout = ChannelLayout.of(system)
    gram, scale = correlations(evidence.moments.gram)
    W = weights(system) * scale[..., None]
    W = np.ldexp(W, -np.frexp(np.abs(W).max(initial=0))[1])  # costs are shares; squares of tiny weights are none
    target = np.einsum("gsatb,gtbq->gsaq", gram, W, optimize=True)
    stable, unstable = layout.spread(~system.unstable_states), layout.spread(system.unstable_states)
    costs: Real = layout.gather(eliminate(gram, target, stable, unstable))
    return costs - float(np.log(np.sum(W * target) or 1))
