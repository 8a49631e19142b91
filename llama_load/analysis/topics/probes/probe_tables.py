"""What a bystander felt: the tables of probes (--probe-rate), and their part of summary.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from llama_load.analysis.figures.probe_figures import (
    PERCENTILES,
    ProbeFigures,
    ProbeSample,
)
from llama_load.analysis.statistics.statistics import Distribution
from llama_load.ground.languages import Translate
from llama_load.ground.units import quantity
from llama_load.run_folder.arithmetic.percentiles import least_count, percentile_word
from llama_load.tables import LEFT, Cell, Column, Row, Table, figure
from llama_load.tables.numbers import NONE, percent

_CLASSES = (
    "neighbours: the workloads whose prompts were waiting or being processed when the probe was "
    "sent; only answers: none was, but answers were being generated; "
    "idle: no request was in flight"
)
# Columns after the first two, and how soon each is left out where a terminal is too narrow (see
# `Column.drop`).
_COLUMNS = (
    ("TTFT p50 (ms)", 0),
    ("p90", 2),
    ("p99", 1),
    ("x alone", 0),
    ("E2EL p50 (ms)", 3),
    ("x alone", 4),
)


def probe_tables(figures: ProbeFigures, t: Translate) -> Iterator[Table]:
    """The probes alone, beside the load, and by neighbour class; by stage; over time."""
    rows = [
        _probe_row(t("alone, before the load"), figures.alone),
        _probe_row(t("beside the load"), figures.total),
    ]
    for name, sample in figures.by_class.items():
        rows.append(_probe_row(f"· {name}", sample))

    notes = [_alone(figures), _cost(figures), *_notes_on_probes(figures), _CLASSES]
    yield Table(
        t("Probes: What a Bystander Feels"), _heads("neighbours", t), rows, notes
    )

    if figures.by_stage:
        rows = [_probe_row(name, sample) for name, sample in figures.by_stage.items()]
        yield Table(t("Probes by Stage"), _heads("stage", t), rows)

    if figures.over_time:
        rows = []
        for part in figures.over_time:
            when = f"{part.begin_s:.0f} to {part.end_s:.0f}"
            rows.append(_probe_row(when, part.sample))

        yield Table(t("Probes over Time"), _heads("time (s)", t), rows)


def probes_plain(figures: ProbeFigures) -> dict[str, Any]:
    """The figures under their names; a percentile is null where there are too few probes for it."""
    plain = asdict(figures)
    plain["alone"] = _sample_json(figures.alone)
    plain["total"] = _sample_json(figures.total)
    plain["by_class"] = _samples_json(figures.by_class)
    plain["by_stage"] = _samples_json(figures.by_stage)
    plain["over_time"] = []
    for part in figures.over_time:
        span = {"begin_s": part.begin_s, "end_s": part.end_s}
        plain["over_time"].append(span | _sample_json(part.sample))

    return plain


def _samples_json(samples: Mapping[str, ProbeSample]) -> dict[str, Any]:
    return {name: _sample_json(sample) for name, sample in samples.items()}


def _sample_json(sample: ProbeSample) -> dict[str, Any]:
    return {
        "sent": sample.sent,
        "failed": sample.failed,
        "cut": sample.cut,
        "answered": sample.ttft.count,
        "ttft_ratio": sample.ttft_ratio,
        "e2el_ratio": sample.e2el_ratio,
        "ttft_ms": _latency_json(sample.ttft),
        "e2el_ms": _latency_json(sample.e2el),
    }


def _latency_json(values: Distribution) -> dict[str, float | None]:
    plain = {"mean": values.mean}
    for p in PERCENTILES:
        plain[percentile_word(p)] = values.percentile(p)
    return plain


def _heads(first: str, t: Translate) -> list[Column]:
    heads = [Column(t(first), LEFT), Column(t("probes"))]
    for name, drop in _COLUMNS:
        heads.append(Column(t(name), drop=drop))
    return heads


def _probe_row(name: str, sample: ProbeSample) -> Row:
    unanswered = sample.failed + sample.cut
    sent = str(sample.sent)
    if unanswered:
        sent += f" (-{unanswered})"

    percentiles = [figure(sample.ttft.percentile(p)) for p in PERCENTILES]

    return [
        name,
        Cell(sent, sample.sent),
        *percentiles,
        _ratio(sample.ttft_ratio),
        figure(sample.e2el.percentile(50.0)),
        _ratio(sample.e2el_ratio),
    ]


def _ratio(value: float | None) -> Cell:
    if value is None:
        return Cell(NONE)
    return Cell(f"x{value:.2f}", value)


def _alone(figures: ProbeFigures) -> str:
    if figures.alone_range_ms is None:
        return "no probe was answered before the load, so there is no ratio"

    count = quantity(figures.alone.ttft.count, "probe")
    low, high = figures.alone_range_ms
    return (
        f"x alone: the median beside the load / the median of {count} before it, "
        f"on the idle server ({low:.1f} to {high:.1f} ms)"
    )


def _cost(figures: ProbeFigures) -> str:
    tokens = "an unknown number of tokens"
    if figures.prompt_tokens is not None and figures.output_tokens is not None:
        tokens = f"{figures.prompt_tokens} prompt tokens and {figures.output_tokens} output tokens"

    requests = percent(figures.request_ratio)
    share = percent(figures.token_ratio, 2)

    return (
        f"{figures.rate_rps:g} probes/s took {tokens}: "
        f"{requests} of all requests, {share} of all tokens; in no other figure"
    )


def _notes_on_probes(figures: ProbeFigures) -> Iterator[str]:
    total = figures.total
    if total.failed + total.cut:
        yield (
            f"in brackets: probes without a latency; {total.failed} failed, "
            f"{total.cut} still waited when the load ended"
        )

    lacking = set(figures.alone.ttft.lacking)
    lacking.update(total.ttft.lacking)
    for sample in figures.by_class.values():
        lacking.update(sample.ttft.lacking)

    if lacking:
        needs = [
            f"{percentile_word(p)} needs {least_count(p)}" for p in sorted(lacking)
        ]
        yield f"too few probes: {', '.join(needs)}"

    if figures.lost_neighbours:
        lost = quantity(figures.lost_neighbours, "request")
        yield f"{lost} of lost workers are in no class: some neighbours are missing"
