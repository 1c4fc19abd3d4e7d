"""Where second-order systems are stable, and how much of it training may search (the paper's appendix A)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ssmprune.report import COLOURS, panels
from ssmprune.sweeps import Results

from .choice import Choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRIANGLE = [(-2, 1), (2, 1), (0, -1)]  # a_2² < 1 and (1 + a_2)² > a_1²: the poles of z² + a_1 z + a_2 inside the circle
DIAMOND = [(-1, 0), (0, 1), (1, 0), (0, -1)]  # |a_1| + |a_2| <= 1: Montel's condition, sufficient


def draw(_results: Results, _choice: Choice) -> Figure:
    """Draw the coefficient plane, which is the same for every sweep."""
    figure, [axes] = panels(1, width=5.2, height=3.6)
    axes.fill(*np.transpose(TRIANGLE), facecolor="#D6E6F2", edgecolor=COLOURS[0], linewidth=1.5, label="stable")
    axes.fill(
        *np.transpose(DIAMOND),
        facecolor="none",
        edgecolor=COLOURS[1],
        hatch="///",
        linewidth=1.5,
        linestyle="--",
        label="Montel: |$a_1$| + |$a_2$| ≤ 1",
    )
    a_1 = np.linspace(-2, 2, 200)
    axes.plot(a_1, a_1**2 / 4, color="0.35", linestyle=":", label="complex poles above $a_1^2 = 4a_2$")
    axes.plot(0, 0, marker="*", markersize=15, color="black", linestyle="none", label="zero initialisation")
    axes.set(xlabel="$a_1$", ylabel="$a_2$", xlim=(-2.3, 2.3), ylim=(-1.3, 1.3))
    axes.set_title("Coefficients of $z^2 + a_1 z + a_2$", fontsize="medium")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure
