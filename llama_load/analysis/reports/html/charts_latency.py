"""Charts of latencies.

Their distribution, how they went over time, and TTFT against the length of the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.reports.html.chart_series import (
    TimeAxis,
    at_most,
    coarser,
    gap_percentiles_by_bin,
    percentiles_by_bin,
)
from llama_load.analysis.reports.html.charts import (
    FONT,
    Chart,
    Figure,
    Key,
    colour,
    series_colours,
)
from llama_load.analysis.reports.html.plot import Model, range_of, source, span
from llama_load.analysis.statistics.ecdf import Ecdf, Pieces
from llama_load.analysis.statistics.statistics import Distribution
from llama_load.ground.languages import Translate
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.vocabulary.definitions import BY_KEY, Latency
from llama_load.tables.numbers import milliseconds

# Dots of a chart: of more requests evenly spaced ones are drawn.
MOST_DOTS = 1500
MOST_GROUPS = 5
# The x axis is logarithmic where the largest value is this many times the median.
WIDE = 20
# Percentiles of the curves over time, and the colours of these.
_CURVES = (50.0, 95.0)
_CURVE_ROLES = ("ink", "orange")


def values_of(latency: Latency, ok: Records) -> Pieces:
    """All values of a latency, in pieces for `ecdf`."""
    if latency.is_pooled:
        return ok.gap_pieces
    return lambda: [latency.of_each(ok)]


def ecdf_chart(
    latency: Latency, curves: Mapping[str, Ecdf], whole: Distribution, t: Translate
) -> Chart | None:
    """The share of values up to each latency; one curve, or one per group by its name.

    None without values.
    """
    known = {name: curve for name, curve in curves.items() if curve.counted}
    if not known:
        return None

    longest = max(float(curve.x[-1]) for curve in known.values())
    shortest = min(float(curve.x[0]) for curve in known.values())
    is_log = _is_log(latency, longest, whole.median)
    # A log axis has no 0, which gaps between tokens that arrived together have: smaller values are
    # drawn at its beginning. It begins just below the smallest value, at a hundredth of the median
    # at the least.
    least = 0.0
    if is_log:
        least = max(0.9 * shortest, (whole.median or 0.0) / 100, 1e-3)

    plot = Figure(
        f"{latency.name} (ms)",
        t("share of values"),
        x_range=_range_of_values(shortest, longest, least, is_log=is_log),
        x_is_log=is_log,
        y_range=range_of(0, 1.03),
        height=220,
    )
    plot.y_axis.set(formatter=Model("NumeralTickFormatter", format="0 %"))

    colours = series_colours(len(known))
    lines = []
    for role, curve in zip(colours, known.values(), strict=True):
        lines.append(_draw_ecdf(plot, curve, least, colour(role)))

    plot.hover(
        lines, [(latency.name, "@x{0,0.00} ms"), (t("share of values"), "@y{0.0 %}")]
    )
    if len(known) == 1:
        _mark_percentiles(plot, whole)

    p99 = whole.percentile(99.0) if 99.0 in whole.percentiles else None
    summary = t(
        "{name}: median {median}, p99 {p99}, maximum {most}, of {count} values."
    ).format(
        name=latency.name,
        median=milliseconds(whole.median),
        p99=milliseconds(p99),
        most=milliseconds(longest),
        count=f"{whole.count:,}",
    )
    keys = []
    if len(known) > 1:
        keys = [Key(role, name) for role, name in zip(colours, known, strict=True)]

    return Chart(plot, f"{t(latency.title)} ({latency.name})", summary, keys)


def _is_log(latency: Latency, longest: float, median: float | None) -> bool:
    """Most gaps between tokens are alike and a few are a hundred times as long.

    So their axis is always logarithmic, also where there are too few to see it.
    """
    is_wide = bool(median) and longest > WIDE * (median or 0.0)
    return longest > 0 and (latency.is_pooled or is_wide)


def _range_of_values(
    shortest: float, longest: float, least: float, *, is_log: bool
) -> Model | None:
    """The x axis; from 0 unless the values lie close together. None if all are 0."""
    if is_log:
        return range_of(least, longest * 1.1)
    margin = (longest - shortest) * 0.04
    if longest / 2 < shortest < longest:
        return range_of(shortest - margin, longest + margin)
    return range_of(0, longest * 1.04) if longest > 0 else None


def _draw_ecdf(plot: Figure, curve: Ecdf, least: float, line_color: str) -> Model:
    x = np.maximum(curve.x, least)
    from_zero = np.insert(curve.share, 0, 0.0)
    steps = source(x=np.insert(x, 0, x[0]), y=from_zero)
    line = plot.draw(
        steps, "Step", x="x", y="y", mode="after", line_width=2, line_color=line_color
    )
    if curve.counted <= 20:  # a few values: each is a dot
        dots = source(x=x, y=curve.share)
        plot.draw(
            dots,
            "Scatter",
            x="x",
            y="y",
            size=6,
            fill_color=line_color,
            line_color=line_color,
        )

    return line


def _mark_percentiles(plot: Figure, whole: Distribution) -> None:
    """The median, and the percentiles that there are enough values for."""
    marked = {50.0: whole.median, **whole.percentiles}
    for place, (p, value) in enumerate(marked.items()):
        is_certain = p == 50.0 or whole.percentile(p) is not None
        if value is not None and is_certain:
            _mark(plot, value, p, above=4 + 14 * (place % 5))


def _mark(plot: Figure, value: float, p: float, above: int) -> None:
    """A dashed line at a percentile, and its name so many pixels above the axis."""
    plot.add(span(value, "height", line_color=colour("axis"), line_dash=[3, 3]))
    name = Model(
        "Label",
        x=value,
        y=above,
        y_units="screen",
        text=f" p{p:g}",
        text_font_size="11px",
        text_color=colour("label"),
        text_font=FONT,
    )
    plot.add(name)


def over_time_chart(
    latency: Latency,
    measured: Records,
    axis: TimeAxis,
    x_range: Model,
    t: Translate,
    *,
    breaks_s: Sequence[float] = (),
) -> Chart | None:
    """A latency over the time of the run; None without values.

    A dot a request, median and p95 of each bin, and where requests failed. Requests are at their
    start, gaps between tokens at their arrival. No line crosses `breaks_s`, where stages begin.
    """
    failed = measured.failed()
    over_time = _over_time(latency, measured.ok(), axis)
    values = over_time.values
    if not len(over_time.middles) and not len(values):
        return None

    plot = Figure(t("time (s)"), f"{latency.name} (ms)", x_range=x_range)
    keys = []
    note = t("Percentiles to within 5 %, of all gaps between tokens.")
    if len(values):
        shown = _drawn_rows(values)
        drawn = _dots(plot, over_time.at_s[shown], values[shown], "blue")
        start = (t("start of the request"), "@x{0,0.00} s")
        plot.hover([drawn], [start, (latency.name, "@y{0,0.00} ms")])
        keys.append(Key("blue", t("a request")))
        note = ""
        if len(shown) < len(values):
            note = t(
                "Dots: {shown} of {all} requests, evenly chosen, and the slowest. Curves: of all."
            ).format(shown=f"{len(shown):,}", all=f"{len(values):,}")

    lines = []
    for role, p, curve in zip(_CURVE_ROLES, _CURVES, over_time.curves, strict=True):
        if len(curve):
            lines += _draw_over_time(
                plot, over_time.middles, curve, breaks_s, colour(role)
            )
            name = f"p{p:g}"
            if p == 50:
                name = t("median")
            keys.append(Key(role, name))

    plot.hover(lines, [(t("time (s)"), "@x{0,0.00}"), (latency.name, "@y{0,0.00} ms")])
    if len(failed):
        _failure_ticks(plot, axis.at(failed.instants("ended_mono_ns")))
        keys.append(Key("red", t("a failure")))

    medians = over_time.curves[0]
    summarized = medians if len(medians) else values
    summary = t("{name} over time: {what} between {low} and {high}.").format(
        name=latency.name,
        what=t("the median") if len(medians) else t("all values"),
        low=milliseconds(float(summarized.min())),
        high=milliseconds(float(summarized.max())),
    )

    return Chart(
        plot, t("{name} over time").format(name=latency.name), summary, keys, note
    )


@dataclass(frozen=True, slots=True)
class _OverTime:
    """A latency over time: of each request, and a curve per percentile, by the middles of bins.

    Gaps between tokens have curves only.
    """

    at_s: NDArray[np.float64]
    values: NDArray[np.float64]
    middles: NDArray[np.float64]
    curves: list[NDArray[np.float64]]


def _over_time(latency: Latency, ok: Records, axis: TimeAxis) -> _OverTime:
    nothing = np.zeros(0)
    if latency.is_pooled:
        middles, curves = gap_percentiles_by_bin(ok, axis, _CURVES)
        return _OverTime(nothing, nothing, middles, curves)

    values = latency.of_each(ok)
    is_known = ~np.isnan(values)
    values = values[is_known]
    at_s = axis.at(ok.instants("started_mono_ns"))[is_known]
    bins = coarser(axis, len(values))
    if bins is None:
        return _OverTime(at_s, values, nothing, [nothing] * len(_CURVES))

    middles, curves = percentiles_by_bin(at_s, values, bins, _CURVES)

    return _OverTime(at_s, values, middles, curves)


def _draw_over_time(
    plot: Figure,
    middles: NDArray[np.float64],
    curve: NDArray[np.float64],
    breaks_s: Sequence[float],
    line_color: str,
) -> list[Model]:
    """A line that is interrupted at the breaks; a bin alone between two of them is a dash."""
    places = np.searchsorted(middles, breaks_s)
    x = np.insert(middles, places, breaks_s)
    y = np.insert(curve, places, np.nan)
    is_gap = np.isnan(y)
    gap_before = np.insert(is_gap[:-1], 0, True)
    gap_after = np.append(is_gap[1:], True)
    is_alone = ~is_gap & gap_before & gap_after

    drawn = []
    if not is_alone.all(where=~is_gap):
        data = source(x=x, y=y)
        drawn.append(
            plot.draw(data, "Line", x="x", y="y", line_width=2, line_color=line_color)
        )
    if is_alone.any():
        data = source(x=x[is_alone], y=y[is_alone])
        dashes = plot.draw(
            data,
            "Scatter",
            x="x",
            y="y",
            size=12,
            marker="dash",
            line_width=2,
            line_color=line_color,
        )
        drawn.append(dashes)
    return drawn


def _dots(
    plot: Figure, x: NDArray[np.float64], y: NDArray[np.float64], role: str
) -> Model:
    """A dot for each request; of many, which overlap, transparent ones."""
    alpha = 0.9 if len(x) <= 100 else 0.5
    return plot.draw(
        source(x=x, y=y),
        "Scatter",
        x="x",
        y="y",
        size=5,
        fill_color=colour(role),
        fill_alpha=alpha,
        line_color=None,
    )


def _failure_ticks(plot: Figure, at_s: NDArray[np.float64]) -> None:
    """A red tick on the x axis where a request failed."""
    shown = at_s[at_most(len(at_s), MOST_DOTS)]
    plot.draw(
        source(x=shown, y=np.zeros(len(shown))),
        "Scatter",
        x="x",
        y="y",
        marker="dash",
        angle=np.pi / 2,
        size=14,
        line_color=colour("red"),
        line_width=2,
    )


def _drawn_rows(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The rows that are drawn: all, or evenly spaced ones and the 20 largest."""
    if len(values) <= MOST_DOTS:
        return np.arange(len(values))
    largest = np.argpartition(values, -20)[-20:]
    return np.union1d(at_most(len(values), MOST_DOTS), largest)


def prompt_chart(
    measured: Records, t: Translate, groups: Sequence[str] = ()
) -> Chart | None:
    """TTFT of each request against its prompt tokens, coloured by workload.

    None where all prompts are equally long or unknown.
    """
    ok = measured.ok()
    tokens = ok.numbers("prompt_tokens")
    ttft_ms = ok.numbers("ttft_ms")
    known = ~np.isnan(tokens) & ~np.isnan(ttft_ms)
    lengths = tokens[known]
    if len(lengths) < 2 or np.ptp(lengths) == 0:
        return None

    shortest = float(lengths.min())
    longest = float(lengths.max())
    is_log = longest > WIDE * float(np.median(lengths)) and shortest > 0
    plot = Figure(
        t("prompt tokens"), "TTFT (ms)", x_is_log=is_log, zoom="both", height=280
    )
    masks = {name: ok.equals("workload", name) for name in groups[:MOST_GROUPS]}
    if len(groups) < 2:
        masks = {"": np.ones(len(ok), dtype=np.bool_)}

    drawn_count = 0
    keys = []
    for role, (name, mask) in zip(
        series_colours(len(masks)), masks.items(), strict=True
    ):
        rows = np.flatnonzero(known & mask)
        if len(rows):
            rows = rows[_drawn_rows(ttft_ms[rows])]

        drawn_count += len(rows)
        dots = _dots(plot, tokens[rows], ttft_ms[rows], role)
        plot.hover([dots], [(t("prompt tokens"), "@x{0,0}"), ("TTFT", "@y{0,0.00} ms")])
        if name:
            keys.append(Key(role, name))

    note = ""
    if drawn_count < len(lengths):
        note = t(
            "Dots: {shown} of {all} requests, evenly chosen, and the slowest."
        ).format(shown=f"{drawn_count:,}", all=f"{len(lengths):,}")

    low = f"{int(shortest):,}"
    high = f"{int(longest):,}"
    summary = t("{name} of requests with {low} to {high} prompt tokens.").format(
        name=BY_KEY["ttft"].name, low=low, high=high
    )

    return Chart(plot, t("TTFT against prompt tokens"), summary, keys, note)
