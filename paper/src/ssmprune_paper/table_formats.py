"""How the paper's tables are written: Markdown as in the library, LaTeX, JSON; means over seeds in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ssmprune.report import Table, fixed, markdown, replace_all

LATEX = {"H∞": r"$\mathcal{H}_\infty$", "±": r"$\pm$", "≤": r"$\leq$", "\\": r"\textbackslash{}"}
LATEX |= {"≥": r"$\geq$", "≈": r"$\approx$", "λ": r"$\lambda$", "ρ": r"$\rho$"}
LATEX |= {letter: f"\\{letter}" for letter in "%&_#${}"}
LATEX |= {"^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}"}


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


def _plain(value: Any) -> Any:
    if isinstance(value, Mean):
        plain = {"mean": value.value, "deviation": value.deviation, "seeds": value.seeds}
        return plain | ({"mark": value.mark.strip()} if value.mark else {})
    return value


def _escape(text: str) -> str:
    return replace_all(text, LATEX)
