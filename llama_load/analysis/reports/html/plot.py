"""Figures as BokehJS reads them, as JSON.

Models with the properties that differ from their defaults. Bokeh's own Python models would check
and fill in every property, and take 0.3 s to import and 0.3 s to write a report
(docs/decisions/015-charts-without-bokehs-models.md). The tests read what is written here with them.
"""

from __future__ import annotations

import base64
import gzip
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.bundled import BOKEH_VERSION

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
    """A line across a figure.

    `dimension` "height" is a vertical one at this x, "width" a horizontal one at this y.
    """
    return Model("Span", location=location, dimension=dimension, **properties)


def range_of(start: float, end: float, **properties: Any) -> Model:
    """A fixed range of an axis."""
    return Model("Range1d", start=start, end=end, **properties)


def source(**columns: NDArray[Any] | Sequence[Any]) -> Model:
    """A data source of these columns.

    Numbers are float32, which is half the size and exact to 7 digits.
    """
    data: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, np.ndarray) and column.dtype.kind in "fiu":
            data[name] = column.astype(np.float32)
        else:
            data[name] = list(column)

    return Model("ColumnDataSource", data=data)


def glyph(data: Model, name: str, **properties: Any) -> Model:
    """What draws a data source with a glyph of BokehJS, such as "Line".

    A property that is the name of a column has the values of this column, another is the same for
    all points.
    """
    fields = _by_point(data, properties, is_plain=name in _SCALAR_GLYPHS)
    return Model(
        "GlyphRenderer",
        data_source=data,
        view=Model("CDSView"),
        glyph=Model(name, **fields),
    )


def annotation(data: Model, name: str, **properties: Any) -> Model:
    """An annotation of each point of a data source, such as "LabelSet".

    Its properties are like those of a `glyph`.
    """
    return Model(name, source=data, **_by_point(data, properties, is_plain=False))


def _by_point(
    data: Model, properties: Mapping[str, Any], *, is_plain: bool
) -> dict[str, Any]:
    """The properties as columns and constants; `is_plain`: constants are plain values."""
    columns = data.properties["data"]
    fields: dict[str, Any] = {}
    for name, value in properties.items():
        if isinstance(value, str) and value in columns:
            fields[name] = Field(value)
        else:
            fields[name] = value if is_plain else Constant(value)

    return fields


def axis(along: Model, *, is_log: bool) -> tuple[Model, Model]:
    """The axis of a range, and its scale."""
    if along.name == "FactorRange":
        kind = "Categorical"
        ticker = Model("CategoricalTicker")
        formatter = Model("CategoricalTickFormatter")
    elif is_log:
        kind = "Log"
        ticker = Model("LogTicker", num_minor_ticks=10, mantissas=[1, 5])
        formatter = Model("LogTickFormatter")
    else:
        kind = "Linear"
        ticker = Model("BasicTicker", mantissas=[1, 2, 5])
        formatter = Model("BasicTickFormatter")

    labels = Model("AllLabels")
    drawn = Model(
        f"{kind}Axis", ticker=ticker, formatter=formatter, major_label_policy=labels
    )

    return drawn, Model(f"{kind}Scale")


def document(figures: Sequence[Model]) -> dict[str, Any]:
    """What `Bokeh.embed.embed_items` takes.

    The document `charts` with a root for each figure, and the ids of the roots.
    """
    ids: dict[int, str] = {}
    roots = [_encoded(figure, ids) for figure in figures]
    config = _encoded(
        Model("DocumentConfig", notifications=Model("Notifications")), ids
    )
    page = {
        "version": BOKEH_VERSION,
        "title": "charts",
        "roots": roots,
        "config": config,
    }
    return {"docs": {"charts": page}, "roots": [ids[id(figure)] for figure in figures]}


def _encoded(value: Any, ids: dict[int, str]) -> Any:
    """A value in Bokeh's notation.

    A model is written once, and then named by its id; `ids` has those that were written.
    """
    if isinstance(value, Model):
        return _encoded_model(value, ids)
    if isinstance(value, Field):
        return {"type": "field", "field": value.column}
    if isinstance(value, Constant):
        return {"type": "value", "value": _encoded(value.value, ids)}
    if isinstance(value, np.ndarray):
        return _encoded_array(value)
    if isinstance(value, Mapping):
        entries = [[key, _encoded(item, ids)] for key, item in value.items()]
        return {"type": "map", "entries": entries}
    if isinstance(value, list | tuple):
        return [_encoded(item, ids) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"type": "number", "value": _not_finite(value)}

    return value


def _encoded_model(model: Model, ids: dict[int, str]) -> dict[str, Any]:
    known = ids.get(id(model))
    if known is not None:
        return {"id": known}

    name = f"p{len(ids) + 1}"
    ids[id(model)] = name
    attributes = {key: _encoded(item, ids) for key, item in model.properties.items()}

    return {"type": "object", "name": model.name, "id": name, "attributes": attributes}


def _encoded_array(values: NDArray[Any]) -> dict[str, Any]:
    packed = gzip.compress(values.astype("<f4").tobytes(), mtime=0)
    return {
        "type": "ndarray",
        "array": {"type": "bytes", "data": base64.b64encode(packed).decode()},
        "shape": list(values.shape),
        "dtype": "float32",
        "order": "little",
    }


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return "+inf" if value > 0 else "-inf"
