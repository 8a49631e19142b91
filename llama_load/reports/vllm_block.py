"""The block of `vllm bench serve` 0.33, line by line, from the figures and latencies in `llama_load.metrics.definitions`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from llama_load.analysis.keys import configured_load, percentile_word, speculation_of
from llama_load.metrics.definitions import BY_KEY, EVERY, FIGURE_BY_KEY, FIGURES, Figure, Latency, of_group
from llama_load.metrics.spoiled import SPOILED_MARK
from llama_load.metrics.stage_figures import StageFigures
from llama_load.metrics.summary import Summary, shown_latencies
from llama_load.reports.layout import WIDTH, headline, number, whole
from llama_load.run_folder import Manifest
from llama_load.tables.numbers import count

TOO_FEW = "*"
OUTCOME = ("completed", "failed")  # above the load, all others below it


def vllm_block(manifest: Manifest, figures: Summary, stage: StageFigures | None = None, spoiled: Collection[str] = ()) -> list[str]:
    """The lines of vLLM's block; for embeddings and rerankings only those that apply. `spoiled`: keys of figures that are marked,
    because a check that failed spoils them."""
    if figures.total_inputs is not None and not figures.total_output_tokens:
        return _embeddings_block(manifest, figures, stage, spoiled)
    left_out = OUTCOME if manifest.goodput else (*OUTCOME, "request_goodput")
    lines = [
        *_head(manifest, figures, stage),
        *(_line(figure, figures, spoiled) for figure in FIGURES if figure.line and figure.key not in left_out),
    ]
    chosen = shown_latencies(manifest.percentile_metrics, figures)
    for latency in of_group(EVERY):
        if latency.key in chosen:
            lines += _section(latency, figures, spoiled)
    lines += _client_queue(manifest, figures, stage, spoiled)
    lines += _speculative(manifest, figures, stage)
    lines.append("=" * WIDTH)
    return lines


def _head(manifest: Manifest, figures: Summary, stage: StageFigures | None) -> Iterable[str]:
    """The numbers of successful and failed requests, and the load."""
    yield headline(" Serving Benchmark Result ", "=")
    for key in OUTCOME:
        yield _line(FIGURE_BY_KEY[key], figures)
    most, rate = configured_load(manifest, stage)
    if most is not None:
        yield whole("Maximum request concurrency:", most)
    if rate is not None:
        yield number("Request rate configured (RPS):", rate)


def _line(figure: Figure, figures: Summary, spoiled: Collection[str] = ()) -> str:
    value = figure.of(figures)
    mark = _mark(figure.key, spoiled)
    if not figure.is_count:
        return number(f"{figure.line}:", value) + mark
    return whole(f"{figure.line}:", count(value, getattr(figures, figure.known) if figure.known else 0)) + mark


def _mark(key: str, spoiled: Collection[str]) -> str:
    """What follows a figure that a failed check spoils."""
    return f" {SPOILED_MARK}" if key in spoiled else ""


def _section(latency: Latency, figures: Summary, spoiled: Collection[str]) -> list[str]:
    return [headline(latency.title, "-"), *distribution_lines(latency.name, latency.key, figures, spoiled)]


def distribution_lines(name: str, key: str, figures: Summary, spoiled: Collection[str] = ()) -> list[str]:
    """Mean, median and the reported percentiles of a latency; those with too few values, and those that are spoiled, are marked."""
    sample = figures.distributions[key]
    lines = [
        number(f"Mean {name} (ms):", sample.mean) + _mark(f"mean_{key}_ms", spoiled),
        number(f"Median {name} (ms):", sample.median) + _mark(f"median_{key}_ms", spoiled),
    ]
    for p, value in sample.percentiles.items():
        word = percentile_word(p)
        mark = f" {TOO_FEW}" if value is not None and sample.percentile(p) is None else ""
        lines.append(number(f"{word.upper()} {name} (ms):", value) + (mark or _mark(f"{word}_{key}_ms", spoiled)))
    return lines


def _client_queue(manifest: Manifest, figures: Summary, stage: StageFigures | None, spoiled: Collection[str]) -> Iterable[str]:
    """vLLM's sections for a limited open loop."""
    most, rate = configured_load(manifest, stage)
    if most is None or not figures.distributions["client_queue"].count:
        return
    yield from _section(BY_KEY["client_queue"], figures, spoiled)
    if rate is not None:
        yield from _section(BY_KEY["scheduled_e2el"], figures, spoiled)


def _embeddings_block(manifest: Manifest, figures: Summary, stage: StageFigures | None, spoiled: Collection[str]) -> list[str]:
    # Inputs per request, taken from the successful ones.
    inputs, requests_per_s = figures.total_inputs, figures.request_throughput
    known = inputs is not None and requests_per_s is not None and figures.completed
    inputs_per_s = (inputs or 0) / figures.completed * (requests_per_s or 0.0) if known else None
    return [
        *_head(manifest, figures, stage),
        _line(FIGURE_BY_KEY["duration"], figures),
        whole("Total inputs:", count(figures.total_inputs)),
        _line(FIGURE_BY_KEY["total_input_tokens"], figures),
        _line(FIGURE_BY_KEY["request_throughput"], figures, spoiled),
        number("Input throughput (inputs/s):", inputs_per_s),
        number("Input token throughput (tok/s):", figures.total_token_throughput),
        _line(FIGURE_BY_KEY["max_concurrent_requests"], figures),
        *_section(BY_KEY["e2el"], figures, spoiled),
        *_client_queue(manifest, figures, stage, spoiled),
        "=" * WIDTH,
    ]


def _speculative(manifest: Manifest, figures: Summary, stage: StageFigures | None) -> Iterable[str]:
    """vLLM's section, from the servers' counters, else from what each answer reports."""
    known = speculation_of(manifest, figures, stage)
    if known is None:
        return
    yield headline("Speculative Decoding", "-")
    yield number("Acceptance rate (%):", None if known.acceptance_rate is None else known.acceptance_rate * 100)
    if known.drafts is not None:
        yield number("Acceptance length:", known.acceptance_length)
        yield whole("Drafts:", known.drafts)
    yield whole("Draft tokens:", known.draft_tokens)
    yield whole("Accepted tokens:", known.accepted_tokens)
    if known.per_position:
        yield "Per-position acceptance (%):"
        used = max((place for place, count in enumerate(known.per_position) if count), default=0)
        for place, rate in enumerate(known.per_position_rates[: used + 1]):
            yield number(f"  Position {place}:", rate * 100)
