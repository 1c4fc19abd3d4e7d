"""Poles that stay and poles that go in the complex plane, a panel per layer (the paper's figure 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ssmprune.arrays import Complex
from ssmprune.sweeps import Results

from .choice import Choice
from .pole_panels import draw_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(results: Results, choice: Choice) -> Figure:
    """Draw the discrete poles inside the unit circle; a stored pair is drawn as its two poles."""
    figure, axes = draw_panels(results, choice, _place, height=3.0)
    figure.set_layout_engine("compressed")  # square panels, close together
    angle = np.linspace(0, 2 * np.pi, 200)
    for panel in axes:
        panel.plot(np.cos(angle), np.sin(angle), color="0.6", linewidth=0.8)
        panel.set(aspect="equal", xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    return figure


def _place(log_poles: Complex) -> Complex:
    poles: Complex = np.exp(log_poles)
    return poles
