"""Scores of the states of every layer, sorted by their H-infinity score (the paper's figure 3, top)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ssmprune import make_plan
from ssmprune.arrays import Real
from ssmprune.methods import descending, energy_normalised
from ssmprune.report import panels, shared_legend, styles, systems
from ssmprune.sweeps import Results

from .choice import Choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(results: Results, choice: Choice) -> Figure:
    """Draw H-infinity scores and what LAST makes of them, with the line below which LAST prunes at the ratio."""
    plan = make_plan(systems(results, choice.checkpoint), choice.ratio)
    last = {layer: energy_normalised(scores) for layer, scores in plan.scores.items()}
    figure, [left, right] = panels(2, width=3.6, height=3.4)
    _lines(left, plan.scores, plan.scores)
    _lines(right, last, plan.scores)
    left.set(title="H∞ score", ylabel="score")
    right.set(title="LAST score: share of the sum down to it")
    lowest_kept = min(float(last[layer][keep].min(initial=np.inf)) for layer, keep in plan.keep.items())
    right.axhline(np.exp(lowest_kept), color="0.4", linewidth=1, label=f"LAST keeps from here at {choice.ratio:.0%}")
    figure.suptitle(choice.checkpoint, fontsize="medium")
    shared_legend(figure, right, columns=5)
    return figure


def _lines(axes: Axes, scores: dict[str, Real], order: dict[str, Real]) -> None:
    looks = styles(scores)
    for layer, values in scores.items():
        ranked = np.exp(values[descending(order[layer])])
        spacing = max(1, len(ranked) // 8)
        axes.plot(np.arange(1, len(ranked) + 1), ranked, label=layer, markevery=spacing, markersize=4, **looks[layer])
    axes.set(yscale="log", xlabel="stored state, by H∞ score")
