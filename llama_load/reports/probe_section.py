"""What a bystander felt: the tables of probes (--probe-rate), and their part of summary.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from llama_load.analysis.keys import percentile_word
from llama_load.metrics.probe_figures import PERCENTILES, ProbeFigures, ProbeSample
from llama_load.metrics.statistics import Distribution, least_count
from llama_load.tables import LEFT, Cell, Column, Row, Table, figure
from llama_load.units import quantity

_CLASSES = (
    "neighbours: the workloads whose prompts were waiting or being processed when the probe was sent; only answers: none was, but "
    "answers were being generated; idle: no request was in flight"
)
# Columns after the first two, and how soon each is left out where a terminal is too narrow (see `Column.drop`).
_COLUMNS = (("TTFT p50 (ms)", 0), ("p90", 2), ("p99", 1), ("x alone", 0), ("E2EL p50 (ms)", 3), ("x alone", 4))


def probe_tables(figures: ProbeFigures) -> Iterator[Table]:
    """The probes alone, all of them beside the load, and by neighbour class; by stage; over time."""
    rows = [_row("alone, before the load", figures.alone), _row("beside the load", figures.total)]
    rows += [_row(f"· {name}", sample) for name, sample in figures.by_class.items()]
    yield Table(
        "Probes: What a Bystander Feels", _heads("neighbours"), rows, [_alone(figures), _cost(figures), *_notes(figures), _CLASSES]
    )
    if figures.by_stage:
        yield Table("Probes by Stage", _heads("stage"), [_row(name, sample) for name, sample in figures.by_stage.items()])
    if figures.over_time:
        rows = [_row(f"{part.begin_s:.0f} to {part.end_s:.0f}", part.sample) for part in figures.over_time]
        yield Table("Probes over Time", _heads("time (s)"), rows)


def probes_json(figures: ProbeFigures | None) -> dict[str, Any] | None:
    """The figures under their names; a percentile is null where there are too few probes for it."""
    if figures is None:
        return None
    plain = asdict(figures) | {"alone": _plain(figures.alone), "total": _plain(figures.total)}
    plain["by_class"] = {name: _plain(sample) for name, sample in figures.by_class.items()}
    plain["by_stage"] = {name: _plain(sample) for name, sample in figures.by_stage.items()}
    plain["over_time"] = [{"begin_s": part.begin_s, "end_s": part.end_s} | _plain(part.sample) for part in figures.over_time]
    return plain


def _plain(sample: ProbeSample) -> dict[str, Any]:
    counts = {"sent": sample.sent, "failed": sample.failed, "cut": sample.cut, "answered": sample.ttft.count}
    ratios = {"ttft_ratio": sample.ttft_ratio, "e2el_ratio": sample.e2el_ratio}
    return counts | ratios | {"ttft_ms": _latency(sample.ttft), "e2el_ms": _latency(sample.e2el)}


def _latency(values: Distribution) -> dict[str, float | None]:
    return {"mean": values.mean} | {percentile_word(p): values.percentile(p) for p in PERCENTILES}


def _heads(first: str) -> list[Column]:
    return [Column(first, LEFT), Column("probes"), *(Column(name, drop=drop) for name, drop in _COLUMNS)]


def _row(name: str, sample: ProbeSample) -> Row:
    unanswered = sample.failed + sample.cut
    return [
        name,
        Cell(f"{sample.sent} (-{unanswered})" if unanswered else str(sample.sent), sample.sent),
        *(figure(sample.ttft.percentile(p)) for p in PERCENTILES),
        _ratio(sample.ttft_ratio),
        figure(sample.e2el.percentile(50.0)),
        _ratio(sample.e2el_ratio),
    ]


def _ratio(value: float | None) -> Cell:
    return Cell("n/a" if value is None else f"x{value:.2f}", value)


def _alone(figures: ProbeFigures) -> str:
    count = quantity(figures.alone.ttft.count, "probe")
    if figures.alone_range_ms is None:
        return "no probe was answered before the load, so there is no ratio"
    low, high = figures.alone_range_ms
    return f"x alone: the median beside the load / the median of {count} before it, on the idle server ({low:.1f} to {high:.1f} ms)"


def _cost(figures: ProbeFigures) -> str:
    tokens = "an unknown number of tokens"
    if figures.prompt_tokens is not None and figures.output_tokens is not None:
        tokens = f"{figures.prompt_tokens} prompt tokens and {figures.output_tokens} output tokens"
    requests = "n/a" if figures.request_ratio is None else f"{figures.request_ratio:.1%}"
    share = "n/a" if figures.token_ratio is None else f"{figures.token_ratio:.2%}"
    return f"{figures.rate_rps:g} probes/s took {tokens}: {requests} of all requests, {share} of all tokens; in no other figure"


def _notes(figures: ProbeFigures) -> Iterator[str]:
    total = figures.total
    if total.failed + total.cut:
        yield (f"in brackets: probes without a latency; {total.failed} failed, {total.cut} still waited when the load ended")
    samples = (figures.alone, total, *figures.by_class.values())
    lacking = sorted({p for sample in samples for p in sample.ttft.lacking})
    if lacking:
        yield "too few probes: " + ", ".join(f"{percentile_word(p)} needs {least_count(p)}" for p in lacking)
    if figures.lost_neighbours:
        yield f"{quantity(figures.lost_neighbours, 'request')} of lost workers are in no class: some neighbours are missing"
