"""Tables from the results of a sweep: the paper's, with its own figures beside ours where it has them.

Columns that start with "paper:" are the paper's; all others are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..errors import InputError
from ..sweeps.store import FULL, Cell, Results
from . import paper
from .curves import curves as curves_of
from .curves import label
from .query import Tested, View
from .table_formats import Mean, Table, fixed

Row = dict[str, Any]
HINF = ("uniform-hinf", "global-hinf", "last")
MAGNITUDE = ("random", "uniform-magnitude", "global-magnitude", "lamp", *HINF)
RANDOM = ("unstructured-random", "random")
SURGEON = ("last", "aire", "balanced", "last+refit", "surgeon-without-data", "surgeon")


def make(results: Results, kind: str) -> Table:
    """The table called `kind`, or an error that lists them."""
    if kind not in KINDS:
        raise InputError(f"There is no table {kind!r}; there are {', '.join(KINDS)}.")
    return KINDS[kind](View(results))


def curves(view: View) -> Table:
    """Accuracy of every method at every ratio, on the sweep's own test examples."""
    rows = []
    for entry in view.entries():
        for method, curve in curves_of(view.results, entry["name"]).items():
            at = zip(curve.ratios, curve.cells.values(), strict=True)
            shown = {f"{ratio:.0%}": Mean.of([100 * cell.accuracy for cell in seeds]) for ratio, seeds in at}
            rows.append({"checkpoint": entry["name"], "method": label(method), **shown})
    return Table("Accuracy (%) at every pruning ratio", rows, [f"On {view.results.about['examples']:,} test examples."])


def average(view: View) -> Table:
    """Average pruning ratio and loss at LAST's largest ratios, over all tasks and over the compressible ones."""
    return _averages(view, view.methods, "Average pruning ratio and accuracy loss at LAST's largest ratio")


def magnitude(view: View) -> Table:
    """The same of the magnitude criteria beside H-infinity."""
    return _averages(view, MAGNITUDE, "Magnitude and H∞ criteria at LAST's largest ratio")


def random(view: View) -> Table:
    """The same of states and of single elements taken at random."""
    return _averages(view, RANDOM, "Random pruning of states and of single elements at LAST's largest ratio")


def _averages(view: View, methods: Iterable[str], title: str) -> Table:
    rows: list[Row] = []
    orders = []
    for family in view.families:
        losses = {}
        for method in (name for name in view.methods if name in set(methods)):
            at_last = [(view.last_ratio(entry), _lost_at_last(view, entry, method)) for entry in view.entries(family)]
            known = [(100 * ratio, lost) for ratio, lost in at_last if ratio is not None and lost is not None]
            squeezed = [(ratio, lost) for ratio, lost in known if ratio > 0]
            printed = paper.AVERAGE.get((family, method))
            if known and printed:
                losses[method] = (float(np.mean([lost for _, lost in known])), printed[2])
            row: Row = {"model": family.upper(), "method": label(method), "tasks": len(known)}
            row |= {"ratio (compressible only), %": _pair(known, squeezed, 0)}
            row |= {"loss (compressible only), points": _pair(known, squeezed, 1)}
            row |= {"paper: ratio, %": f"{printed[0]:.2f} ({printed[1]:.2f})" if printed else None}
            row |= {"paper: loss, points": f"{printed[2]:.2f} ({printed[3]:.2f})" if printed else None}
            rows.append(row)
        orders += _orders(family, losses)
    notes = [
        _how_chosen(view),
        *orders,
        "The paper's averages are over 10 tasks for S5 and 8 for S4D, of models trained on GPUs; ours are over the "
        "checkpoints of this sweep.",
        *paper.ERRATA["average"],
    ]
    return Table(title, rows, notes)


def _orders(family: str, losses: dict[str, tuple[float, float]]) -> list[str]:
    """Whether the methods that both have come in the paper's order, from the smallest loss up."""
    ours, theirs = (", ".join(label(name) for name in sorted(losses, key=lambda m: losses[m][k])) for k in (0, 1))
    if len(losses) < 2:
        return []
    if ours == theirs:
        return [f"{family.upper()}: from the smallest loss up, our order is the paper's: {ours}."]
    return [f"{family.upper()}: from the smallest loss up, our order is {ours}; the paper's is {theirs}."]


def _lost_at_last(view: View, entry: Row, method: str) -> float | None:
    ratio = view.last_ratio(entry)
    if ratio is None:
        return None
    seen = view.over_seeds(entry["name"], method, ratio)
    return float(np.mean([one.lost for one in seen])) if seen else None


def _pair(every: list[tuple[float, float]], squeezed: list[tuple[float, float]], column: int) -> str | None:
    if not every:
        return None
    inner = fixed(float(np.mean([line[column] for line in squeezed]))) if squeezed else "–"
    return f"{fixed(float(np.mean([line[column] for line in every])))} ({inner})"


def tasks(view: View) -> Table:
    """Every method at LAST's largest ratio of each task: mean and deviation over seeds, the paper's beside."""
    rows = []
    for (task, family), entries in _groups(view).items():
        line = paper.TASKS.get((task, family))
        ratios = [ratio for entry in entries if (ratio := view.last_ratio(entry)) is not None]
        for method in (FULL, *view.methods):
            seen = [one for entry in entries for one in _at_last(view, entry, method)]
            if not seen:
                continue
            printed = line.accuracy.get(method) if line else None
            rows.append(
                {
                    "task": task,
                    "model": family.upper(),
                    "method": label(method),
                    "ratio, %": Mean.of([0.0] if method == FULL else [100 * ratio for ratio in ratios], 0),
                    "accuracy, %": Mean.of([one.accuracy for one in seen]),
                    "loss, points": Mean.of([one.lost for one in seen]),
                    "examples": max(one.examples for one in seen),
                    "paper: ratio, %": None
                    if not line or not printed
                    else 0
                    if method == FULL
                    else f"{line.ratio:.0f}",
                    "paper: accuracy, %": f"{printed[0]:.2f} ± {printed[1]:.2f}" if printed else None,
                }
            )
    return Table("Accuracy at LAST's largest ratio", rows, [_how_chosen(view), *paper.ERRATA["tasks"]])


def own(view: View) -> Table:
    """Every method at the largest ratio that it reaches itself."""
    rows = []
    for entry in view.entries():
        for method in view.methods:
            seeds = view.seeds(entry["name"], method)
            found = {seed: largest for seed in seeds if (largest := view.largest(entry, method, seed))}
            seen = [view.tested(entry["name"], method, largest.on_grid, seed) for seed, largest in found.items()]
            exact = [view.tested(entry["name"], method, largest.exact, seed) for seed, largest in found.items()]
            if found:
                rows.append(
                    {
                        "checkpoint": entry["name"],
                        "method": label(method),
                        "ratio, %": Mean.of([100 * largest.on_grid for largest in found.values()], 0),
                        "test loss, points": Mean.of([one.lost for one in seen if one]),
                        "to one state, %": Mean.of([100 * largest.exact for largest in found.values()], 1),
                        "its test loss, points": Mean.of([one.lost for one in exact if one]),
                        "examples": max((one.examples for one in seen + exact if one), default=None),
                    }
                )
    return Table("The largest ratio of each method", rows, [_how_chosen(view)])


def surgeon(view: View) -> Table:
    """The largest ratio within the loss: LAST, what is past it, and the average per model family."""
    methods = [name for name in SURGEON if name in view.methods]
    rows = []
    for family in view.families:
        found = {entry["name"]: _largest_ratios(view, entry, methods) for entry in view.entries(family)}
        rows += [{"checkpoint": name, **row} for name, row in found.items()]
        if len(found) > 1:
            means = {key: [row[key] for row in found.values() if row[key] is not None] for key in map(label, methods)}
            mean = {key: float(np.mean(values)) if values else None for key, values in means.items()}
            rows.append({"checkpoint": f"average of {family.upper()}", **mean})
    note = "In per cent of the states, to one state. The surgeon and the refits see 200 unlabelled training sequences."
    return Table(f"Largest ratio (%) that loses at most {view.budget:g} point", rows, [note, _how_chosen(view)])


def _largest_ratios(view: View, entry: Row, methods: list[str]) -> Row:
    found = {method: view.largest(entry, method) for method in methods}
    return {label(method): 100 * largest.exact if largest else None for method, largest in found.items()}


def speed(view: View) -> Table:
    """How much faster the pruned models are, where that was measured."""
    rows = []
    for entry in view.entries():
        timed: dict[tuple[str, float], list[Cell]] = {}
        for cell in view.results.cells:
            if cell.checkpoint == entry["name"] and cell.speed is not None and cell.parameters < cell.parameters_before:
                timed.setdefault((cell.method, cell.ratio), []).append(cell)
        for (method, ratio), cells in timed.items():
            same = method == "last" and ratio == view.last_ratio(entry) and entry["family"] == "s5"
            printed = paper.SPEED.get(entry["task"]) if same else None
            row: Row = {"checkpoint": entry["name"], "method": label(method), "ratio, %": f"{100 * ratio:.0f}"}
            row |= {"times faster": Mean.of([cell.speed for cell in cells if cell.speed is not None])}
            row |= {
                "parameters left, %": Mean.of([100 * cell.parameters / cell.parameters_before for cell in cells], 1)
            }
            row |= {"paper: ratio, %": f"{paper.TASKS[entry['task'], 's5'].ratio:.0f}" if printed else None}
            row |= {"paper: times faster": printed[0] if printed else None}
            rows.append(row)
    note = "Ours on a CPU, evaluation of one batch, timed in turns with the full model; the paper's on an RTX 3090."
    return Table("Speed of the shrunk models", rows, [note])


def rate(view: View) -> Table:
    """Accuracy at the rate of training and at others, full and pruned: the step grows as the rate falls."""
    rows = []
    for (task, family), entries in _groups(view).items():
        line = paper.TASKS.get((task, family))
        printed = line.half_rate if line and line.half_rate else {}
        for method in (FULL, *view.methods):
            at = [(entry, 0.0 if method == FULL else view.last_ratio(entry)) for entry in entries]
            for slow in sorted({cell.rate for cell in view.results.cells} - {1.0}, reverse=True):
                pairs = [
                    pair
                    for entry, ratio in at
                    if ratio is not None
                    for pair in view.at_both_rates(entry["name"], method, ratio, slow)
                ]
                if pairs:
                    rows.append(
                        {
                            "task": task,
                            "model": family.upper(),
                            "method": label(method),
                            "ratio, %": Mean.of([100 * ratio for _, ratio in at if ratio is not None], 0),
                            "examples": max(usual.examples for usual, _ in pairs),
                            "accuracy, %": Mean.of([usual.accuracy for usual, _ in pairs]),
                            f"at {slow:g} of the rate, %": Mean.of([slowed.accuracy for _, slowed in pairs]),
                            "paper: accuracy, %": _printed(line.accuracy if line else {}, method),
                            "paper: at 0.5 of the rate, %": _printed(printed, method),
                        }
                    )
    return Table("Another sampling rate after pruning", rows, ["Pruned at the rate of training, by its scores."])


def _printed(figures: dict[str, tuple[float, float]], method: str) -> str | None:
    return f"{figures[method][0]:.2f} ± {figures[method][1]:.2f}" if method in figures else None


def _groups(view: View) -> dict[tuple[str, str], list[Row]]:
    """Checkpoints of one task and family: the same model trained with several seeds."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for entry in view.entries():
        groups.setdefault((entry["task"], entry["family"]), []).append(entry)
    return groups


def _at_last(view: View, entry: Row, method: str) -> list[Tested]:
    ratio = view.last_ratio(entry)
    if ratio is None and method != FULL:
        return []
    return view.over_seeds(entry["name"], method, 0.0 if method == FULL else ratio or 0.0)


def _how_chosen(view: View) -> str:
    searched = any(cell.split == "val" for cell in view.results.cells)
    where = "validation examples" if searched else "the test examples of the sweep"
    return f"Largest ratios lose at most {view.budget:g} point of accuracy on {where}; accuracies are on test examples."


KINDS: dict[str, Callable[[View], Table]] = {
    function.__name__: function for function in (average, tasks, own, surgeon, curves, magnitude, random, speed, rate)
}
