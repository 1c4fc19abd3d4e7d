"""Tables of averages over the paper's tasks, at LAST's largest ratios."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ssmprune.report import Table, fixed, label

from . import paper
from .query import Group, Query, Tested

Row = dict[str, Any]
HINF = ("uniform-hinf", "global-hinf", "last")
MAGNITUDE = ("random", "uniform-magnitude", "global-magnitude", "lamp", *HINF)
RANDOM = ("unstructured-random", "random")
TASKS = {"s5": 10, "s4d": 8}  # of the paper


def average(query: Query) -> Table:
    """Return the average ratio and loss at LAST's largest ratios, over all tasks and over the compressible ones."""
    return _averages(query, query.methods, "Average pruning ratio and accuracy loss at LAST's largest ratio")


def magnitude(query: Query) -> Table:
    """Return the same of the magnitude criteria beside H-infinity."""
    return _averages(query, MAGNITUDE, "Magnitude and H∞ criteria at LAST's largest ratio")


def random(query: Query) -> Table:
    """Return the same of states and of single elements taken at random."""
    return _averages(query, RANDOM, "Random pruning of states and of single elements at LAST's largest ratio")


def at_last_ratio(query: Query, group: Group, method: str) -> tuple[float, list[Tested]] | None:
    """Return LAST's largest ratio, on average over a group's seeds, and a method's tests there; None without any."""
    ratios, tests = [], []
    for entry in group.entries:
        ratio = query.last_ratio(entry) if query.seeds(entry["name"], method) else None  # None where it was not tried
        own = [] if ratio is None else query.over_seeds(entry["name"], method, ratio)
        if ratio is not None and own:
            ratios.append(ratio)
            tests += own
    return (float(np.mean(ratios)), tests) if tests else None


def pairs_at_last(query: Query, groups: Iterable[Group], method: str) -> list[tuple[float, float]]:
    """Return (LAST's largest ratio in per cent, points the method loses there) of every group that has both.

    Of several seeds the main one stands for all: not all methods are tried on the others, whose ratios may differ.
    """
    found = [at_last_ratio(query, group.main, method) for group in groups]
    return [(100 * ratio, float(np.mean([t.lost for t in tests]))) for ratio, tests in filter(None, found)]


def how_chosen(query: Query) -> str:
    """Say on what largest ratios were found."""
    searched = any(cell.split == "val" for cell in query.results.cells)
    where = "validation examples" if searched else "the test examples of the sweep"
    within = f"at most {query.budget:g} point of accuracy"
    return f"Largest ratios lose {within} on {where}; accuracies are on test examples."


def _averages(query: Query, methods: Iterable[str], title: str) -> Table:
    rows: list[Row] = []
    orders = []
    for family in query.families:
        losses = {}
        groups, of_paper = query.averaged_groups(family), bool(query.paper_groups(family))
        for method in (name for name in query.methods if name in set(methods)):
            pairs = pairs_at_last(query, groups, method)
            printed = paper.AVERAGE.get((family, method)) if of_paper else None
            if pairs and printed:
                losses[method] = (float(np.mean([lost for _, lost in pairs])), printed[2])
            if pairs:
                rows.append(_row(family, method, pairs, printed))
        orders += _orders(family, losses)
    families = {row["model"].lower() for row in rows if row["paper: ratio, %"]}
    notes = [how_chosen(query), *orders]
    if families:
        notes += [
            "The paper's averages are over 10 tasks for S5 and 8 for S4D, of models trained on GPUs; ours are over "
            "those of its tasks that are in this sweep, each by the checkpoint named after it.",
            *(note for family, note in paper.AVERAGE_ERRATA if family in families),
        ]
    return without_empty_papers(Table(title, rows, notes))


def without_empty_papers(table: Table) -> Table:
    """Leave out the paper's columns where it has no figure for any row."""
    empty = [
        name for name in table.columns if name.startswith("paper:") and all(row.get(name) is None for row in table.rows)
    ]
    rows = [{name: value for name, value in row.items() if name not in empty} for row in table.rows]
    return Table(table.title, rows, table.notes)


def _row(family: str, method: str, pairs: list[tuple[float, float]], printed: tuple[float, ...] | None) -> Row:
    return {
        "model": family.upper(),
        "method": label(method),
        "tasks": len(pairs),
        "ratio (compressible only), %": _means(pairs, column=0),
        "loss (compressible only), points": _means(pairs, column=1),
        "paper: ratio, %": f"{printed[0]:.2f} ({printed[1]:.2f})" if printed else None,
        "paper: loss, points": f"{printed[2]:.2f} ({printed[3]:.2f})" if printed else None,
    }


def _orders(family: str, losses: dict[str, tuple[float, float]]) -> list[str]:
    """Say whether the methods that both have come in the paper's order, from the smallest loss up."""
    ours, theirs = (", ".join(label(name) for name in sorted(losses, key=lambda m: losses[m][k])) for k in (0, 1))
    if len(losses) < 2:
        return []
    if ours == theirs:
        return [f"{family.upper()}: from the smallest loss up, our order is the paper's: {ours}."]
    return [f"{family.upper()}: from the smallest loss up, our order is {ours}; the paper's is {theirs}."]


def _means(pairs: list[tuple[float, float]], column: int) -> str:
    """Return the mean over all tasks and, in brackets, over those that LAST can compress."""
    compressible = [pair[column] for pair in pairs if pair[0] > 0]
    inner = fixed(float(np.mean(compressible))) if compressible else "–"
    return f"{fixed(float(np.mean([pair[column] for pair in pairs])))} ({inner})"
