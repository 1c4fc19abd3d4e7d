"""How figures look: methods differ in marker and line as well as in colour, and look the same in all figures."""

from __future__ import annotations

import io
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, need
from ..files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Style = dict[str, Any]

# Okabe and Ito's colours, which readers with any colour vision can tell apart. The second half repeats them, darker
# ones first, with open markers and other dashes.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
STYLES: list[Style] = [
    {"color": colour, "marker": marker, "linestyle": line}
    for colour, marker, line in zip(COLOURS, MARKERS, ["-", "--", "-.", ":", "-", "--", ":"], strict=True)
] + [
    {"color": colour, "marker": marker, "linestyle": line, "markerfacecolor": "white"}
    for colour, marker, line in zip(COLOURS, reversed(MARKERS), ["--", "-", ":", "-.", "--", "-", "-."], strict=True)
]
# Methods in the order in which readers look for them: the winner, the paper's method, then the baselines. The place of
# a method here decides its style in demo, figures and page.
PALETTE = (
    "surgeon",
    "last",
    "uniform-hinf",
    "global-hinf",
    "random",
    "last+refit",
    "balanced",
    "surgeon-without-data",
    "lamp",
    "aire",
    "uniform-magnitude",
    "global-magnitude",
)
WIDTH = 2.7  # inches of a panel, three to a page
LINE = 0.19  # inches of a line in a legend


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Return a style for each name: its place in `PALETTE` decides, and other names get the styles that are left.

    >>> styles(["mine", "last"])["last"] == styles(["last"])["last"], styles(["mine", "last"])["mine"] == STYLES[0]
    (True, True)
    """
    names = list(names)
    looks = {name: STYLES[PALETTE.index(name)] for name in names if name in PALETTE}
    free = [style for style in STYLES if style not in looks.values()]
    looks |= zip((name for name in names if name not in looks), cycle(free), strict=False)
    return {name: looks[name] for name in names}


def label(method: str) -> str:
    """Return what figures call a method.

    >>> label("uniform-hinf"), label("surgeon-without-data"), label("last+refit")
    ('Uniform H∞', 'Surgeon without data', 'LAST + refit')
    """
    spellings = {"last": "LAST", "lamp": "LAMP", "aire": "AIRE", "hinf": "H∞", "h2": "H2"}
    words = method.replace("+", " + ").replace("-", " ").replace("/", " / ").split()
    text = " ".join(spellings.get(word, word) for word in words)
    return text[:1].upper() + text[1:]


def need_matplotlib() -> None:
    """Raise a clear error where matplotlib is not installed."""
    need("matplotlib", "plot", "Figures need matplotlib")


def panels(count: int, columns: int = 3, width: float = WIDTH, height: float = WIDTH) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` equal panels, row by row."""
    need_matplotlib()
    from matplotlib.figure import Figure

    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")  # neither a window nor global state
    axes = [figure.add_subplot(rows, columns, place) for place in range(1, count + 1)]
    for panel in axes:
        panel.grid(alpha=0.3)
    return figure, axes


def shared_legend(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """Put a legend for all panels below them; the figure grows by its height."""
    handles, labels = axes.get_legend_handles_labels()
    figure.set_figheight(figure.get_figheight() + 0.1 + LINE * -(-len(labels) // columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as the kind its name ends in (png, pdf, svg), complete or not at all."""
    kind = path.suffix.lstrip(".") or "png"
    if kind not in figure.canvas.get_supported_filetypes():
        raise InputError(f"Figures cannot be written as {path.suffix!r}; end the name in .png, .pdf or .svg.")
    content = io.BytesIO()
    undated = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)  # equal figures, equal bytes
    figure.savefig(content, format=kind, dpi=150, bbox_inches="tight", metadata=undated)
    write_atomically(path, content.getvalue())
