"""The table of a sweep, with the accuracy of all methods at all ratios, and tables as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import visible
from ..sweeps.store import Cell, Results
from .curves import checkpoints, method_curves
from .style import label

MARKDOWN = {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {letter: f"\\{letter}" for letter in "\\`[]|"}


@dataclass(frozen=True)
class Table:
    """Rows of the same columns, a title, and notes to stand below."""

    title: str
    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Return the columns of all rows, in the order they appear."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def texts(self) -> list[list[str]]:
        """Return what each row shows in each column."""
        return [[_format(row.get(name)) for name in self.columns] for row in self.rows]


def fixed(value: float, digits: int = 2) -> str:
    """Return a number with `digits` digits after the point, and 0 without a sign.

    >>> fixed(-0.001), fixed(-0.1)
    ('0.00', '-0.10')
    """
    return f"{round(value, digits) + 0.0:.{digits}f}"


def markdown(table: Table) -> str:
    """Return a table that GitHub shows.

    >>> print(markdown(Table("Loss", [{"method": "LAST", "points": 0.5}], ["On sMNIST."])))
    ### Loss
    <BLANKLINE>
    | method | points |
    |---|---|
    | LAST | 0.50 |
    <BLANKLINE>
    On sMNIST.
    """
    columns, *rows = [list(map(escape_markdown, line)) for line in (table.columns, *table.texts())]
    return "\n\n".join([f"### {table.title}", markdown_rows(columns, rows), *table.notes])


def markdown_rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the lines of a Markdown table, of texts that are Markdown already."""
    head, *body = (f"| {' | '.join(line)} |" for line in [columns, *rows])
    return "\n".join([head, f"|{'---|' * len(columns)}", *body])


def _format(value: Any) -> str:
    if value is None:
        return "–"
    return fixed(value) if isinstance(value, float) else str(value)


def escape_markdown(text: str) -> str:
    r"""Return a text that Markdown, and the HTML it becomes, show letter by letter, in a cell of a table as well.

    >>> print(escape_markdown("a|b <script> [x](y)"))
    a\|b &lt;script&gt; \[x\](y)
    """
    return replace_all(text, MARKDOWN)


def replace_all(text: str, replacements: dict[str, str]) -> str:
    """Replace all keys at once, so that no replacement is replaced again; control characters are written out."""
    pattern = "|".join(map(re.escape, replacements))
    return re.sub(pattern, lambda found: replacements[found[0]], visible(text))


def accuracy_table(results: Results) -> Table:
    """Return the accuracy of all methods at all ratios on the sweep's test examples; ± is the deviation over seeds."""
    rows = []
    for name in checkpoints(results):
        for method, curve in method_curves(results, name).items():
            points = zip(curve.cells.items(), 100 * curve.accuracy, 100 * curve.deviation, strict=True)
            accuracies = {
                f"{ratio:.0%}": fixed(accuracy) + (f" ± {spread:.2f}" if len(seeds) > 1 else "")
                for (ratio, seeds), accuracy, spread in points
            }
            rows.append({"checkpoint": name, "method": label(method), **accuracies})
    notes = [
        f"On {results.about['examples']:,} test examples, or all where there are fewer.",
        *_fallen_short(results.cells),
    ]
    return Table("Accuracy (%) at every pruning ratio", rows, notes)


def _fallen_short(cells: Iterable[Cell]) -> list[str]:
    """Say at which ratios models lost fewer states than asked for, because each layer keeps a state."""
    reached: dict[float, list[float]] = {}
    for cell in cells:
        if cell.ratio - cell.pruned > 0.01:
            reached.setdefault(cell.ratio, []).append(cell.pruned)
    spans = [f"{min(shares):.1%} to {max(shares):.1%} at {ratio:.0%}" for ratio, shares in sorted(reached.items())]
    return [f"Every layer keeps a state, so some models are pruned by less: {', '.join(spans)}."] if spans else []
