"""Checks of probes (--probe-rate): can their figures be used, and how much of the load are they?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.probe_figures import LEAST_ALONE, ProbeFigures
from llama_load.ground.units import quantity


def probes(evidence: Evidence) -> Iterator[Check]:
    """Probes that failed, were cut at the end, are missing; their share of the tokens; their
    prompts in the prompt cache."""
    figures = evidence.probes
    if figures is None:
        return
    yield from _answered(figures)
    yield _token_share(figures)
    if (gap := _cache_gap(figures)) is not None:
        yield limited(
            "probe_cache_gap",
            gap,
            f"{figures.alone_cached_ratio or 0:.0%} of the probes' prompt tokens were cached alone, "
            f"{figures.cached_ratio or 0:.0%} beside the load",
        )
    alone = figures.alone.ttft.count
    if alone < LEAST_ALONE:
        yield information(
            "probes_alone",
            alone,
            f"{quantity(alone, 'probe')} answered before the load: no ratio to alone",
        )
    if figures.missing or figures.skipped:
        text = f"{figures.missing} records of probes could not be written, {figures.skipped} probes were not sent in time"
        yield information("probes_missing", figures.missing + figures.skipped, text)


def _answered(figures: ProbeFigures) -> Iterator[Check]:
    """Failed probes against those that ended; how far the cut ones move TTFT (see
    `analysis.statistics.censoring`)."""
    total = figures.total
    if not total.sent:
        text = "no probe was sent while requests were measured: the run is shorter than the gap between two"
        yield limited("probe_failure_ratio", None, text)
        return
    ended = total.sent - total.cut
    text = f"{total.failed} of {quantity(ended, 'probe')} failed"
    if figures.failures:
        text += ": " + ", ".join(
            f"{count} × {kind}" for kind, count in figures.failures.items()
        )
    yield limited("probe_failure_ratio", total.failed / ended if ended else 0.0, text)
    if total.cut:
        text = f"{quantity(total.cut, 'probe')} still waited when the load ended, and are in no latency"
        known = (
            "percentiles of their TTFT are unknown"
            if math.isinf(figures.cut_shift)
            else f"TTFT moves by {figures.cut_shift:.1%}"
        )
        yield limited(
            "probe_cut_shift", figures.cut_shift, f"{text}; with them {known}"
        )


def _token_share(figures: ProbeFigures) -> Check:
    requests = (
        ""
        if figures.request_ratio is None
        else f", {figures.request_ratio:.1%} of all requests"
    )
    if figures.token_ratio is None:
        text = f"{quantity(figures.total.sent, 'probe')}{requests}: their share of the tokens is not known"
        return limited("probe_token_ratio", None, text)
    text = f"{quantity(figures.total.sent, 'probe')}{requests}, are {figures.token_ratio:.2%} of the tokens that the server worked on"
    return limited("probe_token_ratio", figures.token_ratio, text)


def _cache_gap(figures: ProbeFigures) -> float | None:
    """The difference of the cached shares of the probes' prompts, beside the load and alone; None
    where it is not reported."""
    alone = figures.alone_cached_ratio
    beside = figures.cached_ratio
    return None if alone is None or beside is None else abs(alone - beside)
