"""The steady part and the drift of a long run: lines of the block, and in summary.json."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from llama_load.analysis.keys import percentile_word
from llama_load.analysis.over_time import SteadyFigures
from llama_load.analysis.results import Results
from llama_load.metrics.definitions import EVERY, of_group
from llama_load.metrics.soak import Drift, Soak
from llama_load.metrics.steady import NONE, SteadyPart
from llama_load.metrics.summary import Summary
from llama_load.reports.layout import TEXT_WIDTH, headline
from llama_load.tables import Cell, Table, columns, figure, text_lines
from llama_load.tables.numbers import fixed, percent
from llama_load.tables.text_width import wrapped
from llama_load.units import ns_to_s, quantity

# A part that is nearly all of the run says nothing new.
WHOLE = 0.98


def steady_lines(results: Results) -> Iterable[str]:
    """The figures of the steady part beside those of the whole; why there is none. Nothing where too few requests were sent, or
    where nearly all of the run is steady."""
    steady = results.steady
    if steady is None or (steady.figures is None and steady.part.reason != NONE and steady.part.shift_ns is None):
        return
    if steady.part.requests >= WHOLE * len(results.run.records.measured()):
        return
    yield headline("Steady Part", "-")
    yield from wrapped(steady_text(steady), TEXT_WIDTH, indent="  ")
    if steady.figures is not None:
        rows = list(_rows(steady.figures, results.total))
        yield from text_lines(Table("", columns("", "steady part", "whole run"), rows))


def steady_text(steady: SteadyFigures) -> str:
    """Where it begins and ends, or why there is none."""
    part = steady.part
    shift = steady.seconds(part.shift_ns)
    changed = "" if shift is None else f"; the server changed at {shift:.0f} s"
    if part.begin_ns is None:
        return f"{part.reason}: {part.text}{changed}"
    begin, end = steady.seconds(part.begin_ns) or 0.0, steady.seconds(part.end_ns) or 0.0
    text = f"{begin:.1f} s to {end:.1f} s of the run: {quantity(part.requests, 'request')}"
    return f"{text}; {part.warmup_share:.1%} before it are warm-up{changed}"


def _rows(steady: Summary, whole: Summary) -> Iterable[tuple[str, Cell, Cell]]:
    """Throughputs, and mean and percentiles of the latencies."""
    for name, attribute in (("Request throughput (req/s)", "request_throughput"), ("Output tok/s", "output_throughput")):
        yield name, figure(getattr(steady, attribute)), figure(getattr(whole, attribute))
    for latency in of_group(EVERY):
        one, all_ = steady.distributions[latency.key], whole.distributions[latency.key]
        if one.count:
            yield f"Mean {latency.name} (ms)", figure(one.mean), figure(all_.mean)
            for p in one.percentiles:
                yield f"P{p:g} {latency.name} (ms)", figure(one.percentile(p)), figure(all_.percentile(p))


def steady_json(results: Results) -> dict[str, Any] | None:
    """The part in seconds of the run, and its figures under vLLM's keys."""
    steady = results.steady
    if steady is None:
        return None
    part: SteadyPart = steady.part
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
    if figures is not None:
        plain |= {"request_throughput": figures.request_throughput, "output_throughput": figures.output_throughput}
        for latency in of_group(EVERY):
            sample = figures.distributions[latency.key]
            plain |= {f"mean_{latency.key}_ms": sample.mean, f"median_{latency.key}_ms": sample.median}
            plain |= {f"{percentile_word(p)}_{latency.key}_ms": sample.percentile(p) for p in sample.percentiles}
    return plain


def soak_lines(results: Results) -> Iterable[str]:
    """A row per figure of a long run: change per hour with its interval; when failures came together."""
    soak = results.soak
    if soak is None:
        return
    yield headline(f"Drift over {soak.hours:.1f} Hours", "-")
    heads = columns("", "median", "per hour", "95 % interval", "")
    yield from text_lines(Table("", heads, list(map(_drift_row, soak.drifts))))
    yield "(* the interval leaves out zero: it drifts)"
    yield from wrapped(failure_text(soak, results), TEXT_WIDTH, indent="  ")


def _drift_row(drift: Drift) -> tuple[str, str, str, str, str]:
    low, high = (percent(limit / drift.level if drift.level else 0.0, 2, sign="+") for limit in (drift.low, drift.high))
    mark = "*" if drift.is_certain else ""
    return f"{drift.name} ({drift.unit})", fixed(drift.level), percent(drift.share, 2, sign="+"), f"{low} to {high}", mark


def failure_text(soak: Soak, results: Results) -> str:
    """When failures came together."""
    burst = soak.failures
    if burst is None:
        count = results.total.failed
        return f"failures: {count}; no part of the time was found to have more of them" if count else "failures: none"
    origin_ns = int(results.run.records.measured().instants("started_mono_ns").min())
    since, until = (ns_to_s(at - origin_ns) / 3600 for at in (burst.begin_ns, burst.end_ns))
    return f"failures: {burst.inside:.1%} from {since:.2f} h to {until:.2f} h, otherwise {burst.outside:.2%}"


def soak_json(results: Results) -> dict[str, Any] | None:
    """The drifts, per hour in their units."""
    soak = results.soak
    if soak is None:
        return None
    return {
        "hours": soak.hours,
        "drifts": [asdict(drift) | {"share": drift.share, "is_certain": drift.is_certain} for drift in soak.drifts],
        "failures": soak.failures,
    }
