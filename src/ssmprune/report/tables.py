"""The table of a sweep: the accuracy of every method at every ratio."""

from __future__ import annotations

from collections.abc import Iterable

from ..sweeps.store import FULL, Cell, Results
from .curves import checkpoints, method_curves
from .significance import compare
from .style import label
from .table_formats import Mean, Table


def accuracy_table(results: Results) -> Table:
    """Return the accuracy of every method at every ratio, on the sweep's own test examples."""
    rows = []
    compared = {cell.checkpoint for cell in results.cells if cell.method == FULL}
    for name in (name for name in checkpoints(results) if name in compared):
        for method, curve in method_curves(results, name).items():
            full = curve.cells[0.0][0]
            accuracies = {f"{ratio:.0%}": _point(full, seeds) for ratio, seeds in curve.cells.items()}
            rows.append({"checkpoint": name, "method": label(method), **accuracies})
    notes = [
        f"On {results.about['examples']:,} test examples, or all where there are fewer.",
        "≈: not significantly below the unpruned model, p ≥ 0.05 by McNemar's exact test on the same examples.",
        *_fallen_short(results.cells),
    ]
    return Table("Accuracy (%) at every pruning ratio", rows, notes)


def _fallen_short(cells: Iterable[Cell]) -> list[str]:
    """Say at which ratios less was pruned than asked for: every layer keeps a state."""
    reached: dict[float, list[float]] = {}
    for cell in cells:
        if cell.ratio - cell.pruned > 0.01:
            reached.setdefault(cell.ratio, []).append(cell.pruned)
    spans = [f"{min(shares):.1%} to {max(shares):.1%} at {ratio:.0%}" for ratio, shares in sorted(reached.items())]
    return [f"Every layer keeps a state, so some models are pruned by less: {', '.join(spans)}."] if spans else []


def _point(full: Cell, cells: list[Cell]) -> Mean:
    lost = None if cells[0].method == FULL else compare((full.answers, cell.answers) for cell in cells)
    same = lost is not None and not (lost.significant and lost.difference > 0)
    return Mean.of([100 * cell.accuracy for cell in cells], mark=" ≈" if same else "")
