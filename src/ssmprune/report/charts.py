"""The three charts of the page, without data: the page's script fills their sources with what the reader chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import need
from .style import Style

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

MARKERS = dict(
    zip("os^DvPX", ["circle", "square", "triangle", "diamond", "inverted_triangle", "plus", "x"], strict=True)
)
DASHES = {"-": "solid", "--": "dashed", "-.": "dashdot", ":": "dotted"}


def browser_library() -> str:
    """Return the plotting library's code for the browser."""
    need("bokeh", "report", "The report needs Bokeh")
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"], log_level="error").js_raw)


def charts(looks: Mapping[str, Style]) -> dict[str, Any]:
    """Return the charts as JSON for the browser's library, by the id of the element that shows each.

    looks: the styles of all methods; the page decides which curves it shows.
    """
    from bokeh.core.types import ID
    from bokeh.embed import json_item

    drawn = {"trade-off": _trade_off(looks), "states": _states(), "poles": _poles()}
    return {name: json_item(chart, ID(name)) for name, chart in drawn.items()}


def _trade_off(looks: Mapping[str, Style]) -> Figure:
    from bokeh.models import NumeralTickFormatter

    chart = _chart(360, x_axis_label="states pruned", y_axis_label="accuracy", y_range=(0, 1.04), x_range=(-0.03, 1.03))
    chart.axis.formatter = NumeralTickFormatter(format="0%")
    chart.line("ratio", "accuracy", source=_source("unpruned", "ratio", "accuracy"), color="gray", name="unpruned line")
    marks = []
    for method, look in looks.items():
        source, dash = _source(method, "ratio", "accuracy", "low", "high", "label"), DASHES[look["linestyle"]]
        chart.segment("ratio", "low", "ratio", "high", name=f"interval {method}", line_width=2, source=source)
        chart.line("ratio", "accuracy", name=f"line {method}", line_dash=dash, source=source)
        filling = None if "markerfacecolor" in look else look["color"]
        shape: dict[str, Any] = {"marker": MARKERS[look["marker"]], "size": 7, "fill_color": filling}
        marks.append(chart.scatter("ratio", "accuracy", name=f"marks {method}", source=source, **shape))
    chart.scatter(
        "ratio", "accuracy", source=_source("chosen", "ratio", "accuracy"), name="ring", size=20, line_width=3
    )
    figures = [("", "@label"), ("pruned", "@ratio{0%}"), ("accuracy", "@accuracy{0.0%}")]
    _hover(chart, [*figures, ("95 % interval", "@low{0.0%} to @high{0.0%}")], marks)
    return chart


def _states() -> Figure:
    chart = _chart(300, y_range=[], x_range=(0, 1), x_axis_label="states")
    look: dict[str, Any] = {"y": "layer", "source": _source("layers", "layer", "before", "kept"), "height": 0.7}
    chart.hbar(right="before", fill_alpha=0.12, line_dash="dashed", name="before", legend_label="before", **look)
    kept = chart.hbar(right="kept", name="kept states", legend_label="kept", **look)
    chart.ygrid.visible = False
    chart.toolbar_location = None  # nobody zooms into bars, and on a telephone the tools crowd the legend
    _legend_above(chart)
    _hover(chart, [("", "@layer"), ("kept", "@kept of @before")], [kept])
    return chart


def _poles() -> Figure:
    import numpy as np

    chart = _chart(420, x_range=(-1.1, 1.1), y_range=(-1.1, 1.1))
    angle = np.linspace(0, 2 * np.pi, 181)
    chart.line(np.cos(angle), np.sin(angle), color="gray", line_width=1, name="circle")
    marks = {}
    for name, marker in [("pruned", "x"), ("kept", "circle")]:
        source = _source(f"{name} poles", "x", "y", "memory", "frequency")
        marks[name] = chart.scatter(
            "x", "y", source=source, marker=marker, name=f"{name} marks", line_width=1.6, legend_label=name
        )
    _legend_above(chart)
    _hover(chart, [("memory", "@memory{0.0} steps"), ("frequency", "@frequency{0.000} π per step")], [marks["kept"]])
    return chart


def _legend_above(chart: Figure) -> None:
    chart.legend.orientation = "horizontal"
    chart.add_layout(chart.legend[0], "above")


def _chart(height: int, **options: Any) -> Figure:
    """Return an empty chart without colours, so that it suits a light and a dark page."""
    from bokeh.plotting import figure

    chart = figure(
        height=height,
        sizing_mode="stretch_width",
        tools="pan,wheel_zoom,reset,save",
        active_drag=None,
        toolbar_location="above",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        **options,
    )
    chart.toolbar.logo = None
    chart.axis.minor_tick_line_color = None
    chart.axis.major_label_text_font_size = chart.axis.axis_label_text_font_size = "13px"
    chart.axis.axis_label_text_font_style = "normal"
    return chart


def _source(name: str, *columns: str) -> Any:
    from bokeh.models import ColumnDataSource

    return ColumnDataSource({column: [] for column in columns}, name=name)


def _hover(chart: Figure, tooltips: list[tuple[str, str]], renderers: list[Any]) -> None:
    from bokeh.models import HoverTool

    chart.add_tools(HoverTool(tooltips=tooltips, renderers=renderers, visible=False))
