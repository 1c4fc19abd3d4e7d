"""What the two figures of poles share: a panel per layer, states that stay and states that go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ssmprune.arrays import Complex
from ssmprune.report import COLOURS, label, panels, shared_legend, systems
from ssmprune.sweeps import Results

from .choice import Choice, cell_with_plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_panels(
    results: Results, choice: Choice, place: Callable[[Complex], Complex], height: float
) -> tuple[Figure, list[Axes]]:
    """Draw every pole where `place` puts its logarithm, as x + iy; a stored pair is drawn as its two poles."""
    keep = results.plan(cell_with_plan(results, choice)).keep
    layers = systems(results, choice.checkpoint)
    figure, axes = panels(len(layers), columns=4, height=height)
    for panel, (layer, system) in zip(axes, layers.items(), strict=True):
        small = min(1.0, 12 / np.sqrt(system.n))  # thousands of poles must not cover one another
        kinds = [
            ("pruned", ~keep[layer], {"marker": "x", "color": COLOURS[1], "linewidths": 0.9 * small, "s": 16 * small}),
            ("kept", keep[layer], {"marker": "o", "color": COLOURS[0], "edgecolors": "none", "s": 13 * small}),
        ]
        for name, which, look in kinds:
            poles = system.log_poles[which]
            at = place(np.concatenate([poles, poles.conj()]) if system.states_per_entry == 2 else poles)
            panel.scatter(at.real, at.imag, label=name, rasterized=len(at) > 1000, **look)
        panel.set_title(f"{layer}: {keep[layer].sum()} of {system.n}", fontsize="small")
    figure.suptitle(f"{choice.checkpoint}, {label(choice.method)} at {choice.ratio:.0%}", fontsize="medium")
    shared_legend(figure, axes[0])
    return figure, axes
