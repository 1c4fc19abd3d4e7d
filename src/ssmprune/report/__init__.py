"""What sweeps have found, for people: a page, a table, a figure.

`page` is everything on one page to explore; `tables` has the table of a sweep, `table_formats` writes tables;
`trade_off` draws accuracy against ratio. Below them, `curves` has what is drawn, `significance` how sure a figure is,
`style` the colour, mark and name of each method. `demo` shows the checkpoint that ships with the package.
"""

from .curves import Curve, checkpoints, method_curves, systems
from .page import write as write_page
from .significance import Paired, compare, interval
from .style import COLOURS, label, need_matplotlib, panels, save_figure, shared_legend, styles
from .table_formats import FORMATS, Mean, Table, escape_markdown, fixed, markdown_rows
from .tables import accuracy_table
from .trade_off import draw_sweep

__all__ = [
    "COLOURS",
    "FORMATS",
    "Curve",
    "Mean",
    "Paired",
    "Table",
    "accuracy_table",
    "checkpoints",
    "compare",
    "draw_sweep",
    "escape_markdown",
    "fixed",
    "interval",
    "label",
    "markdown_rows",
    "method_curves",
    "need_matplotlib",
    "panels",
    "save_figure",
    "shared_legend",
    "styles",
    "systems",
    "write_page",
]
