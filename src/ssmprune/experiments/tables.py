"""Tables from the results of a sweep: the paper's, with its own figures beside ours where it has them."""

from __future__ import annotations

from typing import Any

from .results import Cell, Results

Row = dict[str, Any]


def curves(results: Results) -> list[Row]:
    """Accuracy in per cent of every method at every ratio of the sweep, on the test examples of the sweep."""
    rows = []
    for checkpoint in (entry["name"] for entry in results.about["checkpoints"]):
        for method in ("full", *results.about["methods"]):
            cells = [cell for cell in tested(results, checkpoint) if cell.method == method]
            if cells:
                rows.append({"checkpoint": checkpoint, "method": method, **_by_ratio(cells, results.about["ratios"])})
    return rows


def tested(results: Results, checkpoint: str) -> list[Cell]:
    """The cells of a checkpoint on the sweep's own test examples, at the rate of training."""
    own = [cell for cell in results.cells if cell.checkpoint == checkpoint and cell.split == "test" and cell.rate == 1]
    return [cell for cell in own if cell.examples <= results.about["examples"]]


def _by_ratio(cells: list[Cell], ratios: list[float]) -> Row:
    row = {}
    for ratio in ratios:
        seen = [cell.accuracy for cell in cells if cell.ratio == ratio or cell.method == "full"]
        row[f"{ratio:.0%}"] = f"{100 * sum(seen) / len(seen):.2f}" if seen else ""
    return row
