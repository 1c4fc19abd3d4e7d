"""Tables from the results of a sweep: the paper's, with its own figures beside ours where it has them.

Columns that start with "paper:" are the paper's; all others are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..errors import one_of
from ..sweeps.store import FULL, Cell, Results
from ..targets.bisection import Largest
from . import paper
from .query import Query, Tested, label
from .query import curves as curves_of
from .table_formats import Mean, Table, fixed

Row = dict[str, Any]
HINF = ("uniform-hinf", "global-hinf", "last")
MAGNITUDE = ("random", "uniform-magnitude", "global-magnitude", "lamp", *HINF)
RANDOM = ("unstructured-random", "random")
AROUND_SURGEON = ("last", "aire", "balanced", "last+refit", "surgeon-without-data", "surgeon")


def make(results: Results, kind: str) -> Table:
    """Return the table called `kind`."""
    return one_of("table", kind, KINDS)(Query(results))


def curves(query: Query) -> Table:
    """Return the accuracy of every method at every ratio, on the sweep's own test examples."""
    rows = []
    for entry in query.entries():
        for method, curve in curves_of(query.results, entry["name"]).items():
            accuracies = {
                f"{ratio:.0%}": Mean.of([100 * cell.accuracy for cell in seeds]) for ratio, seeds in curve.cells.items()
            }
            rows.append({"checkpoint": entry["name"], "method": label(method), **accuracies})
    notes = [f"On {query.results.about['examples']:,} test examples.", *_fallen_short(query.results.cells)]
    return Table("Accuracy (%) at every pruning ratio", rows, notes)


def _fallen_short(cells: Iterable[Cell]) -> list[str]:
    """Say at which ratios less was pruned than asked for: every layer keeps a state."""
    reached: dict[float, list[float]] = {}
    for cell in cells:
        if cell.ratio - cell.pruned > 0.01:
            reached.setdefault(cell.ratio, []).append(cell.pruned)
    spans = [f"{min(shares):.1%} to {max(shares):.1%} at {ratio:.0%}" for ratio, shares in sorted(reached.items())]
    return [f"Every layer keeps a state, so some models are pruned by less: {', '.join(spans)}."] if spans else []


def average(query: Query) -> Table:
    """Return the average ratio and loss at LAST's largest ratios, over all tasks and over the compressible ones."""
    return _averages(query, query.methods, "Average pruning ratio and accuracy loss at LAST's largest ratio")


def magnitude(query: Query) -> Table:
    """Return the same of the magnitude criteria beside H-infinity."""
    return _averages(query, MAGNITUDE, "Magnitude and H∞ criteria at LAST's largest ratio")


def random(query: Query) -> Table:
    """Return the same of states and of single elements taken at random."""
    return _averages(query, RANDOM, "Random pruning of states and of single elements at LAST's largest ratio")


def _averages(query: Query, methods: Iterable[str], title: str) -> Table:
    rows: list[Row] = []
    orders = []
    for family in query.families:
        losses = {}
        for method in (name for name in query.methods if name in set(methods)):
            pairs = _at_last_ratios(query, family, method)
            printed = paper.AVERAGE.get((family, method)) if _all_of_the_paper(query, family) else None
            if pairs and printed:
                losses[method] = (float(np.mean([lost for _, lost in pairs])), printed[2])
            rows.append(
                {
                    "model": family.upper(),
                    "method": label(method),
                    "tasks": len(pairs),
                    "ratio (compressible only), %": _means(pairs, column=0),
                    "loss (compressible only), points": _means(pairs, column=1),
                    "paper: ratio, %": f"{printed[0]:.2f} ({printed[1]:.2f})" if printed else None,
                    "paper: loss, points": f"{printed[2]:.2f} ({printed[3]:.2f})" if printed else None,
                }
            )
        orders += _orders(family, losses)
    notes = [_how_chosen(query), *orders]
    if any(row["paper: ratio, %"] for row in rows):
        notes += [
            "The paper's averages are over 10 tasks for S5 and 8 for S4D, of models trained on GPUs; ours are over the "
            "checkpoints of this sweep.",
            *paper.ERRATA["average"],
        ]
    return _without_empty_papers(Table(title, rows, notes))


def _all_of_the_paper(query: Query, family: str) -> bool:
    """Tell whether the paper has every task that this sweep's average is over."""
    known = {task for task, _ in paper.TASKS}
    return all(entry["task"] in known for entry in query.entries(family))


def _without_empty_papers(table: Table) -> Table:
    """Leave out the paper's columns where it has no figure for any row."""
    empty = [
        name for name in table.columns if name.startswith("paper:") and all(row.get(name) is None for row in table.rows)
    ]
    rows = [{name: value for name, value in row.items() if name not in empty} for row in table.rows]
    return Table(table.title, rows, table.notes)


def _orders(family: str, losses: dict[str, tuple[float, float]]) -> list[str]:
    """Say whether the methods that both have come in the paper's order, from the smallest loss up."""
    ours, theirs = (", ".join(label(name) for name in sorted(losses, key=lambda m: losses[m][k])) for k in (0, 1))
    if len(losses) < 2:
        return []
    if ours == theirs:
        return [f"{family.upper()}: from the smallest loss up, our order is the paper's: {ours}."]
    return [f"{family.upper()}: from the smallest loss up, our order is {ours}; the paper's is {theirs}."]


def _at_last_ratios(query: Query, family: str, method: str) -> list[tuple[float, float]]:
    """Return (LAST's largest ratio in per cent, points the method loses there) of every checkpoint that has both."""
    pairs = []
    for entry in query.entries(family):
        ratio = query.last_ratio(entry)
        tests = [] if ratio is None else query.over_seeds(entry["name"], method, ratio)
        if ratio is not None and tests:
            pairs.append((100 * ratio, float(np.mean([tested.lost for tested in tests]))))
    return pairs


def _means(pairs: list[tuple[float, float]], column: int) -> str | None:
    """Return the mean over all tasks and, in brackets, over those that LAST can compress."""
    if not pairs:
        return None
    compressible = [pair[column] for pair in pairs if pair[0] > 0]
    inner = fixed(float(np.mean(compressible))) if compressible else "–"
    return f"{fixed(float(np.mean([pair[column] for pair in pairs])))} ({inner})"


def tasks(query: Query) -> Table:
    """Return every method at LAST's largest ratio of each task: mean and deviation over seeds, the paper's beside."""
    rows = []
    for (task, family), entries in _groups(query).items():
        line = paper.TASKS.get((task, family))
        ratios = [ratio for entry in entries if (ratio := query.last_ratio(entry)) is not None]
        for method in (FULL, *query.methods):
            tests = [tested for entry in entries for tested in _at_last(query, entry, method)]
            if not tests:
                continue
            printed = line is not None and method in line.accuracy
            rows.append(
                {
                    "task": task,
                    "model": family.upper(),
                    "method": label(method),
                    "ratio, %": Mean.of([0.0] if method == FULL else [100 * ratio for ratio in ratios], 0),
                    "accuracy, %": Mean.of([tested.accuracy for tested in tests]),
                    "loss, points": Mean.of([tested.lost for tested in tests]),
                    "examples": max(tested.examples for tested in tests),
                    "paper: ratio, %": _printed_ratio(line, method) if line and printed else None,
                    "paper: accuracy, %": _printed(line.accuracy, method) if line else None,
                }
            )
    notes = paper.ERRATA["tasks"] if any(row["paper: accuracy, %"] for row in rows) else []
    return _without_empty_papers(Table("Accuracy at LAST's largest ratio", rows, [_how_chosen(query), *notes]))


def own(query: Query) -> Table:
    """Return every method at the largest ratio that it reaches itself."""
    rows = []
    for entry in query.entries():
        for method in query.methods:
            by_seed = {seed: query.largest(entry, method, seed) for seed in query.seeds(entry["name"], method)}
            reached = {seed: largest for seed, largest in by_seed.items() if largest is not None}
            if reached:
                names = {"checkpoint": entry["name"], "method": label(method)}
                rows.append(names | _own(query, entry, method, reached))
    return Table("The largest ratio of each method", rows, [_how_chosen(query)])


def _own(query: Query, entry: Row, method: str, reached: dict[int, Largest]) -> Row:
    """Return what a method reaches with its seeds, and what that costs on the test set."""

    def tests(ratio_of: Callable[[Largest], float]) -> list[Tested]:
        tries = (query.test(entry["name"], method, ratio_of(reached[seed]), seed) for seed in reached)
        return [tested for tested in tries if tested]

    on_grid, exact = tests(lambda largest: largest.on_grid), tests(lambda largest: largest.exact)
    return {
        "ratio, %": Mean.of([100 * largest.on_grid for largest in reached.values()], 0),
        "test loss, points": Mean.of([tested.lost for tested in on_grid]),
        "to one state, %": Mean.of([100 * largest.exact for largest in reached.values()], 1),
        "its test loss, points": Mean.of([tested.lost for tested in exact]),
        "examples": max((tested.examples for tested in on_grid + exact), default=None),
    }


def surgeon(query: Query) -> Table:
    """Return the largest ratios within the loss: LAST, what is past it, and the average per model family."""
    methods = [name for name in AROUND_SURGEON if name in query.methods]
    rows = []
    for family in query.families:
        ratios = {entry["name"]: _largest_ratios(query, entry, methods) for entry in query.entries(family)}
        rows += [{"checkpoint": name, **row} for name, row in ratios.items()]
        if len(ratios) > 1:
            columns = {name: [row[name] for row in ratios.values()] for name in map(label, methods)}
            means = {name: _mean(column) for name, column in columns.items()}
            rows.append({"checkpoint": f"average of {family.upper()}", **means})
    note = "In per cent of the states, to one state. The surgeon and the refits see 200 unlabelled training sequences."
    return Table(f"Largest ratio (%) that loses at most {query.budget:g} point", rows, [note, _how_chosen(query)])


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
        timed: dict[tuple[str, float], list[Cell]] = {}
        for cell in query.results.cells:
            if cell.checkpoint == entry["name"] and cell.speed is not None and cell.parameters < cell.parameters_before:
                timed.setdefault((cell.method, cell.ratio), []).append(cell)
        for (method, ratio), cells in timed.items():
            same = method == "last" and ratio == query.last_ratio(entry) and entry["family"] == "s5"
            printed = paper.SPEED.get(entry["task"]) if same else None
            left = [100 * cell.parameters / cell.parameters_before for cell in cells]
            rows.append(
                {
                    "checkpoint": entry["name"],
                    "method": label(method),
                    "ratio, %": f"{100 * ratio:.0f}",
                    "times faster": Mean.of([cell.speed for cell in cells if cell.speed is not None]),
                    "parameters left, %": Mean.of(left, 1),
                    "paper: ratio, %": f"{paper.TASKS[entry['task'], 's5'].ratio:.0f}" if printed else None,
                    "paper: times faster": printed[0] if printed else None,
                }
            )
    note = "Ours on a CPU, evaluation of one batch, timed in turns with the full model; the paper's on an RTX 3090."
    if all(row["paper: times faster"] is None for row in rows):
        note = "On a CPU, evaluation of one batch, timed in turns with the full model."
    return _without_empty_papers(Table("Speed of the shrunk models", rows, [note]))


def rate(query: Query) -> Table:
    """Return the accuracy at the rate of training and at others, full and pruned: the step grows as the rate falls."""
    rows = []
    rates = sorted({cell.rate for cell in query.results.cells} - {1.0}, reverse=True)
    for (task, family), entries in _groups(query).items():
        for method in (FULL, *query.methods):
            at = [(entry, 0.0 if method == FULL else query.last_ratio(entry)) for entry in entries]
            pruned = [(entry["name"], ratio) for entry, ratio in at if ratio is not None]
            for rate in rates:
                pairs = [pair for name, ratio in pruned for pair in query.at_both_rates(name, method, ratio, rate)]
                if pairs:
                    names = {"task": task, "model": family.upper(), "method": label(method)}
                    ratios = {"ratio, %": Mean.of([100 * ratio for _, ratio in pruned], 0)}
                    rows.append(names | ratios | _at_rate(pairs, rate, paper.TASKS.get((task, family)), method))
    note = "Pruned at the rate of training, by its scores."
    return _without_empty_papers(Table("Another sampling rate after pruning", rows, [note]))


def _at_rate(pairs: list[tuple[Tested, Tested]], rate: float, line: paper.Line | None, method: str) -> Row:
    """Return the accuracies at the rate of training and at a slower one, the paper's beside."""
    return {
        "examples": max(usual.examples for usual, _ in pairs),
        "accuracy, %": Mean.of([usual.accuracy for usual, _ in pairs]),
        f"at {rate:g} of the rate, %": Mean.of([slow.accuracy for _, slow in pairs]),
        "paper: accuracy, %": _printed(line.accuracy, method) if line else None,
        "paper: at 0.5 of the rate, %": _printed(line.half_rate or {}, method) if line else None,
    }


def _printed_ratio(line: paper.Line, method: str) -> str | int:
    return 0 if method == FULL else f"{line.ratio:.0f}"


def _printed(figures: dict[str, tuple[float, float]], method: str) -> str | None:
    return f"{figures[method][0]:.2f} ± {figures[method][1]:.2f}" if method in figures else None


def _groups(query: Query) -> dict[tuple[str, str], list[Row]]:
    """Return the checkpoints of each task and family: the same model trained with several seeds."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for entry in query.entries():
        groups.setdefault((entry["task"], entry["family"]), []).append(entry)
    return groups


def _at_last(query: Query, entry: Row, method: str) -> list[Tested]:
    ratio = query.last_ratio(entry)
    if ratio is None and method != FULL:
        return []
    return query.over_seeds(entry["name"], method, 0.0 if method == FULL else ratio or 0.0)


def _how_chosen(query: Query) -> str:
    searched = any(cell.split == "val" for cell in query.results.cells)
    where = "validation examples" if searched else "the test examples of the sweep"
    within = f"at most {query.budget:g} point of accuracy"
    return f"Largest ratios lose {within} on {where}; accuracies are on test examples."


KINDS: dict[str, Callable[[Query], Table]] = {
    function.__name__: function for function in (average, tasks, own, surgeon, curves, magnitude, random, speed, rate)
}
