"""What sweeps have found, for people: a page, a table, a figure.

`page` is everything on one page to explore, with the charts of `charts`; `tables` has the table of a sweep, `curves`
the figure of accuracy against ratio, `style` the colour, mark and name of each method. `demo` shows the checkpoint
that ships with the package.
"""

from .curves import Curve, checkpoints, draw_sweep, method_curves, systems
from .page import write as write_page
from .style import COLOURS, label, need_matplotlib, panels, save_figure, shared_legend, styles
from .tables import Table, accuracy_table, escape_markdown, fixed, markdown, markdown_rows, replace_all

__all__ = [
    "COLOURS",
    "Curve",
    "Table",
    "accuracy_table",
    "checkpoints",
    "draw_sweep",
    "escape_markdown",
    "fixed",
    "label",
    "markdown",
    "markdown_rows",
    "method_curves",
    "need_matplotlib",
    "panels",
    "replace_all",
    "save_figure",
    "shared_legend",
    "styles",
    "systems",
    "write_page",
]
