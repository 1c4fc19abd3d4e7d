"""Figures: functions `draw(results, choice)`, one for each kind.

The trade-off, with the accuracies of all checkpoints, is that of `ssmprune.report`; `scores`, `states` and `poles` show
one of them, `choice` says which; `stability` is the same for every sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ssmprune.errors import one_of
from ssmprune.report import checkpoints, draw_sweep, need_matplotlib, save_figure
from ssmprune.sweeps import Results

from . import poles, scores, stability, states
from .choice import Choice, choose

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Choice", "choose", "draw", "found", "need_matplotlib", "save_figure", "write_all"]
ONCE = ("trade-off", "stability")  # of a sweep; the others show one checkpoint


def found() -> dict[str, Callable[[Results, Choice], Figure]]:
    """Return every kind of figure by name.

    >>> sorted(found())
    ['memory', 'poles', 'scores', 'stability', 'states', 'trade-off']
    """
    return {
        "memory": poles.draw_memory,
        "poles": poles.draw,
        "scores": scores.draw,
        "stability": stability.draw,
        "states": states.draw,
        "trade-off": lambda results, choice: draw_sweep(results),
    }


def draw(kind: str, results: Results, choice: Choice) -> Figure:
    """Draw a figure of the kind called `kind`."""
    need_matplotlib()
    drawing = one_of("figure", kind, found())
    from matplotlib import rc_context

    with rc_context({"text.parse_math": kind == "stability"}):  # a dollar in a name is one
        return drawing(results, choice)


def write_all(results: Results, folder: Path, suffix: str = ".png") -> list[Path]:
    """Draw every kind into a folder, those that show a checkpoint for the first of each family; return the files."""
    return list(_write(results, folder, suffix))


def _write(results: Results, folder: Path, suffix: str) -> Iterator[Path]:
    for kind in found():
        for name in checkpoints(results)[:1] if kind in ONCE else _first_of_each_family(results):
            path = folder / f"{kind if kind in ONCE else f'{kind}-{name}'}{suffix}"
            save_figure(draw(kind, results, choose(results, name)), path)
            yield path


def _first_of_each_family(results: Results) -> list[str]:
    first: dict[str, str] = {}
    for name in checkpoints(results):
        first.setdefault(results.entry(name)["family"], name)
    return list(first.values())
