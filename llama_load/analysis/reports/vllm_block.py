"""The block of `vllm bench serve` 0.33, line by line.

From the figures and latencies in `llama_load.run_folder.vocabulary.definitions`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from llama_load.analysis.figures.spoiled import SPOILED_MARK
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.figures.summary import Summary, shown_latencies
from llama_load.analysis.reports.layout import WIDTH, headline, number, whole
from llama_load.analysis.results.keys import configured_load, speculation_of
from llama_load.run_folder import Manifest
from llama_load.run_folder.arithmetic.percentiles import percentile_word
from llama_load.run_folder.vocabulary.definitions import (
    BY_KEY,
    EVERY,
    FIGURE_BY_KEY,
    FIGURES,
    Figure,
    Latency,
    of_group,
)
from llama_load.tables.numbers import count

TOO_FEW = "*"
OUTCOME = ("completed", "failed")  # above the load, all others below it


def vllm_block(
    manifest: Manifest,
    figures: Summary,
    stage: StageFigures | None = None,
    spoiled: Collection[str] = (),
) -> list[str]:
    """The lines of vLLM's block; for embeddings and rerankings only those that apply.

    `spoiled`: keys of figures that are marked, because a check that failed spoils them.
    """
    if figures.total_inputs is not None and not figures.total_output_tokens:
        return _embeddings_block(manifest, figures, stage, spoiled)

    left_out = OUTCOME if manifest.goodput else (*OUTCOME, "request_goodput")
    lines = list(_head(manifest, figures, stage))
    for figure in FIGURES:
        if figure.line and figure.key not in left_out:
            lines.append(_line(figure, figures, spoiled))

    chosen = shown_latencies(manifest.percentile_metrics, figures)
    for latency in of_group(EVERY):
        if latency.key in chosen:
            lines += _section(latency, figures, spoiled)

    lines += _client_queue(manifest, figures, stage, spoiled)
    lines += _speculative(manifest, figures, stage)
    lines.append("=" * WIDTH)

    return lines


def _head(
    manifest: Manifest, figures: Summary, stage: StageFigures | None
) -> Iterable[str]:
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
    name = f"{figure.line}:"
    value = figure.of(figures)
    if not figure.is_count:
        line = number(name, value)
    else:
        known = getattr(figures, figure.known) if figure.known else 0
        line = whole(name, count(value, known))

    return line + _mark(figure.key, spoiled)


def _mark(key: str, spoiled: Collection[str]) -> str:
    """What follows a figure that a failed check spoils."""
    if key not in spoiled:
        return ""
    return f" {SPOILED_MARK}"


def _section(latency: Latency, figures: Summary, spoiled: Collection[str]) -> list[str]:
    lines = distribution_lines(latency.name, latency.key, figures, spoiled)
    return [headline(latency.title, "-"), *lines]


def distribution_lines(
    name: str, key: str, figures: Summary, spoiled: Collection[str] = ()
) -> list[str]:
    """Mean, median and the reported percentiles of a latency.

    Those with too few values, and those that are spoiled, are marked.
    """
    sample = figures.distributions[key]
    lines = [
        number(f"Mean {name} (ms):", sample.mean) + _mark(f"mean_{key}_ms", spoiled),
        number(f"Median {name} (ms):", sample.median)
        + _mark(f"median_{key}_ms", spoiled),
    ]

    for percentile, value in sample.percentiles.items():
        word = percentile_word(percentile)
        mark = _mark(f"{word}_{key}_ms", spoiled)
        if value is not None and sample.percentile(percentile) is None:
            mark = f" {TOO_FEW}"

        lines.append(number(f"{word.upper()} {name} (ms):", value) + mark)

    return lines


def _client_queue(
    manifest: Manifest,
    figures: Summary,
    stage: StageFigures | None,
    spoiled: Collection[str],
) -> Iterable[str]:
    """vLLM's sections for a limited open loop."""
    most, rate = configured_load(manifest, stage)
    if most is None or not figures.distributions["client_queue"].count:
        return
    yield from _section(BY_KEY["client_queue"], figures, spoiled)
    if rate is not None:
        yield from _section(BY_KEY["scheduled_e2el"], figures, spoiled)


def _embeddings_block(
    manifest: Manifest,
    figures: Summary,
    stage: StageFigures | None,
    spoiled: Collection[str],
) -> list[str]:
    lines = list(_head(manifest, figures, stage))
    lines += [
        _line(FIGURE_BY_KEY["duration"], figures),
        whole("Total inputs:", count(figures.total_inputs)),
        _line(FIGURE_BY_KEY["total_input_tokens"], figures),
        _line(FIGURE_BY_KEY["request_throughput"], figures, spoiled),
        number("Input throughput (inputs/s):", _inputs_per_s(figures)),
        number("Input token throughput (tok/s):", figures.total_token_throughput),
        _line(FIGURE_BY_KEY["max_concurrent_requests"], figures),
    ]
    lines += _section(BY_KEY["e2el"], figures, spoiled)
    lines += _client_queue(manifest, figures, stage, spoiled)
    lines.append("=" * WIDTH)

    return lines


def _inputs_per_s(figures: Summary) -> float | None:
    """By the mean number of inputs of the successful requests."""
    inputs = figures.total_inputs
    requests_per_s = figures.request_throughput
    if inputs is None or requests_per_s is None or not figures.completed:
        return None
    return inputs / figures.completed * requests_per_s


def _speculative(
    manifest: Manifest, figures: Summary, stage: StageFigures | None
) -> Iterable[str]:
    """vLLM's section, from the servers' counters, else from what each answer reports."""
    known = speculation_of(manifest, figures, stage)
    if known is None:
        return

    yield headline("Speculative Decoding", "-")
    acceptance = known.acceptance_rate
    yield number(
        "Acceptance rate (%):", None if acceptance is None else acceptance * 100
    )
    if known.drafts is not None:
        yield number("Acceptance length:", known.acceptance_length)
        yield whole("Drafts:", known.drafts)

    yield whole("Draft tokens:", known.draft_tokens)
    yield whole("Accepted tokens:", known.accepted_tokens)
    if not known.per_position:
        return

    yield "Per-position acceptance (%):"
    last_used = 0
    for place, accepted in enumerate(known.per_position):
        if accepted:
            last_used = place
    for place, rate in enumerate(known.per_position_rates[: last_used + 1]):
        yield number(f"  Position {place}:", rate * 100)
