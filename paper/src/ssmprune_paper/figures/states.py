"""What remains of every layer against the ratio, a panel per method (the paper's figure 3, bottom)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssmprune.report import label, method_curves, panels, shared_legend, styles
from ssmprune.sweeps import Results

from .choice import Choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(results: Results, choice: Choice) -> Figure:
    """Draw the states of each layer; methods that remove none are left out."""
    shrinking = {
        method: curve
        for method, curve in method_curves(results, choice.checkpoint).items()
        if any(cell.pruned for cells in curve.cells.values() for cell in cells)
    }
    layers = next(iter(shrinking.values())).cells[0.0][0].states
    looks = styles(layers)
    figure, axes = panels(len(shrinking), columns=4, width=2.3, height=2.1)
    for panel, (method, curve) in zip(axes, shrinking.items(), strict=True):
        for layer in layers:
            kept = [cells[0].states[layer] for cells in curve.cells.values()]
            panel.plot([100 * ratio for ratio in curve.ratios], kept, label=layer, markersize=3.5, **looks[layer])
        panel.set_title(label(method), fontsize="medium")
        panel.set(ylim=(0, None))
    for panel in axes[-4:]:
        panel.set_xlabel("states pruned (%)")
    for panel in axes[::4]:
        panel.set_ylabel("states left")
    figure.suptitle(f"Layers of {choice.checkpoint}", fontsize="medium")
    shared_legend(figure, axes[0])
    return figure
