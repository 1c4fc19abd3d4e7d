"""Accuracy against the share of pruned states, a curve per method and a panel per checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..sweeps.store import Results
from .curves import Curve, checkpoints, method_curves, shown_first
from .style import Style, label, panels, shared_legend, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_sweep(results: Results) -> Figure:
    """Draw six methods on all checkpoints of a sweep; the band around a curve is the deviation over its seeds."""
    names, shown = checkpoints(results), shown_first(results.about["methods"])
    looks = styles(results.about["methods"])
    figure, axes = panels(len(names), width=3.4 if len(names) > 1 else 6.0, height=3.0 if len(names) > 1 else 4.0)
    for panel, name in zip(axes, names, strict=True):
        by_method = method_curves(results, name)
        for method in (name for name in shown if name in by_method):
            _band(panel, by_method[method], looks[method])
        _frame(panel, float(next(iter(by_method.values())).accuracy[0]), name)
    fullest = max(axes, key=lambda panel: len(panel.get_legend_handles_labels()[0]))
    shared_legend(figure, fullest, columns=3 if len(names) < 3 else 5)
    return figure


def draw_accuracies(
    accuracies: Mapping[str, Sequence[float]], ratios: Sequence[float], full: float, title: str
) -> Figure:
    """Draw one panel from accuracies by method at `ratios`; `full` is the unpruned model's."""
    figure, [axes] = panels(1, width=6.4, height=4.0)
    looks = styles(accuracies)
    for name, values in accuracies.items():
        axes.plot(100 * np.array(ratios), 100 * np.array(values), label=label(name), markersize=5, **looks[name])
    _frame(axes, full, title)
    axes.legend(frameon=False, loc="lower left")
    return figure


def _band(axes: Axes, curve: Curve, look: Style) -> None:
    ratios, accuracy, spread = (100 * np.array(values) for values in (curve.ratios, curve.accuracy, curve.deviation))
    method = curve.cells[curve.ratios[-1]][0].method
    axes.plot(ratios, accuracy, label=label(method), markersize=4.5, linewidth=1.3, **look)
    if spread.any():
        axes.fill_between(ratios, accuracy - spread, accuracy + spread, color=look["color"], alpha=0.15, linewidth=0)


def _frame(axes: Axes, full: float, title: str) -> None:
    axes.axhline(100 * full, color="0.6", linewidth=1, zorder=0, label="unpruned")
    axes.set(xlabel="states pruned (%)", ylabel="accuracy (%)", title=f"{title} ({full:.1%} unpruned)", ylim=(0, 103))
