"""Poles that stay and poles that go in the complex plane, a panel per layer (the paper's figure 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..curves import label, systems
from ..results import Results
from .choice import Choice, planned
from .style import COLOURS, panels, shared_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(results: Results, choice: Choice) -> Figure:
    """Draw the discrete poles inside the unit circle; a stored pair is drawn as its two poles."""
    keep = results.plan(planned(results, choice)).keep
    layers = systems(results, choice.checkpoint)
    figure, axes = panels(len(layers), columns=4, height=3.0)
    figure.set_layout_engine("compressed")  # square panels, close together
    angle = np.linspace(0, 2 * np.pi, 200)
    for panel, (layer, system) in zip(axes, layers.items(), strict=True):
        panel.plot(np.cos(angle), np.sin(angle), color="0.6", linewidth=0.8)
        small = min(1.0, 12 / np.sqrt(system.n))  # thousands of poles must not cover one another
        kinds = [
            ("pruned", ~keep[layer], {"marker": "x", "color": COLOURS[1], "linewidths": 0.9, "s": 16 * small}),
            ("kept", keep[layer], {"marker": "o", "color": COLOURS[0], "edgecolors": "none", "s": 13 * small}),
        ]
        for name, which, look in kinds:
            poles = system.poles[which]
            poles = np.concatenate([poles, poles.conj()]) if system.states_per_entry == 2 else poles
            panel.scatter(poles.real, poles.imag, label=name, rasterized=len(poles) > 1000, **look)
        panel.set_title(f"{layer}: {keep[layer].sum()} of {system.n}", fontsize="small")
        panel.set(aspect="equal", xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    figure.suptitle(f"{choice.checkpoint}, {label(choice.method)} at {choice.ratio:.0%}", fontsize="medium")
    shared_legend(figure, axes[0])
    return figure
