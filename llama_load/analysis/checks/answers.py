"""Checks of the answers: their lengths, token counts, cached prompts, and the resolution of ITL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.checks.client import reads_are_late
from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.interruption import moved_at_the_end
from llama_load.analysis.figures.prompt_cache import PromptTable, cache_checks
from llama_load.analysis.figures.spoiled import E2EL, TPOT, TTFT
from llama_load.analysis.figures.token_counts import came_whole
from llama_load.analysis.figures.token_counts import (
    tokens_per_event as tokens_per_event_of,
)
from llama_load.analysis.statistics.statistics import describe
from llama_load.analysis.statistics.together import Together, together
from llama_load.ground.units import NS_PER_MS, quantity
from llama_load.run_folder.arithmetic.percentiles import is_enough, least_count
from llama_load.run_folder.observed.records import Records

# The Server header of LLM servers; any other name is a proxy's.
LLM_SERVERS = ("llama.cpp", "uvicorn")
# A stream was buffered if this share of its events (at least `LEAST_EVENTS`) was merged with later
# ones.
LUMPED_SHARE = 0.75
LEAST_EVENTS = 8
# If more of the answers arrived at one instant, mean TPOT is lower by as much.
MOST_AT_ONCE = 0.05
# The last events of answers came together, later than usual, which makes a figure larger by this.
MOST_LATE_ENDS = 0.025
# Of a server that sends several tokens at a time: the most first tokens that come with others, the
# most tokens of a step, and the fewest reads of a stream (the first token and two steps).
MOST_FIRST_MERGED = 0.1
MOST_AT_A_TIME = 16
LEAST_READS = 3


def prompt_cache(evidence: Evidence) -> list[Check]:
    """Whether prompts came from a cache unintentionally. Evidence and error rate: see
    `analysis.figures.prompt_cache`."""
    prompts = (
        PromptTable(evidence.records, evidence.cache)
        if evidence.prompts is None
        else evidence.prompts
    )
    return cache_checks(prompts, evidence.counters, evidence.stage_number)


def merged(evidence: Evidence) -> Iterator[Check]:
    """Token events that arrived together with a later one, and streams that were buffered.

    Evidence: the kernel's arrival times, the accepted draft tokens (which are sent together), the
    lag of the client's event loop (a late client merges events itself: then it is not known whether
    a proxy did). Counts: no error.
    """
    ok = evidence.records.ok()
    came = together(evidence.records)
    merged = came.events
    events = ok.numbers("token_events")
    total = float(events.sum())
    if not total:
        yield limited(
            "merged_ratio", None, "nothing was streamed: there are no token events"
        )
        return
    ratio = float(merged.sum()) / total
    text = f"{int(merged.sum())} of {quantity(int(total), 'token event')} arrived together with a later one"
    expected = _expected_merged(evidence, ok)
    lumped = np.maximum(LUMPED_SHARE, (1 + expected) / 2)
    is_lumped = (events >= LEAST_EVENTS) & (came.in_bursts >= lumped * events)
    lumps = float(is_lumped.sum()) / len(ok)
    if (share := float((expected * events).sum()) / total) > 0:
        text += f"; speculative decoding makes that {share:.1%}, because accepted tokens are sent together"
    if lumps > LIMITS["buffered_ratio"].limit and reads_are_late(evidence):
        lumpy = f"{lumps:.0%} of the streams arrived in bursts; whether a proxy buffers them is not known"
        yield limited(
            "buffered_ratio",
            None,
            f"{lumpy}, because the client's event loop was late to read them",
        )
    elif lumps > LIMITS["buffered_ratio"].limit and _first_came_alone(came, events):
        text += ", but first tokens came alone: the server sends several tokens at a time (unreported speculative decoding, "
        text += "a stream interval), so TTFT is right"
    elif lumps > LIMITS["buffered_ratio"].limit:
        proxies = [
            name
            for name in ok.values_of("answered_by")
            if not name.startswith(LLM_SERVERS) or ", via " in name
        ]
        who = (
            f"a proxy ({', '.join(proxies)})" if proxies else "a proxy (or the server)"
        )
        lumpy = f"{lumps:.0%} of the streams arrived in bursts: {who} buffers them, so TTFT and ITL measure its buffering"
        yield limited("buffered_ratio", lumps, lumpy)
    # A merged event makes one gap twice as long: the highest printed percentile is right if fewer
    # gaps are above it.
    highest = max(
        (p for p in evidence.percentiles if is_enough(int(total), p)), default=99.0
    )
    limit = min(LIMITS["merged_ratio"].limit, 1 - highest / 100)
    advice = (
        "read TPOT instead of ITL; the server, a proxy or the network sends them together"
        if _is_alone(evidence)
        else None
    )
    spoils = LIMITS["merged_ratio"].spoils
    at_once = float(((events > 1) & (merged >= events - 1)).sum()) / len(ok)
    if at_once > MOST_AT_ONCE:
        text += f"; {at_once:.0%} of the answers arrived whole, at one instant: their TTFT is E2EL and their TPOT 0"
        spoils = (*spoils, TTFT, TPOT)
        advice = "fewer streams per worker, less network buffering"
        if _is_alone(evidence):
            advice = "the server, a proxy or the network sends them together"
    ends = moved_at_the_end(
        ok,
        came.late_end_ms,
        percentiles=evidence.percentiles,
        is_open=evidence.gap_ms is not None,
    )
    late_ends = ends.beyond(MOST_LATE_ENDS)
    if E2EL in late_ends:
        text += f"; ends that came so make mean {E2EL} {ends.shifts[E2EL]:.0%} larger"
    spoils = tuple(dict.fromkeys((*spoils, *late_ends)))
    yield replace(
        limited("merged_ratio", ratio, text, advice=advice, spoils=spoils),
        limit=limit,
        ok=ratio <= limit,
    )


def _is_alone(evidence: Evidence) -> bool:
    """Whether there never was more than one stream, so that fewer of them are no remedy."""
    return evidence.figures.peak_in_flight <= 1


def _first_came_alone(came: Together, events: NDArray[np.float64]) -> bool:
    """Whether the lumps of these streams are those of a server: the first token is sent alone,
    because a prompt gives one token, and a step of decoding gives a few. What buffers a stream (a
    proxy) holds its beginning back as well, and longer."""
    reads = events - came.in_bursts
    are_first_alone = float(came.is_first_in_burst.mean()) <= MOST_FIRST_MERGED
    # answers of a few tokens may have one step
    is_long = events > MOST_AT_A_TIME
    looked_at = is_long if is_long.any() else events > 0
    has_steps = float(np.median(reads[looked_at])) >= LEAST_READS
    return (
        are_first_alone
        and has_steps
        and float(events.sum() / reads.sum()) <= MOST_AT_A_TIME
    )


def first_merged(evidence: Evidence) -> Iterator[Check]:
    """How far the TTFT figures could fall, because first tokens arrived together with a later one:
    relative to each figure, the largest of mean, median and printed percentiles.

    When such a first token arrived is not known; the earliest that is likely is one TPOT earlier
    for each merged event of its answer. Accepted draft tokens are sent together, so they do not
    count. Evidence: the kernel's arrival times. Counts: no error.
    """
    ok = evidence.records.ok()
    expected = _expected_merged(evidence, ok)
    came = together(evidence.records)
    late = came.is_first & (expected == 0)
    if not late.any():
        return
    ttft = ok.numbers("ttft_ms")
    tpot = ok.numbers("tpot_ms")
    usual = float(np.nanmedian(tpot)) if not np.isnan(tpot).all() else 0.0
    earliest = np.where(
        late, np.maximum(ttft - came.events * np.fmax(tpot, usual), 0.0), ttft
    )
    measured, least = (
        _ttft_figures(values, evidence.percentiles) for values in (ttft, earliest)
    )
    falls = {name: 1 - least[name] / value for name, value in measured.items() if value}
    if not falls:
        return
    name = max(falls, key=lambda name: falls[name])
    text = f"{late.sum()} of {quantity(len(ok), 'first token')} arrived together with a later one: their TTFT is an upper bound"
    text += (
        f", {name} TTFT could be {least[name]:.2f} ms instead of {measured[name]:.2f}"
    )
    advice = (
        "see whether the server or a proxy sends the first tokens together"
        if _is_alone(evidence)
        else None
    )
    yield limited("first_merged_shift", falls[name], text, advice=advice)


def _ttft_figures(
    ttft_ms: NDArray[np.float64], percentiles: Sequence[float]
) -> dict[str, float]:
    """Mean, median and the percentiles that the sample is large enough for, by name, in ms."""
    sample = describe(ttft_ms, percentiles)
    figures = {"mean": sample.mean, "median": sample.median} | {
        f"P{p:g}": sample.percentile(p) for p in percentiles
    }
    return {name: value for name, value in figures.items() if value is not None}


def _expected_merged(evidence: Evidence, ok: Records) -> NDArray[np.float64]:
    """The share of each answer's events that speculative decoding merges: (accepted draft tokens -
    tokens that have no event of their own) / events. 90 tokens in 90 events, 80 of them accepted:
    0.89. vLLM sends accepted tokens in one event: 0. Where answers do not report their accepted
    tokens, the server's counters give the share of all tokens: n-grams draft now and then."""
    events = ok.numbers("token_events")
    tokens = ok.numbers("output_tokens")
    accepted = ok.numbers("draft_accepted")
    all_tokens = np.nansum(tokens)
    counters = evidence.counters
    if counters is not None and counters.speculation is not None and all_tokens:
        share = min(1.0, counters.speculation.accepted_tokens / all_tokens)
        accepted = np.where(np.isnan(accepted), share * tokens, accepted)

    own_events = np.fmin(events, tokens)
    with np.errstate(divide="ignore", invalid="ignore"):
        merged = np.clip((accepted - (tokens - own_events)) / own_events, 0.0, 1.0)
    return np.where(np.isnan(merged), 0.0, merged)


def tokens_per_event(evidence: Evidence) -> Iterator[Check]:
    """Tokens per stream event, without those that have none (see `run_folder.arithmetic.token_span`). Evidence:
    the server's token counts and the events. Counts: no error."""
    ok = evidence.records.ok()
    tokens = ok.numbers("output_tokens")
    events = ok.numbers("token_events")
    counted = (events > 0) & ~np.isnan(tokens) & ~ok.equals("token_source", "events")
    sample = evidence.figures.tokens_per_event
    if not counted.any() or not sample.count:
        return
    value = float(
        (tokens_per_event_of(ok) * events[counted]).sum() / events[counted].sum()
    )
    if value <= LIMITS["tokens_per_event"].limit:
        yield limited(
            "tokens_per_event", value, f"{sample.mean or 0:.2f} tokens per stream event"
        )
        return
    p99 = sample.percentile(99.0) if 99.0 in sample.percentiles else None
    text = f"{sample.mean or 0:.2f} tokens per stream event" + (
        "" if p99 is None else f" (p99 {p99:.2f})"
    )
    text += ": ITL is the time between events, not between tokens"
    no_tpot = int(came_whole(ok).sum())
    if no_tpot:
        whole = quantity(no_tpot, "answer has", "answers have")
        text += f"; {whole} no TPOT, because of most tokens in the first event"
    yield limited("tokens_per_event", value, text)


def blanks(evidence: Evidence) -> Iterator[Check]:
    """Answers whose first event had blanks alone: TTFT is that of the first event with text that a
    reader could see."""
    ok = evidence.records.ok()
    began = ok.where(ok.has("first_blank_mono_ns"))
    if not len(began):
        return
    blank_ms = (
        began.instants("first_blank_mono_ns") - began.instants("started_mono_ns")
    ) / NS_PER_MS
    text = f"{quantity(len(began), 'answer')} began with blanks, {np.median(blank_ms):.1f} ms after the start in the median"
    text += f"; their TTFT is that of the first visible text, {np.nanmedian(began.numbers('ttft_ms')):.1f} ms"
    yield information("blank_first_events", len(began), text)


def intervals(evidence: Evidence) -> Iterator[Check]:
    """The 95 % confidence interval of each printed percentile. (Gaps of one stream are assumed to
    be independent.)"""
    for key in evidence.shown:
        sample = evidence.figures.distributions[key]
        for p, value in sample.percentiles.items():
            if value is None:
                continue
            label = f"P{p:g} {key.upper()}"
            known = sample.percentile(p)
            low, high = sample.intervals[p]
            if known is None:
                text = f"{label}: n/a ({quantity(sample.count, 'value')}, {least_count(p)} needed)"
            elif high is None or low is None:
                text = f"{label} {value:.2f} ms: {quantity(sample.count, 'value')} are too few for a 95 % interval"
            else:
                text = f"{label} {value:.2f} ms, 95 % interval {low:.2f} to {high:.2f}"
            yield information(f"p{p:g}_{key}_ms_interval", known, text)
