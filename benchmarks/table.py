"""Measured figures with their bounds, and tables of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from timing import Samples

NOT_MEASURED = "not measured here"


@dataclass(frozen=True)
class Figure:
    """One number, what it may be, and numbers to read it beside."""

    what: str
    value: float | None
    unit: str = "x"
    quartiles: tuple[float, float] | None = None
    at_most: float | None = None
    at_least: float | None = None
    beside: dict[str, float] = field(default_factory=dict)

    @property
    def bound(self) -> str:
        limits = {"≤": self.at_most, "≥": self.at_least}
        return ", ".join(f"{sign} {number(limit)}" for sign, limit in limits.items() if limit is not None)

    @property
    def met(self) -> bool | None:
        """None where there is no bound, or nothing could be measured."""
        if self.value is None or not self.bound:
            return None
        below = self.at_most is None or self.value <= self.at_most
        return below and (self.at_least is None or self.value >= self.at_least)

    def cells(self) -> dict[str, str]:
        measured = NOT_MEASURED if self.value is None else f"{number(self.value)} {self.unit}"
        return {
            "figure": self.what,
            "measured": measured,
            "quartiles": " to ".join(map(number, self.quartiles)) if self.quartiles else "",
            "bound": self.bound,
            "met": {None: "", True: "yes", False: "**no**"}[self.met],
            "beside": ", ".join(f"{name} {number(value)}" for name, value in self.beside.items()),
        }


def of(what: str, measured: Samples | dict[str, Any], unit: str = "x", scale: float = 1.0, **rest: Any) -> Figure:
    """The figure of samples, or of what their `to_dict` gave, in another unit."""
    data = measured.to_dict() if isinstance(measured, Samples) else measured
    low, high = data["quartiles"]
    return Figure(what, scale * data["median"], unit, (scale * low, scale * high), **rest)


def milliseconds(what: str, seconds: Samples | dict[str, Any]) -> Figure:
    """A time as people read it."""
    return of(what, seconds, "ms", 1e3)


def number(value: float) -> str:
    """Three digits that matter, without exponents where people would not write them.

    >>> number(0.9123), number(12345.6), number(3e-7)
    ('0.912', '12,346', '3e-07')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def markdown(figures: list[Figure]) -> str:
    """A table whose columns line up; columns that would be empty are left out."""
    rows = [figure.cells() for figure in figures]
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    lines = [names, *([row[name] for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def prepare() -> None:
    """Numbers too small to be normal count as zero, for us and our peers; threads that start later inherit it."""
    torch.set_flush_denormal(True)


def show(title: str | None, measure: Callable[[], list[Figure]]) -> None:
    """What a script of this folder does when it runs alone."""
    prepare()
    print(f"{title}\n{markdown(measure())}")
