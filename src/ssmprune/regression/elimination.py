"""Backward elimination of groups of regressors with exact updates, for many regression problems side by side."""

from __future__ import annotations

import numpy as np

from ..arrays import Index, Mask, Real

REFRESH = 4  # G⁻¹ is computed afresh whenever one in so many groups has gone


def eliminate(gram: Real, target: Real, removable: Mask, fixed: Mask) -> Real:
    """Remove groups of features, always the cheapest, until only the fixed ones are left; return their log-costs.

    gram (problems, groups, parts, groups, parts) is G = E[z zᵀ], target (problems, groups, parts, outputs) is E[z y];
    `removable` and `fixed` (problems, groups) say which groups exist. The cost of a group s is what E|y - Wᵀz|² rises
    when it goes and all others are re-fitted, tr(w_sᵀ ((G⁻¹)_ss)⁻¹ w_s). A cost below an earlier one of its problem is
    raised to just above that, so that sorting the costs gives the order of removal. What is not removable costs +inf.
    """
    costs, level = np.full(removable.shape, np.inf), np.full(len(gram), -np.inf)
    left = removable.copy()
    while left.any():
        present = left | fixed
        count = int(present.sum(axis=1).max())
        group = np.argsort(~present, axis=1, kind="stable")[:, :count]  # those present come first
        fit = _Fit(gram, target, group, np.take_along_axis(present, group, axis=1))
        for _ in range(max(1, count // REFRESH)):
            place, cost = fit.cheapest(np.take_along_axis(left, group, axis=1))
            problem = np.flatnonzero(cost < np.inf)  # those that have something left to remove
            fit.remove(problem, place[problem])
            level[problem] = _raised(cost[problem], level[problem])
            gone = problem, group[problem, place[problem]]
            costs[gone], left[gone] = level[problem], False
    return costs


def _raised(cost: Real, level: Real) -> Real:
    """Return log cost, but above `level` wherever that is finite."""
    with np.errstate(divide="ignore"):
        log = np.log(np.maximum(cost, 0))
    return np.where(level > -np.inf, np.maximum(log, np.nextafter(level, np.inf)), log)


class _Fit:
    """G⁻¹ and W = G⁻¹ E[z y] of the groups that are present, kept exact while groups are removed."""

    def __init__(self, gram: Real, target: Real, group: Index, present: Mask) -> None:
        """Take the listed groups (problems, count) of each problem; those not `present` fill it up and do nothing."""
        problems, count = group.shape
        parts, outputs = target.shape[2:]
        self.shape = problems, count, parts
        features = (group[:, :, None] * parts + np.arange(parts)).reshape(problems, -1)
        row, silent = np.arange(problems)[:, None], np.repeat(~present, parts, axis=1)
        G = gram.reshape(problems, -1, gram.shape[1] * parts)[row[:, None], features[:, :, None], features[:, None]]
        G[silent] = 0
        G.swapaxes(1, 2)[silent] = 0
        np.einsum("gff->gf", G)[silent] = 1
        y = target.reshape(problems, -1, outputs)[row, features]
        y[silent] = 0
        unit = np.broadcast_to(np.eye(count * parts), G.shape)
        solved = np.linalg.solve(G, np.concatenate([unit, y], axis=2))
        self.inverse, self.W = solved[..., : count * parts].copy(), solved[..., count * parts :].copy()

    def cheapest(self, removable: Mask) -> tuple[Index, Real]:
        """Return the group (problems,) that costs least in each problem, and its cost: +inf where none is removable."""
        blocks = np.einsum("gsasb->gsab", self.inverse.reshape(*self.shape, *self.shape[1:]))
        self.curvature = np.linalg.inv(np.where(removable[..., None, None], blocks, np.eye(self.shape[2])))
        W = self.W.reshape(*self.shape, -1)
        cost = np.where(removable, ((self.curvature @ W) * W).sum(axis=(2, 3)), np.inf)
        place = cost.argmin(axis=1)
        return place, cost[np.arange(len(cost)), place]

    def remove(self, problem: Index, place: Index) -> None:
        """Take the group at `place` out of each listed problem: W -= G⁻¹_:s (G⁻¹_ss)⁻¹ w_s, and G⁻¹ likewise."""
        inverse, W = self.inverse.reshape(*self.shape, *self.shape[1:]), self.W.reshape(*self.shape, -1)
        column = self.inverse.reshape(len(W), -1, *self.shape[1:])[problem, :, place]  # (listed, features, parts)
        share = column @ self.curvature[problem, place]
        self.W[problem] -= share @ W[problem, place]
        self.inverse[problem] -= share @ column.swapaxes(1, 2)
        W[problem, place] = 0  # exactly, where the update leaves rounding
        inverse[problem, place] = 0
        inverse[problem, :, :, place] = 0
