"""How tables are written: Markdown, LaTeX, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import visible

LATEX = {"H∞": r"$\mathcal{H}_\infty$", "±": r"$\pm$", "≤": r"$\leq$", "\\": r"\textbackslash{}"}
LATEX |= {"≥": r"$\geq$", "≈": r"$\approx$", "λ": r"$\lambda$", "ρ": r"$\rho$"}
LATEX |= {letter: f"\\{letter}" for letter in "%&_#${}"}
LATEX |= {"^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}"}
MARKDOWN = {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {letter: f"\\{letter}" for letter in "\\`[]|"}


@dataclass(frozen=True)
class Mean:
    """A mean with its standard deviation over seeds; `digits` after the point are shown, and a mark behind them.

    >>> print(Mean.of([99.0, 99.5]), Mean.of([99.0]), Mean.of([]))
    99.25 ± 0.25 99.00 –
    """

    value: float | None
    deviation: float = 0.0
    seeds: int = 1
    digits: int = 2
    mark: str = ""

    @classmethod
    def of(cls, values: Sequence[float], digits: int = 2, mark: str = "") -> Mean:
        """Return the mean of values, a dash where there are none."""
        if not values:
            return cls(None, 0.0, 0, digits)
        return cls(float(np.mean(values)), float(np.std(values)), len(values), digits, mark)

    def __str__(self) -> str:
        """Show the deviation where there is more than one seed."""
        if self.value is None:
            return "–"
        spread = f" ± {self.deviation:.{self.digits}f}" if self.seeds > 1 else ""
        return fixed(self.value, self.digits) + spread + self.mark


@dataclass(frozen=True)
class Table:
    """Rows of the same columns, a title, and notes to stand below."""

    title: str
    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Return every column that a row has, in the order they appear."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def texts(self) -> list[list[str]]:
        """Return what each row shows in each column."""
        return [[_format(row.get(name)) for name in self.columns] for row in self.rows]


def fixed(value: float, digits: int = 2) -> str:
    """Return a number with so many digits after the point; there is no -0.

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
    body = markdown_rows(
        list(map(escape_markdown, table.columns)), [list(map(escape_markdown, line)) for line in table.texts()]
    )
    return "\n\n".join([f"### {table.title}", body, *table.notes])


def markdown_rows(columns: Sequence[str], rows: Iterable[Sequence[str]], *, aligned: bool = False) -> str:
    """Return the lines of a Markdown table; `aligned` columns line up for those who read the source.

    >>> print(markdown_rows(["method", "points"], [["LAST", "0.50"]], aligned=True))
    | method | points |
    | ------ | ------ |
    | LAST   | 0.50   |
    """
    lines = [columns, *rows]
    if not aligned:
        head, *body = (f"| {' | '.join(line)} |" for line in lines)
        return "\n".join([head, f"|{'---|' * len(columns)}", *body])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def latex(table: Table) -> str:
    """Return a table for booktabs."""
    lines = [" & ".join(map(_escape, line)) + r" \\" for line in [table.columns, *table.texts()]]
    notes = "".join(f" {_escape(note)}" for note in table.notes)
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_escape(table.title)}.{notes}}}",
            rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def as_json(table: Table) -> str:
    """Return the numbers as JSON, unrounded."""
    rows = [{name: _plain(value) for name, value in row.items()} for row in table.rows]
    return json.dumps({"title": table.title, "rows": rows, "notes": table.notes}, indent=2)


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": markdown, "latex": latex, "json": as_json}


def _format(value: Any) -> str:
    if value is None:
        return "–"
    return fixed(value) if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mean):
        plain = {"mean": value.value, "deviation": value.deviation, "seeds": value.seeds}
        return plain | ({"mark": value.mark.strip()} if value.mark else {})
    return value


def escape_markdown(text: str) -> str:
    r"""Return a text that Markdown, and the HTML it becomes, show letter by letter, in a cell of a table as well.

    >>> print(escape_markdown("a|b <script> [x](y)"))
    a\|b &lt;script&gt; \[x\](y)
    """
    return _replace(text, MARKDOWN)


def _escape(text: str) -> str:
    return _replace(text, LATEX)


def _replace(text: str, replacements: dict[str, str]) -> str:
    """Replace all keys in one go, so that what was put in is not replaced again; control characters are written out."""
    pattern = "|".join(map(re.escape, replacements))
    return re.sub(pattern, lambda found: replacements[found[0]], visible(text))
