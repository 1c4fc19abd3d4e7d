"""How tables are written: Markdown, LaTeX, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LATEX = {"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "H∞": r"$\mathcal{H}_\infty$", "±": r"$\pm$", "≤": r"$\leq$"}


@dataclass(frozen=True)
class Mean:
    """A mean with its standard deviation over seeds; `digits` after the point are shown.

    >>> print(Mean.of([99.0, 99.5]), Mean.of([99.0]), Mean.of([]))
    99.25 ± 0.25 99.00 –
    """

    value: float | None
    deviation: float = 0.0
    seeds: int = 1
    digits: int = 2

    @classmethod
    def of(cls, values: Sequence[float], digits: int = 2) -> Mean:
        """Of these values, none of which may also be."""
        if not values:
            return cls(None, 0.0, 0, digits)
        return cls(float(np.mean(values)), float(np.std(values)), len(values), digits)

    def __str__(self) -> str:
        """Show the deviation where there is more than one seed."""
        if self.value is None:
            return "–"
        spread = f" ± {self.deviation:.{self.digits}f}" if self.seeds > 1 else ""
        return fixed(self.value, self.digits) + spread


@dataclass(frozen=True)
class Table:
    """Rows of the same columns, a title, and notes to stand below."""

    title: str
    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Every column that a row has, in the order they appear."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def texts(self) -> list[list[str]]:
        """What each row shows in each column."""
        return [[_shown(row.get(name)) for name in self.columns] for row in self.rows]


def fixed(value: float, digits: int = 2) -> str:
    """A number with so many digits after the point; there is no -0.

    >>> fixed(-0.001), fixed(-0.1)
    ('0.00', '-0.10')
    """
    return f"{round(value, digits) + 0.0:.{digits}f}"


def markdown(table: Table) -> str:
    """A table that GitHub shows.

    >>> print(markdown(Table("Loss", [{"method": "LAST", "points": 0.5}], ["On sMNIST."])))
    ### Loss
    <BLANKLINE>
    | method | points |
    |---|---|
    | LAST | 0.50 |
    <BLANKLINE>
    On sMNIST.
    """
    lines = [table.columns, ["---"] * len(table.columns), *table.texts()]
    body = [f"| {' | '.join(line)} |" if line is not lines[1] else f"|{'|'.join(line)}|" for line in lines]
    return "\n".join([f"### {table.title}", "", *body, *(part for note in table.notes for part in ("", note))])


def latex(table: Table) -> str:
    """A table for booktabs."""
    lines = [" & ".join(map(_escaped, line)) + r" \\" for line in [table.columns, *table.texts()]]
    notes = "".join(f" {_escaped(note)}" for note in table.notes)
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_escaped(table.title)}.{notes}}}",
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
    """The numbers, unrounded."""
    rows = [{name: _plain(value) for name, value in row.items()} for row in table.rows]
    return json.dumps({"title": table.title, "rows": rows, "notes": table.notes}, indent=2)


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": markdown, "latex": latex, "json": as_json}


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return fixed(value) if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mean):
        return {"mean": value.value, "deviation": value.deviation, "seeds": value.seeds}
    return value


def _escaped(text: str) -> str:
    for plain, escaped in LATEX.items():
        text = text.replace(plain, escaped)
    return text
