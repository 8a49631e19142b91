"""Charts of latencies: their distribution, how they went over time, and TTFT against the length of the prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.definitions import BY_KEY, Latency
from llama_load.metrics.ecdf import Ecdf, Pieces
from llama_load.metrics.statistics import Distribution
from llama_load.observed.records import Records
from llama_load.reports.html.chart_series import TimeAxis, at_most, coarser, gap_percentiles_by_bin, percentiles_by_bin
from llama_load.reports.html.charts import FONT, Chart, Figure, Key, colour, series_colours
from llama_load.reports.html.plot import Model, range_of, source, span
from llama_load.reports.translations import Translate
from llama_load.tables.numbers import milliseconds

# Dots of a chart: of more requests evenly spaced ones are drawn.
MOST_DOTS = 1500
MOST_GROUPS = 5
# The x axis is logarithmic where the largest value is this many times the median.
WIDE = 20


def values_of(latency: Latency, ok: Records) -> Pieces:
    """All values of a latency, in pieces for `ecdf`."""
    if latency.is_pooled:
        return ok.gap_pieces
    return lambda: [latency.of_each(ok)]


def ecdf_chart(latency: Latency, curves: Mapping[str, Ecdf], whole: Distribution, t: Translate) -> Chart | None:
    """The share of values up to each latency; one curve, or one per group by its name. None without values."""
    known = {name: curve for name, curve in curves.items() if curve.counted}
    if not known:
        return None
    longest = max(float(curve.x[-1]) for curve in known.values())
    shortest = min(float(curve.x[0]) for curve in known.values())
    # Most gaps between tokens are alike and a few are a hundred times as long, also where there are too few to see it.
    is_log = longest > 0 and (latency.is_pooled or bool(whole.median and longest > WIDE * whole.median))
    # A log axis has no 0, which gaps between tokens that arrived together have: smaller values are drawn at its beginning.
    # It begins just below the smallest value, at a hundredth of the median at the least.
    least = max(0.9 * shortest, (whole.median or 0.0) / 100, 1e-3) if is_log else 0.0
    margin = (longest - shortest) * 0.04
    x_range = range_of(0, longest * 1.04) if longest > 0 else None
    if is_log:
        x_range = range_of(least, longest * 1.1)
    elif longest / 2 < shortest < longest:
        x_range = range_of(shortest - margin, longest + margin)
    y_range = range_of(0, 1.03)
    plot = Figure(f"{latency.name} (ms)", t("share of values"), x_range=x_range, x_is_log=is_log, y_range=y_range, height=220)
    plot.y_axis.set(formatter=Model("NumeralTickFormatter", format="0 %"))
    colours = series_colours(len(known))
    lines = []
    for role, curve in zip(colours, known.values(), strict=True):
        x = np.maximum(curve.x, least)
        data = source(x=np.concatenate((x[:1], x)), y=np.concatenate(([0.0], curve.share)))
        lines.append(plot.draw(data, "Step", x="x", y="y", mode="after", line_width=2, line_color=colour(role)))
        if curve.counted <= 20:  # a few values: each is a dot
            plot.draw(source(x=x, y=curve.share), "Scatter", x="x", y="y", size=6, fill_color=colour(role), line_color=colour(role))
    plot.hover(lines, [(latency.name, "@x{0,0.00} ms"), (t("share of values"), "@y{0.0 %}")])
    for place, (p, value) in enumerate({50.0: whole.median, **whole.percentiles}.items()):
        if value is not None and len(known) == 1 and (p == 50.0 or whole.percentile(p) is not None):
            _mark(plot, value, p, above=4 + 14 * (place % 5))
    summary = t("{name}: median {median}, p99 {p99}, maximum {most}, of {count} values.").format(
        name=latency.name,
        median=milliseconds(whole.median),
        p99=milliseconds(whole.percentile(99.0) if 99.0 in whole.percentiles else None),
        most=milliseconds(longest),
        count=f"{whole.count:,}",
    )
    keys = [Key(role, name) for role, name in zip(colours, known, strict=True)] if len(known) > 1 else []
    return Chart(plot, f"{t(latency.title)} ({latency.name})", summary, keys)


def _mark(plot: Figure, value: float, p: float, above: int) -> None:
    """A dashed line at a percentile, and its name so many pixels above the axis."""
    plot.add(span(value, "height", line_color=colour("axis"), line_dash=[3, 3]))
    look = {"text_font_size": "11px", "text_color": colour("label"), "text_font": FONT}
    plot.add(Model("Label", x=value, y=above, y_units="screen", text=f" p{p:g}", **look))


def over_time_chart(
    latency: Latency, measured: Records, axis: TimeAxis, x_range: Model, t: Translate, *, breaks_s: Sequence[float] = ()
) -> Chart | None:
    """A latency over the time of the run: a dot a request, median and p95 of each bin, and where requests failed. None without
    values. Requests are at their start, gaps between tokens at their arrival. No line crosses `breaks_s`, where stages begin."""
    ok, failed = measured.ok(), measured.failed()
    percentiles = (50.0, 95.0)
    values, at_s, middles, curves = np.zeros(0), np.zeros(0), np.zeros(0), [np.zeros(0)] * len(percentiles)
    if latency.is_pooled:
        middles, curves = gap_percentiles_by_bin(ok, axis, percentiles)
    else:
        values = latency.of_each(ok)
        at_s = axis.at(ok.instants("started_mono_ns"))
        at_s, values = at_s[~np.isnan(values)], values[~np.isnan(values)]
        if (bins := coarser(axis, len(values))) is not None:
            middles, curves = percentiles_by_bin(at_s, values, bins, percentiles)
    if not len(middles) and not len(values):
        return None
    plot = Figure(t("time (s)"), f"{latency.name} (ms)", x_range=x_range)
    keys, note = [], ""
    if len(values):
        shown = _chosen(values)
        drawn = _dots(plot, at_s[shown], values[shown], "blue")
        plot.hover([drawn], [(t("start of the request"), "@x{0,0.00} s"), (latency.name, "@y{0,0.00} ms")])
        keys.append(Key("blue", t("a request")))
        if len(shown) < len(values):
            note = t("Dots: {shown} of {all} requests, evenly chosen, and the slowest. Curves: of all.").format(
                shown=f"{len(shown):,}", all=f"{len(values):,}"
            )
    else:
        note = t("Percentiles to within 5 %, of all gaps between tokens.")
    lines = []
    for role, p, curve in zip(("ink", "orange"), percentiles, curves, strict=True):
        if not len(curve):
            continue
        places = np.searchsorted(middles, breaks_s)
        data = source(x=np.insert(middles, places, breaks_s), y=np.insert(curve, places, np.nan))
        if len(curve) > 1:
            lines.append(plot.draw(data, "Line", x="x", y="y", line_width=2, line_color=colour(role)))
        else:
            lines.append(plot.draw(data, "Scatter", x="x", y="y", size=12, marker="dash", line_width=2, line_color=colour(role)))
        keys.append(Key(role, t("median") if p == 50 else f"p{p:g}"))
    plot.hover(lines, [(t("time (s)"), "@x{0,0.00}"), (latency.name, "@y{0,0.00} ms")])
    if len(failed):
        _failures(plot, axis.at(failed.instants("ended_mono_ns")))
        keys.append(Key("red", t("a failure")))
    lows_highs = curves[0] if len(curves[0]) else values
    what = t("the median") if len(curves[0]) else t("all values")
    summary = t("{name} over time: {what} between {low} and {high}.").format(
        name=latency.name, what=what, low=milliseconds(float(lows_highs.min())), high=milliseconds(float(lows_highs.max()))
    )
    return Chart(plot, t("{name} over time").format(name=latency.name), summary, keys, note)


def _dots(plot: Figure, x: NDArray[np.float64], y: NDArray[np.float64], role: str) -> Model:
    """A dot for each request; of many, which overlap, transparent ones."""
    alpha = 0.9 if len(x) <= 100 else 0.5
    return plot.draw(source(x=x, y=y), "Scatter", x="x", y="y", size=5, fill_color=colour(role), fill_alpha=alpha, line_color=None)


def _failures(plot: Figure, at_s: NDArray[np.float64]) -> None:
    """A red tick on the x axis where a request failed."""
    shown = at_s[at_most(len(at_s), MOST_DOTS)]
    data = source(x=shown, y=np.zeros(len(shown)))
    look = {"marker": "dash", "angle": np.pi / 2, "size": 14, "line_color": colour("red"), "line_width": 2}
    plot.draw(data, "Scatter", x="x", y="y", **look)


def _chosen(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The rows that are drawn: all, or evenly spaced ones and the 20 largest."""
    if len(values) <= MOST_DOTS:
        return np.arange(len(values))
    largest = np.argpartition(values, -20)[-20:]
    return np.union1d(at_most(len(values), MOST_DOTS), largest)


def prompt_chart(measured: Records, t: Translate, groups: Sequence[str] = ()) -> Chart | None:
    """TTFT of each request against its prompt tokens, coloured by workload; None where all prompts are equally long or unknown."""
    ok = measured.ok()
    tokens, ttft = ok.numbers("prompt_tokens"), ok.numbers("ttft_ms")
    known = ~np.isnan(tokens) & ~np.isnan(ttft)
    if known.sum() < 2 or np.ptp(tokens[known]) == 0:
        return None
    largest, median = float(tokens[known].max()), float(np.median(tokens[known]))
    is_log = largest > WIDE * median and tokens[known].min() > 0
    plot = Figure(t("prompt tokens"), "TTFT (ms)", x_is_log=bool(is_log), zoom="both", height=280)
    names = list(groups)[:MOST_GROUPS] if len(groups) > 1 else []
    masks = [(name, ok.equals("workload", name)) for name in names] or [("", np.ones(len(ok), dtype=np.bool_))]
    drawn_count = 0
    keys = []
    for role, (name, mask) in zip(series_colours(len(masks)), masks, strict=True):
        rows = np.flatnonzero(known & mask)
        rows = rows[_chosen(ttft[rows])] if len(rows) else rows
        drawn_count += len(rows)
        dots = _dots(plot, tokens[rows], ttft[rows], role)
        plot.hover([dots], [(t("prompt tokens"), "@x{0,0}"), ("TTFT", "@y{0,0.00} ms")])
        keys += [Key(role, name)] if name else []
    note = ""
    if drawn_count < known.sum():
        note = t("Dots: {shown} of {all} requests, evenly chosen, and the slowest.").format(
            shown=f"{drawn_count:,}", all=f"{int(known.sum()):,}"
        )
    summary = t("{name} of requests with {low} to {high} prompt tokens.").format(
        name=BY_KEY["ttft"].name, low=f"{int(tokens[known].min()):,}", high=f"{int(largest):,}"
    )
    return Chart(plot, t("TTFT against prompt tokens"), summary, keys, note)
