"""The steady part of a run beside the whole: its table, and its part of summary.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llama_load.analysis.figures.summary import Summary
from llama_load.analysis.topics.steady.steady_figures import SteadyFigures
from llama_load.analysis.topics.steady.steady_part import NONE
from llama_load.ground.languages import Translate
from llama_load.ground.units import quantity
from llama_load.run_folder.arithmetic.percentiles import percentile_word
from llama_load.run_folder.vocabulary.definitions import EVERY, of_group
from llama_load.tables import Cell, Table, columns, figure

# The throughputs of the steady part that are shown.
_RATES = {
    "Request throughput (req/s)": "request_throughput",
    "Output tok/s": "output_throughput",
}
# A part that is nearly all of the run says nothing new.
WHOLE = 0.98


def steady_tables(steady: SteadyFigures, t: Translate) -> Iterator[Table]:
    """The figures of the steady part beside those of the whole, or why there is none.

    Nothing where too few requests were sent, or where nearly all of the run is steady.
    """
    if not _says_something(steady):
        return
    if steady.part.requests >= WHOLE * steady.measured:
        return

    rows = []
    if steady.figures is not None:
        rows = list(_rows(steady.figures, steady.whole, t))

    heads = columns("", t("steady part"), t("whole run"))
    yield Table(t("Steady Part"), heads, rows, [steady_text(steady)])


def _says_something(steady: SteadyFigures) -> bool:
    """Whether there is a steady part, there is none for sure, or the server changed."""
    part = steady.part
    return (
        steady.figures is not None or part.reason == NONE or part.shift_ns is not None
    )


def steady_text(steady: SteadyFigures) -> str:
    """Where it begins and ends, or why there is none."""
    part = steady.part
    shift = steady.seconds(part.shift_ns)
    changed = "" if shift is None else f"; the server changed at {shift:.0f} s"
    if part.begin_ns is None:
        return f"{part.reason}: {part.text}{changed}"

    begin_s = steady.seconds(part.begin_ns) or 0.0
    end_s = steady.seconds(part.end_ns) or 0.0
    requests = quantity(part.requests, "request")
    text = f"{begin_s:.1f} s to {end_s:.1f} s of the run: {requests}"

    return f"{text}; {part.warmup_share:.1%} before it are warm-up{changed}"


def _rows(
    steady: Summary, whole: Summary, t: Translate
) -> Iterator[tuple[str, Cell, Cell]]:
    """Throughputs, and mean and percentiles of the latencies."""
    for name, attribute in _RATES.items():
        of_part = getattr(steady, attribute)
        of_whole = getattr(whole, attribute)
        yield t(name), figure(of_part), figure(of_whole)

    for latency in of_group(EVERY):
        of_part = steady.distributions[latency.key]
        of_whole = whole.distributions[latency.key]
        if not of_part.count:
            continue

        name = f"Mean {latency.name} (ms)"
        yield name, figure(of_part.mean), figure(of_whole.mean)
        for p in of_part.percentiles:
            name = f"P{p:g} {latency.name} (ms)"
            cell = figure(of_part.percentile(p))
            yield name, cell, figure(of_whole.percentile(p))


def steady_plain(steady: SteadyFigures) -> dict[str, Any]:
    """The part in seconds of the run, and its figures under vLLM's keys."""
    part = steady.part
    plain: dict[str, Any] = {
        "reason": part.reason,
        "text": part.text,
        "begin_s": steady.seconds(part.begin_ns),
        "end_s": steady.seconds(part.end_ns),
        "requests": part.requests,
        "warmup_share": part.warmup_share,
        "shift_s": steady.seconds(part.shift_ns),
    }
    figures = steady.figures
    if figures is None:
        return plain

    plain["request_throughput"] = figures.request_throughput
    plain["output_throughput"] = figures.output_throughput
    for latency in of_group(EVERY):
        sample = figures.distributions[latency.key]
        plain[f"mean_{latency.key}_ms"] = sample.mean
        plain[f"median_{latency.key}_ms"] = sample.median
        for p in sample.percentiles:
            plain[f"{percentile_word(p)}_{latency.key}_ms"] = sample.percentile(p)

    return plain
