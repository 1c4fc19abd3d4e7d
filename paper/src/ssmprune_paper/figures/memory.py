"""Poles that stay and poles that go, by memory and frequency: slow poles lie apart here, not on the circle's rim."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ssmprune.arrays import Complex, join_parts
from ssmprune.sweeps import Results

from .choice import Choice
from .pole_panels import draw_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(results: Results, choice: Choice) -> Figure:
    """Draw 1 / (1 - |pole|), the steps a state remembers, against the angle it turns by in a step."""
    figure, axes = draw_panels(results, choice, _place, height=2.7)
    for panel in axes:
        panel.set(xscale="log", ylim=(-1.05, 1.05), xlabel="memory (steps)")
    for panel in axes[::4]:
        panel.set_ylabel("frequency (π per step)")
    return figure


def _place(log_poles: Complex) -> Complex:
    return join_parts(-1 / np.expm1(log_poles.real), np.angle(np.exp(1j * log_poles.imag)) / np.pi)
