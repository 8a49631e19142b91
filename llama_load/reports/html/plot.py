"""Figures as BokehJS reads them: models with the properties that differ from their defaults, as JSON.

Bokeh's own Python models would check and fill in every property, and take 0.3 s to import and 0.3 s to write a report
(docs/decisions/015-charts-without-bokehs-models.md). The tests read what is written here with them.
"""

from __future__ import annotations

import base64
import gzip
import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Glyphs that have one colour, width and so on for all of their points, as plain values.
_SCALAR_GLYPHS = ("Line", "Step", "VAreaStep")


class Model:
    """A model of BokehJS: its name and its properties."""

    __slots__ = ("name", "properties")

    def __init__(self, name: str, **properties: Any) -> None:
        self.name = name
        self.properties = properties

    def set(self, **properties: Any) -> None:
        """Change these properties."""
        self.properties |= properties


class Field:
    """A property that is read from a column of the data source."""

    __slots__ = ("column",)

    def __init__(self, column: str) -> None:
        self.column = column


class Constant:
    """A property that is the same for all points."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def span(location: float, dimension: str, **properties: Any) -> Model:
    """A line across a figure: `dimension` "height" is a vertical one at this x, "width" a horizontal one at this y."""
    return Model("Span", location=location, dimension=dimension, **properties)


def range_of(start: float, end: float, **properties: Any) -> Model:
    """A fixed range of an axis."""
    return Model("Range1d", start=start, end=end, **properties)


def factor_range(factors: Sequence[str]) -> Model:
    """The range of an axis of names, from its beginning on."""
    return Model("FactorRange", factors=list(factors))


def numerals(pattern: str) -> Model:
    """A formatter of an axis, such as "0 %"."""
    return Model("NumeralTickFormatter", format=pattern)


def source(**columns: NDArray[Any] | Sequence[Any]) -> Model:
    """A data source of these columns; numbers as float32, which is half the size and exact to 7 digits."""
    data = {
        name: column.astype(np.float32) if isinstance(column, np.ndarray) and column.dtype.kind in "fiu" else list(column)
        for name, column in columns.items()
    }
    return Model("ColumnDataSource", data=data)


class Figure:
    """A figure: `x_range`, `y_range`, the axes `x_axis` and `y_axis`, and methods that draw a data source. `style`: properties of
    the figure; `axes`: of both axes."""

    def __init__(
        self,
        *,
        height: int,
        x_range: Model | None,
        y_range: Model | None,
        x_is_log: bool,
        tools: Sequence[Model],
        toolbar: Mapping[str, Any],
        axes: Mapping[str, Any],
        style: Mapping[str, Any],
    ) -> None:
        self.height = height
        self.x_range = x_range or Model("DataRange1d")
        self.y_range = y_range or Model("DataRange1d")
        self.x_axis, self.x_scale = _axis(self.x_range, is_log=x_is_log)
        self.y_axis, self.y_scale = _axis(self.y_range, is_log=False)
        for axis in (self.x_axis, self.y_axis):
            axis.set(**axes)
        self.x_grid = Model("Grid", axis=self.x_axis)
        self.y_grid = Model("Grid", dimension=1, axis=self.y_axis)
        self.renderers: list[Model] = []
        self._tools = list(tools)
        self._toolbar = toolbar
        self._center = [self.x_grid, self.y_grid]
        self._style = style

    def line(self, x: str, y: str, data: Model, **properties: Any) -> Model:
        """A line through the points."""
        return self._draw("Line", data, {"x": x, "y": y}, properties)

    def step(self, x: str, y: str, data: Model, **properties: Any) -> Model:
        """A line of steps."""
        return self._draw("Step", data, {"x": x, "y": y}, {"mode": "after"} | properties)

    def area_below_steps(self, x: str, y: str, data: Model, **properties: Any) -> Model:
        """The area between the x axis and a line of steps."""
        return self._draw("VAreaStep", data, {"x": x, "y2": y}, {"y1": Constant(0), "step_mode": "after"} | properties)

    def scatter(self, x: str, y: str, data: Model, **properties: Any) -> Model:
        """A dot, or another `marker`, at each point."""
        return self._draw("Scatter", data, {"x": x, "y": y}, properties)

    def boxes(self, left: str, right: str, top: str, data: Model, **properties: Any) -> Model:
        """A box from the x axis up to `top`."""
        return self._draw("Quad", data, {"left": left, "right": right, "top": top}, {"bottom": 0} | properties)

    def bars(self, y: str, left: str | None, right: str, data: Model, **properties: Any) -> Model:
        """A bar across, from `left` (None: from 0) to `right`."""
        begin = {} if left is None else {"left": left}
        return self._draw("HBar", data, {"y": y, "right": right} | begin, properties)

    def segments(self, x: tuple[str, str], y: tuple[str, str], data: Model, **properties: Any) -> Model:
        """A straight line between two points."""
        return self._draw("Segment", data, {"x0": x[0], "y0": y[0], "x1": x[1], "y1": y[1]}, properties)

    def add(self, annotation: Model) -> None:
        """Add a line, label or other model to the drawing."""
        self._center.append(annotation)

    def add_tool(self, tool: Model) -> None:
        """Add a tool, such as a HoverTool."""
        self._tools.append(tool)

    @property
    def model(self) -> Model:
        """The figure as it is now."""
        return Model(
            "Figure",
            height=self.height,
            x_range=self.x_range,
            y_range=self.y_range,
            x_scale=self.x_scale,
            y_scale=self.y_scale,
            title=Model("Title"),
            renderers=self.renderers,
            toolbar=Model("Toolbar", tools=self._tools, **self._toolbar),
            left=[self.y_axis],
            below=[self.x_axis],
            center=self._center,
            **self._style,
        )

    def _draw(self, glyph: str, data: Model, columns: Mapping[str, str], properties: Mapping[str, Any]) -> Model:
        given = dict(properties)
        if glyph not in _SCALAR_GLYPHS:
            given = {name: value if isinstance(value, Field) else Constant(value) for name, value in given.items()}
        fields = {name: Field(column) for name, column in columns.items()}
        renderer = Model("GlyphRenderer", data_source=data, view=Model("CDSView"), glyph=Model(glyph, **fields, **given))
        self.renderers.append(renderer)
        return renderer


def _axis(over: Model, *, is_log: bool) -> tuple[Model, Model]:
    """An axis and its scale."""
    kind = "Categorical" if over.name == "FactorRange" else "Log" if is_log else "Linear"
    ticker = {
        "Categorical": Model("CategoricalTicker"),
        "Log": Model("LogTicker", num_minor_ticks=10, mantissas=[1, 5]),
        "Linear": Model("BasicTicker", mantissas=[1, 2, 5]),
    }[kind]
    formatter = Model("BasicTickFormatter" if kind == "Linear" else f"{kind}TickFormatter")
    return Model(f"{kind}Axis", ticker=ticker, formatter=formatter, major_label_policy=Model("AllLabels")), Model(f"{kind}Scale")


def document(figures: Sequence[Figure]) -> dict[str, Any]:
    """What `Bokeh.embed.embed_items` takes: the document `charts` with a root for each figure, and the ids of the roots."""
    ids: dict[int, str] = {}
    models = [figure.model for figure in figures]  # kept until all are encoded, because they are known by their id()
    roots = [_encoded(model, ids) for model in models]
    config = _encoded(Model("DocumentConfig", notifications=Model("Notifications")), ids)
    page = {"version": version("bokeh"), "title": "charts", "roots": roots, "config": config}
    return {"docs": {"charts": page}, "roots": [ids[id(model)] for model in models]}


def _encoded(value: Any, ids: dict[int, str]) -> Any:
    """A value in Bokeh's notation; a model is written once, and then named by its id."""
    if isinstance(value, Model):
        if (known := ids.get(id(value))) is not None:
            return {"id": known}
        ids[id(value)] = name = f"p{len(ids) + 1}"
        attributes = {key: _encoded(item, ids) for key, item in value.properties.items()}
        return {"type": "object", "name": value.name, "id": name, "attributes": attributes}
    if isinstance(value, Field):
        return {"type": "field", "field": value.column}
    if isinstance(value, Constant):
        return {"type": "value", "value": _encoded(value.value, ids)}
    if isinstance(value, np.ndarray):
        packed = gzip.compress(value.astype("<f4").tobytes(), mtime=0)
        data = {"type": "bytes", "data": base64.b64encode(packed).decode()}
        return {"type": "ndarray", "array": data, "shape": list(value.shape), "dtype": "float32", "order": "little"}
    if isinstance(value, Mapping):
        return {"type": "map", "entries": [[key, _encoded(item, ids)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_encoded(item, ids) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"type": "number", "value": "nan" if math.isnan(value) else "+inf" if value > 0 else "-inf"}
    return value
