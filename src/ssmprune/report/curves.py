"""The trade-off: accuracy after pruning against the share of states that is gone, as curves and as a figure of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Real
from ..core.system import DiagonalSystem
from ..errors import InputError
from ..models import load
from ..pruning import read
from ..sweeps.store import FULL, Cell, Results
from .style import PALETTE, label, panels, shared_legend, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 6  # curves that a picture shows at once


@dataclass(frozen=True)
class Curve:
    """The cells of a method by ascending ratio, a list over seeds for each; the unpruned model comes first."""

    cells: dict[float, list[Cell]]

    @property
    def ratios(self) -> list[float]:
        """Return the ratios at which the curve has points."""
        return list(self.cells)

    @property
    def accuracy(self) -> Real:
        """Return the mean over seeds at each ratio."""
        return np.array([np.mean([cell.accuracy for cell in seeds]) for seeds in self.cells.values()])

    @property
    def deviation(self) -> Real:
        """Return the standard deviation over seeds at each ratio, 0 for a single seed."""
        return np.array([np.std([cell.accuracy for cell in seeds]) for seeds in self.cells.values()])


def method_curves(results: Results, checkpoint: str) -> dict[str, Curve]:
    """Return the curves of the methods that have cells for the checkpoint."""
    cells = [cell for cell in results.cells if cell.checkpoint == checkpoint and _is_on_grid(cell, results.about)]
    full = max((cell for cell in cells if cell.method == FULL), key=lambda cell: cell.examples, default=None)
    if full is None:
        raise InputError(f"{results.folder} has no cell of the unpruned {checkpoint!r} yet; let the sweep continue.")
    by_method = {}
    for method in results.about["methods"]:
        fair = [cell for cell in cells if cell.method == method and cell.examples == full.examples]
        points = {0.0: [full]}
        for cell in sorted(fair, key=lambda cell: (cell.ratio, cell.seed)):
            points.setdefault(cell.ratio, []).append(cell)
        if fair:
            by_method[method] = Curve(points)
    return by_method


def _is_on_grid(cell: Cell, about: dict[str, Any]) -> bool:
    """Return whether a cell is on the sweep's grid: not from a search, on more examples or at another sampling rate."""
    usual = cell.split == about["split"] and cell.rate == 1 and cell.examples <= about["examples"]
    return usual and cell.ratio in (0, *about["ratios"])


def checkpoints(results: Results) -> list[str]:
    """Return the names of the checkpoints whose unpruned model has a cell, which is the first that a sweep fills."""
    swept = {cell.checkpoint for cell in results.cells if cell.method == FULL}
    return [entry["name"] for entry in results.about["checkpoints"] if entry["name"] in swept]


def systems(results: Results, checkpoint: str) -> dict[str, DiagonalSystem]:
    """Return the layers of a checkpoint before pruning."""
    return read(load(results.checkpoint_file(checkpoint)), unstable="keep")


def ranked(methods: list[str]) -> list[str]:
    """Return the methods in the order in which pictures show them: those of `PALETTE` first.

    >>> ranked(["mine", "last", "lamp", "random"])
    ['last', 'random', 'lamp', 'mine']
    """
    return sorted(methods, key=lambda name: PALETTE.index(name) if name in PALETTE else len(PALETTE))


def draw_sweep(results: Results) -> Figure:
    """Draw six methods on all checkpoints of a sweep; the band around a curve is the deviation over its seeds."""
    names, shown = checkpoints(results), ranked(results.about["methods"])[:FEW]
    looks = styles(results.about["methods"])
    figure, axes = panels(len(names), width=3.4 if len(names) > 1 else 6.0, height=3.0 if len(names) > 1 else 4.0)
    for panel, name in zip(axes, names, strict=True):
        by_method = method_curves(results, name)
        for method in (name for name in shown if name in by_method):
            curve, look = by_method[method], looks[method]
            ratios, accuracy = 100 * np.array(curve.ratios), 100 * curve.accuracy
            panel.plot(ratios, accuracy, label=label(method), markersize=4.5, linewidth=1.3, **look)
            if (spread := 100 * curve.deviation).any():
                shade = {"color": look["color"], "alpha": 0.15, "linewidth": 0}
                panel.fill_between(ratios, accuracy - spread, accuracy + spread, **shade)
        frame(panel, float(next(iter(by_method.values())).accuracy[0]), name)
    fullest = max(axes, key=lambda panel: len(panel.get_legend_handles_labels()[0]))
    shared_legend(figure, fullest, columns=3 if len(names) < 3 else 5)
    return figure


def frame(panel: Axes, full: float, title: str) -> None:
    """Draw the line of the unpruned model, whose accuracy is `full`, and name the axes."""
    panel.axhline(100 * full, color="0.6", linewidth=1, zorder=0, label="unpruned")
    panel.set(xlabel="states pruned (%)", ylabel="accuracy (%)", title=f"{title} ({full:.1%} unpruned)", ylim=(0, 103))
