"""The state surgeon: which states can go when the others take over what they carried.

A layer's output is a regression Wᵀz on the features z of its states (see `features`). States are correlated, so much of
what one carries can be had from others by re-fitting W. The surgeon removes the state whose loss costs the least output
energy after that, then the next, each exactly (see `elimination`), and compares layers by the share of their output
energy that a state costs. What it leaves is re-fitted once more, D included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .allocation import pooled
from .arrays import Complex, Mask, Real
from .calibration import Moments, Residual, moments_of
from .elimination import eliminate
from .features import Layout, readout, weights
from .limits import Limits
from .plan import Plan, plan_from_scores
from .system import DiagonalSystem

RIDGE = 1e-6  # of each feature's own energy: so much is taken for noise, on which no weight can rest


def surgeon_plan(
    systems: Mapping[str, DiagonalSystem], ratio: float, moments: Mapping[str, Moments] | None = None, **limits: Any
) -> Plan:
    """Decide which states stay when the share `ratio` is pruned, with the C and D that take over from the others.

    moments: what `collect` found on data; without them, inputs are taken for white noise.
    limits: `exclude`, `caps`, `floor` and `round_to` as in `make_plan`.

    >>> twins = DiagonalSystem.from_discrete(poles=[0.5, 0.9, 0.9], B=[[1], [1], [2]], C=[[1, 1, 1]])
    >>> plan = surgeon_plan({"ssm": twins}, ratio=0.3)
    >>> plan.keep["ssm"], plan.C["ssm"].real.round(3)
    (array([ True, False,  True]), array([[[1. , 1.5]]]))
    """
    known = moments_of(systems, moments)
    scores = {layer: elimination_scores(system, known[layer]) for layer, system in systems.items()}
    name = "surgeon without data" if moments is None else "surgeon"
    return refit(plan_from_scores(systems, scores, ratio, pooled, name, Limits(**limits)), systems, known)


def refit(plan: Plan, systems: Mapping[str, DiagonalSystem], moments: Mapping[str, Moments] | None = None) -> Plan:
    """Return any method's plan with the C and D that bring each pruned layer's output nearest to what it was.

    Least squares on the moments, for the inputs that the unpruned model gives each layer; `refit_in_sequence` goes
    further and also mends what earlier layers lost.
    """
    plan.check(systems)
    known = moments_of(systems, moments)
    C, D_change = {}, {}
    for layer, system in systems.items():
        if not plan.keep[layer].all():
            C[layer], D_change[layer] = _refitted(system, plan.keep[layer], known[layer])
    return replace(plan, C=C, D_change=D_change)


def elimination_scores(system: DiagonalSystem, moments: Moments) -> Real:
    """Return the log-score (n,) of every state: the share of the layer's output energy that its turn to go costs.

    The scores of all layers, sorted together, name the state that is cheapest next, one after the other.
    """
    layout = Layout.of(system)
    gram, scale = _correlations(moments.gram)
    W = weights(system) * scale[..., None]
    target = np.einsum("gsatb,gtbq->gsaq", gram, W, optimize=True)
    stable, unstable = layout.spread(~system.unstable_states), layout.spread(system.unstable_states)
    costs: Real = layout.gather(eliminate(gram, target, stable, unstable))
    return costs - float(np.log(np.sum(W * target) or 1))


def take_over(moments: Moments, residual: Residual, heirs: Mask) -> tuple[Real, Real]:
    """Return what to add to the weights (problems, slots, parts, outputs) of the heirs and to D (problems, outputs).

    For every output the least squares fit of the residual on the heirs' features z and on the input u that D leads to
    it. The outputs share G = E[z zᵀ], so D comes from its Schur complement: δ = (E[ur] - cᵀG⁻¹a) / (E[u²] - cᵀG⁻¹c)
    and ΔW = G⁻¹(a - cδ), with a = E[zr], c = E[zu].
    """
    problems, _, _, outputs = residual.cross.shape
    gram, scale = _correlations(moments.gram * heirs[:, :, None, None, None] * heirs[:, None, None, :, None])
    shrunk = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)[..., None]
    a, c = ((shrunk * cross).reshape(problems, -1, outputs) for cross in (residual.cross, moments.cross))
    solved = np.linalg.solve(gram.reshape(problems, a.shape[1], -1), np.concatenate([a, c], axis=2))
    a_solved, c_solved = solved[..., :outputs], solved[..., outputs:]
    left = moments.power * (1 + RIDGE) - (c * c_solved).sum(axis=1)
    D = np.divide(residual.input - (c * a_solved).sum(axis=1), left, out=np.zeros_like(left), where=left > 0)
    return shrunk * (a_solved - c_solved * D[:, None]).reshape(residual.cross.shape), D


def _correlations(gram: Real) -> tuple[Real, Real]:
    """Scale every feature to unit energy and add the ridge; return that and the scales (problems, slots, parts).

    A feature without energy has scale 0 and is uncorrelated to all others.
    """
    scale = np.sqrt(np.einsum("gsasa->gsa", gram))
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    gram = gram * inverse[..., None, None] * inverse[:, None, None]
    np.einsum("gsasa->gsa", gram)[...] = 1 + RIDGE
    return gram, scale


def _refitted(system: DiagonalSystem, keep: Mask, moments: Moments) -> tuple[Complex, Real]:
    """Return C (directions, outputs, kept) and the change of D (outputs,)."""
    layout, W = Layout.of(system), weights(system)
    kept, heirs = layout.spread(keep), layout.spread(keep & ~system.unstable_states)
    lost = W * ~kept[..., None, None]
    cross = np.einsum("gsatb,gtbq->gsaq", moments.gram, lost, optimize=True)
    residual = Residual(cross, np.einsum("gsaq,gsaq->gq", moments.cross, lost), float(np.sum(lost * cross)))
    change, D = take_over(moments, residual, heirs)
    return readout(system, W + change)[:, :, keep], D.ravel()
