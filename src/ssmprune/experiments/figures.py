"""Figures: legible in print, told apart by marker and line as well as by colour."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which readers with any colour vision can tell apart.
STYLES: list[dict[str, Any]] = [
    {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    {"color": "#D55E00", "marker": "s", "linestyle": "--"},
    {"color": "#009E73", "marker": "^", "linestyle": "-."},
    {"color": "#CC79A7", "marker": "D", "linestyle": ":"},
    {"color": "#E69F00", "marker": "v", "linestyle": "-"},
    {"color": "#56B4E9", "marker": "P", "linestyle": "--"},
    {"color": "#000000", "marker": "X", "linestyle": ":"},
]


def trade_off(curves: Mapping[str, Sequence[float]], ratios: Sequence[float], full: float, title: str) -> Figure:
    """Draw accuracy against the share of pruned states, a curve per method; `full` is the unpruned model's."""
    figure, axes = _subplots(6.4, 4.0)
    axes.axhline(100 * full, color="0.6", linewidth=1, label=f"unpruned ({full:.1%})")
    for (name, accuracies), style in zip(curves.items(), STYLES, strict=False):
        axes.plot([100 * r for r in ratios], [100 * a for a in accuracies], label=name, markersize=5, **style)
    axes.set(xlabel="states pruned (%)", ylabel="accuracy (%)", title=title, ylim=(0, 103))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower left")
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as the kind its name ends in (png, pdf, svg), complete or not at all."""
    kind = path.suffix.lstrip(".") or "png"
    if kind not in figure.canvas.get_supported_filetypes():
        raise InputError(f"Figures cannot be written as {path.suffix!r}; end the name in .png, .pdf or .svg.")
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=150, bbox_inches="tight")
    write_atomically(path, content.getvalue())


def _subplots(width: float, height: float) -> tuple[Figure, Axes]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("Figures need matplotlib; install it with `pip install 'ssmprune[plot]'`.") from error
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)  # draws to a file without a window or a global state
    return figure, figure.add_subplot()
