"""What all charts share: colours, the style of a figure, its place in a page, and the script that draws it.

A page collects its charts in a `ChartPage`; they share one Bokeh document, so that figures with the same range zoom together.
Titles, legends and summaries are HTML around the drawing: they wrap on a phone, and no text from outside reaches the canvas.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bokeh.models import Range1d
    from bokeh.plotting import figure as Figure

# Roles of colours: (light, dark). The page's style sheet has them as --NAME; charts are drawn in the light ones, and report.js
# replaces each by its dark one. So every light colour is in one role only.
COLOURS = {
    "blue": ("#2563c4", "#7ab0ff"),
    "orange": ("#d97917", "#f2a65a"),
    "green": ("#1f9268", "#57c99b"),
    "purple": ("#8250c4", "#bd9bf5"),
    "teal": ("#14899c", "#5cc6d6"),
    "pink": ("#c2477f", "#f08fb9"),
    "red": ("#cc2f36", "#ff7f82"),
    "grey": ("#8a939e", "#8f99a6"),
    "pale": ("#c9d8f0", "#2f4a73"),
    "ink": ("#24292f", "#e4e8ee"),
    "label": ("#59636e", "#a5afbb"),
    "line": ("#e4e7eb", "#333b45"),
    "axis": ("#b9c0c8", "#515b67"),
}
# For several curves in one chart, in this order.
SERIES = ("blue", "orange", "green", "purple", "teal", "pink")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK SC', sans-serif"
HEIGHT = 240
# The toolbar lies upon the drawing: only its buttons hide what is below them.
TOOLBAR = """
:host(.bk-inner) { background: transparent; opacity: 1; justify-content: flex-end; pointer-events: none; }
:host(.bk-inner) > * { background: rgb(255 255 255 / 88%); border-radius: 4px; pointer-events: auto; }
"""
ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a legend: the role of its colour, and its text."""

    colour: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure of Bokeh and the text around it. `summary` replaces the drawing for who cannot see it; `note` stands below it."""

    figure: Any
    title: str
    summary: str
    keys: Sequence[Key] = ()
    note: str = ""


def colour(role: str) -> str:
    """The light colour of a role, in which charts are drawn."""
    return COLOURS[role][0]


def series_colours(count: int) -> list[str]:
    """Roles for so many curves; from the seventh on they are grey."""
    return [SERIES[place] if place < len(SERIES) else "grey" for place in range(count)]


def figure(
    x_label: str,
    y_label: str,
    *,
    x_range: Range1d | None = None,
    y_range: Range1d | None = None,
    height: int = HEIGHT,
    x_axis_type: str = "linear",
    y_axis_type: str = "linear",
    zoom: str = "width",
) -> Figure:
    """An empty figure in our style, as wide as its place. Charts with the same `x_range` zoom and pan together; `zoom` is what
    dragging selects: "width" (a part of the x axis) or "both"."""
    from bokeh.models import BoxZoomTool, InlineStyleSheet, PanTool, ResetTool, SaveTool, WheelZoomTool
    from bokeh.plotting import figure as new_figure

    ranges = {name: each for name, each in (("x_range", x_range), ("y_range", y_range)) if each is not None}
    box = BoxZoomTool(dimensions=zoom)
    plot = new_figure(
        height=height,
        sizing_mode="stretch_width",
        x_axis_type=x_axis_type,
        y_axis_type=y_axis_type,
        tools=[box, PanTool(dimensions=zoom), WheelZoomTool(dimensions=zoom), ResetTool(), SaveTool(filename="chart")],
        active_drag=box,
        active_scroll=None,
        toolbar_location="above",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        output_backend="canvas",
        min_border_left=56,
        min_border_right=12,
        **ranges,
    )
    plot.toolbar.logo = None
    plot.toolbar_inner = True
    plot.toolbar.stylesheets = [InlineStyleSheet(css=TOOLBAR)]
    plot.toolbar.autohide = True
    for axis, label in ((plot.xaxis, x_label), (plot.yaxis, y_label)):
        axis.axis_label = label
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "12px"
        axis.axis_label_text_color = axis.major_label_text_color = colour("label")
        axis.axis_line_color = axis.major_tick_line_color = colour("axis")
        axis.minor_tick_line_color = None
        axis.major_tick_in = 0
        axis.major_tick_out = 4
    plot.yaxis.axis_line_color = plot.yaxis.major_tick_line_color = None
    for grid in plot.grid:
        grid.grid_line_color = colour("line")
    plot.xgrid.grid_line_color = None
    if y_range is None and y_axis_type == "linear":
        plot.y_range.start = 0
    return plot


def source(**columns: NDArray[Any] | Sequence[Any]) -> Any:
    """A data source of these columns; numbers as float32, which is half the size and exact to 7 digits."""
    from bokeh.models import ColumnDataSource

    data = {
        name: column.astype(np.float32) if isinstance(column, np.ndarray) and column.dtype.kind in "fiu" else list(column)
        for name, column in columns.items()
    }
    return ColumnDataSource(data)


def hover(plot: Figure, renderers: Sequence[Any], lines: Sequence[tuple[str, str]], mode: str = "mouse") -> None:
    """Show these values of a point under the mouse. `lines` are (label, "@column{0.0}"); Bokeh escapes the values. `mode` "vline":
    of the points at this x."""
    from bokeh.models import HoverTool

    plot.add_tools(HoverTool(renderers=list(renderers), tooltips=list(lines), mode=mode))


@dataclass(slots=True)
class ChartPage:
    """The charts of one page, in the order of `add`."""

    charts: list[Chart] = field(default_factory=list)

    def add(self, chart: Chart) -> int:
        """Take a chart in; return its number, which is that of its place in the page (`data-chart`)."""
        self.charts.append(chart)
        return len(self.charts) - 1

    def json(self) -> str:
        """The document with all figures and the ids of its roots, for the inside of a <script type="application/json">."""
        from bokeh.core.json_encoder import serialize_json
        from bokeh.document import Document

        document = Document()
        with document.models.freeze():  # else it collects all models anew for each root
            for chart in self.charts:
                document.add_root(chart.figure)
        roots = [chart.figure.id for chart in self.charts]
        return for_script(serialize_json({"docs": {"charts": document.to_json(deferred=False)}, "roots": roots}, pretty=False))


def for_script(text: str) -> str:
    """JSON that may stand in a <script> of a page: nothing in it ends the script, or a line of it."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def bokeh_script() -> str:
    """Bokeh's JavaScript for charts, from its Python package: 1.3 MB."""
    import bokeh

    return (Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js").read_text(encoding="utf-8")


@cache
def page_script() -> str:
    """Our own script: draws the charts of a page, and gives them the colours of the reader's light or dark mode."""
    palette = dict(COLOURS.values())
    return (ASSETS / "charts.js").read_text(encoding="utf-8").replace('"PALETTE"', json.dumps(palette))


@cache
def style_sheet() -> str:
    """The style of our pages, with the colours of the charts."""
    light, dark = ("".join(f"--{name}:{shades[place]};" for name, shades in COLOURS.items()) for place in (0, 1))
    text = (ASSETS / "page.css").read_text(encoding="utf-8")
    return text.replace("/* LIGHT */", light).replace("/* DARK */", dark)
