"""Backward elimination of groups of regressors with exact updates, for many regression problems side by side."""

from __future__ import annotations

import numpy as np

from ..arrays import Index, Mask, Real
from .system import DiagonalSystem

REFRESH = 4  # G⁻¹ is computed afresh whenever a quarter of the groups has gone
PENDING = 32  # updates of G⁻¹ are collected, and done together as a product of matrices


def eliminate(gram: Real, target: Real, removable: Mask, fixed: Mask) -> Real:
    """Remove groups of features, always the cheapest, until only the fixed ones are left; return their log-costs.

    gram (problems, groups, parts, groups, parts) is G = E[z zᵀ], target (problems, groups, parts, outputs) is E[z y];
    `removable` and `fixed` (problems, groups) say which groups exist. The cost of a group s is what E|y - Wᵀz|² rises
    when it goes and all others are re-fitted, tr(w_sᵀ ((G⁻¹)_ss)⁻¹ w_s). A cost below an earlier cost of its problem is
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
            fit.remove(place, cost < np.inf)
            level[problem] = _raise_above(cost[problem], level[problem])
            gone = problem, group[problem, place[problem]]
            costs[gone], left[gone] = level[problem], False
    return costs


def elimination_bytes(system: DiagonalSystem) -> int:
    """Return how much memory the elimination of a layer's states takes at most, its moments left aside.

    The gram and its inverse, their right-hand sides, and what solving for them needs besides.
    """
    layout = system.layout
    features, outputs = layout.slots * 2 * system.directions, system.outputs // layout.channels
    return 8 * layout.channels * features * (7 * features + 5 * outputs)


def _raise_above(cost: Real, level: Real) -> Real:
    """Return log cost, but above `level` wherever that is finite."""
    with np.errstate(divide="ignore"):
        log = np.log(np.maximum(cost, 0))
    return np.where(level > -np.inf, np.maximum(log, np.nextafter(level, np.inf)), log)


class _Fit:
    """G⁻¹ and W = G⁻¹ E[z y] of the groups that are present, kept exact while groups are removed.

    A removal needs of G⁻¹ the rows of the group that goes, and the blocks on the diagonal. So the blocks and W are
    always up to date, while G⁻¹ is what `inverse` holds less sharesᵀ rows of the removals that are pending.
    """

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
        solved = np.linalg.solve(G, np.concatenate([np.broadcast_to(np.eye(count * parts), G.shape), y], axis=2))
        self.inverse, self.W = (part.copy() for part in np.split(solved, [count * parts], axis=2))
        self.blocks = np.einsum("gsasb->gsab", self.inverse.reshape(*self.shape, *self.shape[1:])).copy()
        self.alive = np.ones((problems, 1, count * parts))
        self.pending = 0
        waiting = min(PENDING, max(1, count // REFRESH)) * parts
        self.shares, self.rows = (np.empty((problems, waiting, count * parts)) for _ in range(2))

    def cheapest(self, removable: Mask) -> tuple[Index, Real]:
        """Return the group (problems,) that costs least in each problem, and its cost: +inf where none is removable."""
        self.curvature = np.linalg.inv(np.where(removable[..., None, None], self.blocks, np.eye(self.shape[2])))
        W = self.W.reshape(*self.shape, -1)
        cost = np.where(removable, (self.curvature * (W @ W.swapaxes(2, 3))).sum(axis=(2, 3)), np.inf)
        place = cost.argmin(axis=1)
        return place, cost[np.arange(len(cost)), place]

    def remove(self, place: Index, wanted: Mask) -> None:
        """Take the group at `place` out of each problem where that is wanted.

        W -= G⁻¹_:s (G⁻¹_ss)⁻¹ w_s, and G⁻¹ likewise.
        """
        problems, count, parts = self.shape
        each, W = np.arange(problems), self.W.reshape(*self.shape, -1)
        row = self._rows(place)
        share = self.curvature[each, place] @ row * wanted[:, None, None]
        self.W -= share.swapaxes(1, 2) @ W[each, place]
        by_group = (part.reshape(problems, parts, count, parts).transpose(0, 2, 3, 1) for part in (share, row))
        self.blocks -= next(by_group) @ next(by_group).swapaxes(2, 3)
        W[each[wanted], place[wanted]] = 0  # exactly, where the update leaves rounding
        self.alive.reshape(self.shape)[each[wanted], place[wanted]] = 0
        now = slice(self.pending, self.pending + parts)
        self.shares[:, now], self.rows[:, now] = share, row
        self.pending += parts
        if self.pending == self.shares.shape[1]:
            self.inverse -= self.shares.swapaxes(1, 2) @ self.rows
            self.pending = 0

    def _rows(self, place: Index) -> Real:
        """Return the rows (problems, parts, features) of G⁻¹ of one group in each problem, as they are now."""
        problems, count, parts = self.shape
        each, done = np.arange(problems), slice(self.pending)
        rows = self.inverse.reshape(problems, count, parts, -1)[each, place]
        shares = self.shares.reshape(problems, -1, count, parts)[each, done, place]  # (problems, pending, parts)
        now: Real = (rows - shares.swapaxes(1, 2) @ self.rows[:, done]) * self.alive
        return now
