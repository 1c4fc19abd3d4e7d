"""Tables from the results of a sweep: the paper's, with its own figures beside ours where it has them.

Columns that start with "paper:" are the paper's; all others are ours. Differences that chance explains are marked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ssmprune.errors import one_of
from ssmprune.methods import LAST
from ssmprune.report import Table, accuracy_table, fixed, label, method_curves
from ssmprune.sweeps import CALIBRATION, CALIBRATION_STEPS, FULL, Cell, Results

from . import paper
from .averages import at_last_ratio, average, how_chosen, magnitude, random, without_empty_papers
from .bisection import Largest
from .claims import claims
from .query import Group, Query, Tested, against, lost_in_pairs
from .statistics import answers_of, compare, interval
from .table_formats import Mean

Row = dict[str, Any]
FEW = 40  # sequences of which calibration takes all, however long they are
AROUND_SURGEON = ("last", "aire", "balanced", "last+refit", "surgeon-without-data", "surgeon")
MARKED = (
    "n.s.: the difference is not significant, p ≥ 0.05 by McNemar's exact test on the answers to the same examples, "
    "over several seeds by an exact test that changes the sign of an example's lead over all of them at once; "
    "intervals are Wilson's, of 95 %."
)


def make(results: Results, kind: str) -> Table:
    """Return the table called `kind`."""
    return one_of("table", kind, KINDS)(Query(results))


def tasks(query: Query) -> Table:
    """Return every method at LAST's largest ratio of each task: mean and deviation over seeds, the paper's beside."""
    rows = []
    for group in query.groups:
        line = paper.TASKS.get((group.task, group.family)) if group in query.paper_groups() else None
        last = at_last_ratio(query, group, LAST.name)
        for method in (FULL, *query.methods):
            found = at_last_ratio(query, group, method) if method != FULL else _unpruned(query, group)
            if found:
                names = {"checkpoint": group.name, "method": label(method)}
                rows.append(names | _tested(method, *found, last[1] if last else []) | _printed_line(line, method))
    present = {(group.task, group.family) for group in query.paper_groups()}
    notes = [how_chosen(query), MARKED, *(note for where, note in paper.TASK_ERRATA if where in present)]
    if any(len(group.entries) > 1 for group in query.groups):
        notes.append(
            "Over seeds the ratio is LAST's average; a method tried on the first of them alone is at its ratio."
        )
    return without_empty_papers(Table("Accuracy at LAST's largest ratio", rows, notes))


def _unpruned(query: Query, group: Group) -> tuple[float, list[Tested]]:
    return 0.0, [tested for entry in group.entries for tested in query.over_seeds(entry["name"], FULL, 0.0)]


def _tested(method: str, ratio: float, tests: list[Tested], last: list[Tested]) -> Row:
    """Return what a method reaches at LAST's ratio, against the unpruned model and against LAST."""
    accuracies = [tested.accuracy for tested in tests]
    low, high = interval(float(np.mean(accuracies)) / 100, tests[0].examples)
    ahead = None if method in (FULL, LAST.name) or not ratio else against(tests, last)
    return {
        "ratio, %": f"{100 * ratio:.0f}",
        "accuracy, %": Mean.of(accuracies),
        "95 % interval": f"{100 * low:.2f} to {100 * high:.2f}",
        "loss, points": _loss(tests),
        "ahead of LAST, points": None if ahead is None else f"{ahead.difference:+.2f}{ahead.mark}",
        "examples": max(tested.examples for tested in tests),
    }


def _loss(tests: list[Tested]) -> Mean:
    pruned = [tested for tested in tests if tested.cell.method != FULL]
    lost = lost_in_pairs(pruned) if pruned else None
    return Mean.of([tested.lost for tested in tests], mark=lost.mark if lost else "")


def _printed_line(line: paper.Line | None, method: str) -> Row:
    printed = line is not None and method in line.accuracy
    return {
        "paper: ratio, %": ("0" if method == FULL else f"{line.ratio:.0f}") if line and printed else None,
        "paper: accuracy, %": _printed(line.accuracy, method) if line else None,
    }


def own(query: Query) -> Table:
    """Return every method whose largest ratio is known at that ratio."""
    rows = []
    for entry in query.entries():
        for method in query.methods:
            by_seed = {seed: query.largest(entry, method, seed) for seed in query.seeds(entry["name"], method)}
            reached = {seed: largest for seed, largest in by_seed.items() if largest is not None}
            if reached:
                names = {"checkpoint": entry["name"], "method": label(method)}
                rows.append(names | _own(query, entry, method, reached))
    return Table("The largest ratio of each method", rows, [how_chosen(query), MARKED])


def _own(query: Query, entry: Row, method: str, reached: dict[int, Largest]) -> Row:
    """Return what a method reaches with its seeds, and what that costs on the test set."""
    tries = (query.test(entry["name"], method, largest.exact, seed) for seed, largest in reached.items())
    tests = [tested for tested in tries if tested]
    return {
        "of the grid, %": Mean.of([100 * largest.on_grid for largest in reached.values()], 0),
        "largest ratio, %": Mean.of([100 * largest.exact for largest in reached.values()], 1),
        "test loss, points": _loss(tests),
        "examples": max((tested.examples for tested in tests), default=None),
    }


def surgeon(query: Query) -> Table:
    """Return the largest ratios within the loss: LAST, what is past it, and the average per model family."""
    methods = [name for name in AROUND_SURGEON if name in query.methods]
    rows = []
    for family in query.families:
        ratios = {entry["name"]: _largest_ratios(query, entry, methods) for entry in query.entries(family)}
        rows += [{"checkpoint": name, **row} for name, row in ratios.items()]
        main = [ratios[group.main.name] for group in query.averaged_groups(family)]
        if len(main) > 1:
            means = {name: _mean([row[name] for row in main]) for name in map(label, methods)}
            rows.append({"checkpoint": f"average of {family.upper()} over {len(main)} tasks", **means})
    note = f"In per cent of the states. The surgeon and the refits see {CALIBRATION} unlabelled training sequences; of "
    note += f"long ones as many as have {CALIBRATION_STEPS:,} steps, but at least {FEW}."
    return Table(f"Largest ratio (%) that loses at most {query.budget:g} point", rows, [note, how_chosen(query)])


def _mean(column: list[float | None]) -> float | None:
    values = [value for value in column if value is not None]
    return float(np.mean(values)) if values else None


def _largest_ratios(query: Query, entry: Row, methods: list[str]) -> Row:
    by_method = {method: query.largest(entry, method) for method in methods}
    return {label(method): 100 * largest.exact if largest else None for method, largest in by_method.items()}


def speed(query: Query) -> Table:
    """Return how much faster the pruned models are, where that was measured."""
    rows = []
    for entry in query.entries():
        for (method, ratio), cells in query.timed(entry["name"]).items():
            same = method == LAST.name and ratio == query.last_ratio(entry) and entry["family"] == "s5"
            printed = paper.SPEED.get(entry["task"]) if same else None
            left = [100 * cell.parameters / cell.parameters_before for cell in cells]
            rows.append(
                {
                    "checkpoint": entry["name"],
                    "method": label(method),
                    "ratio, %": fixed(100 * ratio, 0),
                    "times faster": Mean.of([cell.speed for cell in cells if cell.speed is not None]),
                    "parameters left, %": Mean.of(left, 1),
                    "paper: ratio, %": f"{paper.TASKS[entry['task'], 's5'].ratio:.0f}" if printed else None,
                    "paper: times faster": printed[0] if printed else None,
                }
            )
    note = "Ours on a CPU, evaluation of one batch, timed in turns with the full model; the paper's on an RTX 3090."
    if all(row["paper: times faster"] is None for row in rows):
        note = "On a CPU, evaluation of one batch, timed in turns with the full model."
    return without_empty_papers(Table("Speed of the shrunk models", rows, [note]))


def rate(query: Query) -> Table:
    """Return the accuracy at the rate of training and at others, full and pruned: the step grows as the rate falls."""
    rows = []
    rates = sorted({cell.rate for cell in query.results.cells} - {1.0}, reverse=True)
    for group in query.groups:
        for method in (FULL, *query.methods):
            at = [(entry, 0.0 if method == FULL else query.last_ratio(entry)) for entry in group.entries]
            pruned = [(entry["name"], ratio) for entry, ratio in at if ratio is not None]
            for rate in rates:
                pairs = [pair for name, ratio in pruned for pair in query.at_both_rates(name, method, ratio, rate)]
                if pairs:
                    names = {"checkpoint": group.name, "method": label(method)}
                    ratios = {"ratio, %": Mean.of([100 * ratio for _, ratio in pruned], 0)}
                    line = paper.TASKS.get((group.task, group.family))
                    rows.append(names | ratios | _at_rate(pairs, rate, line, method))
    notes = ["Pruned at the rate of training, by its scores; losses are against the unpruned model at the same rate."]
    return without_empty_papers(Table("Another sampling rate after pruning", rows, [*notes, MARKED]))


def _at_rate(pairs: list[tuple[Tested, Tested]], rate: float, line: paper.Line | None, method: str) -> Row:
    """Return the accuracies at the rate of training and at a slower one, the paper's beside."""
    return {
        "examples": max(usual.examples for usual, _ in pairs),
        "accuracy, %": Mean.of([usual.accuracy for usual, _ in pairs]),
        f"at {rate:g} of the rate, %": Mean.of([slow.accuracy for _, slow in pairs]),
        "loss there, points": _loss([slow for _, slow in pairs]),
        "paper: accuracy, %": _printed(line.accuracy, method) if line else None,
        "paper: at 0.5 of the rate, %": _printed(line.half_rate or {}, method) if line else None,
    }


def _printed(figures: dict[str, tuple[float, float]], method: str) -> str | None:
    return f"{figures[method][0]:.2f} ± {figures[method][1]:.2f}" if method in figures else None


def curves(query: Query) -> Table:
    """Return the accuracy of every method at every ratio, with marks where chance explains what is lost."""
    plain = accuracy_table(query.results)
    rows = []
    for entry in query.entries():
        for method, curve in method_curves(query.results, entry["name"]).items():
            full = curve.cells[0.0][0]
            points = {f"{ratio:.0%}": _point(full, cells) for ratio, cells in curve.cells.items()}
            rows.append({"checkpoint": entry["name"], "method": label(method), **points})
    marked = (
        "≈: not significantly below the unpruned model, p ≥ 0.05 by McNemar's exact test on the same examples; over "
    )
    marked += "several seeds an example counts once."
    return Table(plain.title, rows, [plain.notes[0], marked, *plain.notes[1:]])


def _point(full: Cell, cells: list[Cell]) -> Mean:
    lost = None if cells[0].method == FULL else compare((answers_of(full), answers_of(cell)) for cell in cells)
    same = lost is not None and not (lost.significant and lost.difference > 0)
    return Mean.of([100 * cell.accuracy for cell in cells], mark=" ≈" if same else "")


KINDS: dict[str, Callable[[Query], Table]] = {
    function.__name__: function
    for function in (claims, average, tasks, own, surgeon, curves, magnitude, random, speed, rate)
}
