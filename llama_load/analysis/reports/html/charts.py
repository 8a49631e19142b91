"""What all charts share.

Colours, the style of a figure, its place in a page, and the script that draws it. A page collects
its charts in a `ChartPage`; they share one Bokeh document, so that figures with the same range zoom
together. Titles, legends and summaries are HTML around the drawing: they wrap on a phone, and no
text from outside reaches the canvas.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from llama_load.analysis.reports.html.plot import Model, axis, document, glyph
from llama_load.ground.bundled import chart_script

# Roles of colours: (light, dark). The page's style sheet has them as --NAME; charts are drawn in
# the light ones, and report.js replaces each by its dark one. So every light colour is in one role
# only.
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
TOOLBAR = (
    "\n:host(.bk-inner) { background: transparent; opacity: 1; justify-content: flex-end; "
    "pointer-events: none; }"
    "\n:host(.bk-inner) > * { background: rgb(255 255 255 / 88%); border-radius: 4px; "
    "pointer-events: auto; }\n"
)
ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a legend: the role of its colour, and its text."""

    colour: str
    text: str


def colour(role: str) -> str:
    """The light colour of a role, in which charts are drawn."""
    return COLOURS[role][0]


def series_colours(count: int) -> list[str]:
    """Roles for so many curves; from the seventh on they are grey."""
    grey = ["grey"] * (count - len(SERIES))
    return [*SERIES[:count], *grey]


_AXES = {
    "axis_label_text_color": colour("label"),
    "axis_label_text_font": FONT,
    "axis_label_text_font_size": "12px",
    "axis_label_text_font_style": "normal",
    "major_label_text_color": colour("label"),
    "major_label_text_font": FONT,
    "major_label_text_font_size": "12px",
    "major_tick_in": 0,
    "major_tick_out": 4,
    "minor_tick_line_color": None,
}


class Figure(Model):
    """An empty figure in our style, as wide as its place.

    Charts with the same `x_range` zoom and pan together; `zoom` is what dragging selects: "width"
    (a part of the x axis) or "both".
    """

    __slots__ = (
        "_center",
        "_renderers",
        "_tools",
        "x_axis",
        "x_range",
        "y_axis",
        "y_range",
    )

    def __init__(
        self,
        x_label: str,
        y_label: str,
        *,
        x_range: Model | None = None,
        y_range: Model | None = None,
        height: int = HEIGHT,
        x_is_log: bool = False,
        zoom: str = "width",
    ) -> None:
        self.x_range = x_range or Model("DataRange1d")
        self.y_range = y_range or Model("DataRange1d", start=0)
        self.x_axis, x_scale = axis(self.x_range, is_log=x_is_log)
        self.y_axis, y_scale = axis(self.y_range, is_log=False)
        self.x_axis.set(
            **_AXES,
            axis_label=x_label,
            axis_line_color=colour("axis"),
            major_tick_line_color=colour("axis"),
        )
        self.y_axis.set(
            **_AXES,
            axis_label=y_label,
            axis_line_color=None,
            major_tick_line_color=None,
        )
        x_grid = Model("Grid", axis=self.x_axis, grid_line_color=None)
        y_grid = Model(
            "Grid", dimension=1, axis=self.y_axis, grid_line_color=colour("line")
        )
        self._center = [x_grid, y_grid]
        self._renderers: list[Model] = []

        box = Model("BoxZoomTool", dimensions=zoom)
        self._tools = [
            box,
            Model("PanTool", dimensions=zoom),
            Model("WheelZoomTool", dimensions=zoom),
            Model("ResetTool"),
            Model("SaveTool", filename="chart"),
        ]

        toolbar = Model(
            "Toolbar",
            tools=self._tools,
            stylesheets=[Model("InlineStyleSheet", css=TOOLBAR)],
            logo=None,
            autohide=True,
            active_drag=box,
            active_scroll=None,
        )

        super().__init__(
            "Figure",
            height=height,
            x_range=self.x_range,
            y_range=self.y_range,
            x_scale=x_scale,
            y_scale=y_scale,
            title=Model("Title"),
            renderers=self._renderers,
            toolbar=toolbar,
            left=[self.y_axis],
            below=[self.x_axis],
            center=self._center,
            sizing_mode="stretch_width",
            outline_line_color=None,
            toolbar_location="above",
            toolbar_inner=True,
            background_fill_color=None,
            border_fill_color=None,
            min_border_left=56,
            min_border_right=12,
        )

    def draw(self, data: Model, name: str, **properties: Any) -> Model:
        """Draw a data source: see `plot.glyph`."""
        drawn = glyph(data, name, **properties)
        self._renderers.append(drawn)
        return drawn

    def add(self, model: Model) -> None:
        """Add a line, label or other annotation to the drawing."""
        self._center.append(model)

    def hover(
        self, renderers: Sequence[Model], lines: Sequence[tuple[str, str]]
    ) -> None:
        """Show these values of a point under the mouse.

        `lines` are (label, "@column{0.0}"); Bokeh escapes the values.
        """
        tool = Model(
            "HoverTool", renderers=list(renderers), tooltips=list(lines), sort_by=None
        )
        self._tools.append(tool)


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure of Bokeh and the text around it.

    `summary` replaces the drawing for who cannot see it; `note` stands below it.
    """

    figure: Figure
    title: str
    summary: str
    keys: Sequence[Key] = ()
    note: str = ""


@dataclass(slots=True)
class ChartPage:
    """The charts of one page, in the order of `add`."""

    charts: list[Chart] = field(default_factory=list)

    def add(self, chart: Chart) -> int:
        """Take a chart in; return the number of its place in the page (`data-chart`)."""
        self.charts.append(chart)
        return len(self.charts) - 1

    def json(self) -> str:
        """The document with all figures and the ids of its roots.

        For the inside of a <script type="application/json">.
        """
        figures = [chart.figure for chart in self.charts]
        return for_script(msgspec.json.encode(document(figures)).decode())


def for_script(text: str) -> str:
    """JSON that may stand in a <script> of a page.

    Nothing in it ends the script, or a line of it.
    """
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def bokeh_script() -> str:
    """Bokeh's JavaScript for charts: 1.3 MB."""
    return chart_script("bokeh.min.js").decode()


@cache
def page_script() -> str:
    """Our own script.

    It draws the charts of a page, and gives them the colours of the reader's light or dark mode.
    """
    palette = dict(COLOURS.values())
    script = (ASSETS / "charts.js").read_text(encoding="utf-8")
    return script.replace('"PALETTE"', json.dumps(palette))


@cache
def style_sheet() -> str:
    """The style of our pages, with the colours of the charts."""
    light = ""
    dark = ""
    for name, (light_shade, dark_shade) in COLOURS.items():
        light += f"--{name}:{light_shade};"
        dark += f"--{name}:{dark_shade};"

    text = (ASSETS / "page.css").read_text(encoding="utf-8")

    return text.replace("/* LIGHT */", light).replace("/* DARK */", dark)
