"""Output tokens by two sources: the server's report (usage, timings) and the token events of the
stream.

Each event carries one token or more, so a stream's events bound its tokens from below, except
events that arrived together (a gateway may cut a token into pieces). More tokens than events are
possible where tokens have no event or share one (`run_folder.arithmetic.token_span`): the end of the answer,
blanks before its first token, hidden reasoning, accepted draft tokens, characters of several
tokens, events with the text of several. Markup, forced forms and stop strings explain a few more.
What is left is a disagreement. Where no other count (timings, the server's counters) confirms the
report, the events count.

The comparison is arithmetic on whole counts: its only error is the resolution of the sources, which
is stated above. A disagreement below `MOVES_COUNTS` of all tokens leaves the counts as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.figures.text_density import usual_chars
from llama_load.run_folder.arithmetic.percentiles import is_enough
from llama_load.run_folder.arithmetic.token_span import (
    AS_LONG,
    AnswerCounts,
    TokenSpan,
    counts_of,
    end_tokens_counted,
    end_tokens_unknown,
    is_call,
    tokens_between,
)
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.servers.answer_form import FREE

# A disagreement from this share of all tokens on makes counts, rates and TPOT wrong.
MOVES_COUNTS = 0.02
# Tokens around reasoning that servers cut out of the text (`<think>`, the channels of gpt-oss), and
# around each tool call.
MARKUP_TOKENS = 16
CALL_TOKENS = 32
# With `stop`, text that may begin a stop string waits for the next token: such tokens share an
# event.
HELD_SHARE = 0.1
# So many first events show how long they are.
LEAST_FIRST_EVENTS = 8
# Bounds of TPOT are looked at for workloads of so many answers, and for these percentiles.
LEAST_OF_A_PART = 20
UPPER_PERCENTILES = (90.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True)
class CountGap:
    """The server's count against the events, of the answers of one server."""

    host: str
    answers: int
    reported: int
    events: int
    ratio: float  # tokens of the disagreement / reported tokens
    rows: NDArray[np.bool_]  # the answers that disagree, of all records
    falls_back: bool  # the figures count the events of these, because nothing confirms the report
    several: bool = False  # the text shows that events hold several tokens


@dataclass(frozen=True, slots=True)
class TpotBounds:
    """The mean TPOT of the measured answers, ms, and the least and the most that it can be: of some
    tokens it is not known whether they came between the first and the last event."""

    least_ms: float
    mean_ms: float
    most_ms: float
    # how far apart they are for a workload's mean, and for an upper percentile, at most
    part_ratio: float = 0.0
    upper_ratio: float = 0.0

    @property
    def ratio(self) -> float:
        """How far the bounds are apart: the larger one / the smaller one - 1."""
        return self.most_ms / self.least_ms - 1 if self.least_ms else 0.0


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """The tokens of all answers against their events: where they lie, and each server's
    disagreement."""

    span: TokenSpan
    gaps: list[CountGap]
    tpot_bounds: TpotBounds | None

    @property
    def fallen_back(self) -> NDArray[np.bool_]:
        """Answers whose events count, because their report disagrees with them and nothing confirms
        it."""
        fallen = np.zeros(len(self.span.likely), dtype=np.bool_)
        for gap in self.gaps:
            fallen |= gap.rows & gap.falls_back
        return fallen


def has_timings(records: Records) -> NDArray[np.bool_]:
    """Answers with llama-server's `timings`, which count their tokens a second time. (vLLM's own
    times come without counts.)"""
    return records.has("server_predict_ms") & ~records.has("server_queue_ms")


def token_counts(records: Records, counters: ServerCounters | None) -> TokenCounts:
    """The comparison. `counters`: of all servers together."""
    counts = counts_of(records)
    hosts = np.array(records.strings("host"), dtype=object)
    counted = _counted(records)
    span, several = _span(records, counts, hosts, counted)
    is_confirmed = _confirmed(records, counters)
    more = np.maximum(
        0.0, span.unplaced - _explained(records, is_confirmed=is_confirmed)
    )
    less = np.maximum(
        0.0, counts.events - records.numbers("merged_events") - counts.tokens
    )
    gaps = []
    for name in dict.fromkeys(hosts[counted].tolist()):
        rows = np.asarray(counted & (hosts == name), dtype=np.bool_)
        gap = np.nan_to_num(np.where(rows, more + less, 0.0))
        reported = counts.tokens[rows].sum()
        ratio = float(gap.sum() / max(1.0, reported))
        by_timings = bool(has_timings(records)[rows].all())
        less_here = np.nan_to_num(np.where(rows, less, 0.0))
        fewer = float(less_here.sum()) > gap.sum() / 2
        falls_back = ratio > MOVES_COUNTS and (
            fewer or not (by_timings or is_confirmed)
        )
        events = int(counts.events[rows].sum())
        gaps.append(
            CountGap(
                name,
                int(rows.sum()),
                int(reported),
                events,
                ratio,
                gap > 0,
                falls_back,
                name in several,
            )
        )
    return TokenCounts(span, gaps, _tpot_bounds(records, span, gaps))


def _tpot_bounds(
    records: Records, span: TokenSpan, gaps: Sequence[CountGap]
) -> TpotBounds | None:
    """The bounds of the mean TPOT. Answers that disagree with their events are left out: the count
    gap names them."""
    rows = (
        records.equals("status", OK)
        & ~records.equals("warmup", True)
        & ~np.isnan(span.likely)
    )
    for gap in gaps:
        rows &= ~(gap.rows & (gap.ratio > MOVES_COUNTS))
    took_ms = (records.numbers("e2el_ms") - records.numbers("ttft_ms"))[rows]
    if not len(took_ms):
        return None
    least_ms = took_ms / np.fmax(span.most, _by_events(records))[rows]
    most_ms = took_ms / span.least[rows]
    workloads = np.array(records.strings("workload"), dtype=object)[rows]
    parts = [workloads == name for name in dict.fromkeys(workloads.tolist())]
    means = [
        _ratio_apart(least_ms[part].mean(), most_ms[part].mean())
        for part in parts
        if part.sum() >= LEAST_OF_A_PART
    ]
    uppers = [
        _ratio_apart(np.percentile(least_ms, p), np.percentile(most_ms, p))
        for p in UPPER_PERCENTILES
        if is_enough(len(took_ms), p)
    ]
    return TpotBounds(
        float(least_ms.mean()),
        float((took_ms / span.likely[rows]).mean()),
        float(most_ms.mean()),
        max(means, default=0.0),
        max(uppers, default=0.0),
    )


def _by_events(records: Records) -> NDArray[np.float64]:
    """Events between the first and the last one, where more came than tokens were reported: the
    report may be too low. NaN elsewhere."""
    events = records.numbers("token_events") - np.nan_to_num(
        records.numbers("merged_events")
    )
    return np.where(events > records.numbers("output_tokens"), events - 1, np.nan)


def _ratio_apart(least: np.floating[Any], most: np.floating[Any]) -> float:
    return float(most / least - 1) if least > 0 else 0.0


def came_whole(records: Records) -> NDArray[np.bool_]:
    """The answers that came mostly in their first event: they have several tokens and no TPOT, and
    their TTFT is the time to the whole answer."""
    tokens = records.numbers("output_tokens")
    is_counted = ~records.equals("token_source", "events") & (tokens > 1)
    has_events = records.numbers("token_events") > 0
    has_no_tpot = np.isnan(records.numbers("tpot_ms"))
    is_ok = records.equals("status", OK)
    return np.asarray(is_ok & is_counted & has_events & has_no_tpot)


def tokens_per_event(ok: Records) -> NDArray[np.float64]:
    """Tokens per event of each streamed answer whose tokens the server reports; those that nothing
    explains are counted as if they were in the events. 1.0: one token an event; hidden reasoning,
    markup and the end token are in none."""
    counted = ok.where(
        (ok.numbers("token_events") > 0)
        & ok.has("output_tokens")
        & ~ok.equals("token_source", "events")
    )
    span = tokens_between(counts_of(counted))
    more = np.maximum(0.0, span.unplaced - _explained(counted, is_confirmed=False))
    return np.asarray(
        (span.in_events + more) / counted.numbers("token_events"), dtype=np.float64
    )


def _span(
    records: Records,
    counts: AnswerCounts,
    hosts: NDArray[np.object_],
    counted: NDArray[np.bool_],
) -> tuple[TokenSpan, set[str]]:
    """Where the tokens of each answer lie, and the servers whose events hold several tokens, by the
    text of all their answers."""
    usual = np.full(len(records), counts.usual)
    for name in dict.fromkeys(hosts.tolist()):
        rows = np.asarray(hosts == name, dtype=np.bool_)
        usual[rows] = usual_chars(records, rows)
    counts = replace(
        counts,
        usual=usual,
        ends_itself=end_tokens_counted(records),
        may_have_end=end_tokens_unknown(records),
    )
    alone = tokens_between(counts, several=np.zeros(len(records), dtype=np.bool_))
    holds_several = np.zeros(len(records), dtype=np.bool_)
    named = set()
    # a server that sends its texts token by token may send each call whole
    calls = is_call(records)
    for name in dict.fromkeys(hosts[counted].tolist()):
        for of_kind in (calls, ~calls):
            rows = np.asarray(counted & (hosts == name) & of_kind, dtype=np.bool_)
            if not rows.any():
                continue
            together = AnswerCounts(
                tokens=(alone.in_events + alone.unplaced)[rows].sum(),
                events=counts.events[rows].sum(),
                chars=counts.chars[rows].sum(),
                usual=float(usual[rows][0]),
            )
            if bool(tokens_between(together).several):
                holds_several |= np.asarray((hosts == name) & of_kind, dtype=np.bool_)
                named.add(name)
    counts = replace(counts, first_holds=_first_holds(counts, alone, hosts, counted))
    return tokens_between(counts, several=holds_several), named


def _first_holds(
    counts: AnswerCounts,
    alone: TokenSpan,
    hosts: NDArray[np.object_],
    counted: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Answers of servers whose first events are, over all answers, as long as the tokens without an
    event make them: a long word is one in few answers."""
    holds = np.zeros(len(hosts), dtype=np.bool_)
    first = np.asarray(counts.first_chars, dtype=np.float64)
    single = (counts.chars - first) / np.maximum(1.0, counts.events - 1)
    judged = counted & (alone.unplaced > 0) & ~np.isnan(first) & (single > 0)
    for name in dict.fromkeys(hosts[judged].tolist()):
        rows = np.asarray(judged & (hosts == name), dtype=np.bool_)
        if rows.sum() < LEAST_FIRST_EVENTS:
            continue
        tokens = 1 + float(alone.unplaced[rows].mean())
        length = float((first[rows] / single[rows]).mean())
        if abs(np.log(length / tokens)) <= np.log(AS_LONG):
            holds |= rows
    return holds


def _explained(records: Records, *, is_confirmed: bool) -> NDArray[np.float64]:
    """The most tokens of each answer without a place that are no disagreement: one without text,
    markup, and what stop strings and forced forms hold back. Where another count confirms the
    report, what these hold back has no limit."""

    def known(name: str) -> NDArray[np.float64]:
        return np.nan_to_num(records.numbers(name))

    thought = (known("reasoning_tokens") > 0) | (
        records.optional_instants("first_answer_mono_ns")
        > records.optional_instants("first_token_mono_ns")
    )
    calls = np.where(is_call(records), np.fmax(1.0, records.numbers("tool_calls")), 0.0)
    held = np.where(
        records.has("stop_bytes"),
        known("stop_bytes") + HELD_SHARE * known("output_tokens"),
        0.0,
    )
    confirmed = has_timings(records) | is_confirmed
    formed = records.has("answer_form") & ~records.equals("answer_form", FREE)
    held = np.where((formed | records.has("stop_bytes")) & confirmed, np.inf, held)
    without_text = np.where(counts_of(records).ends_itself, 0.0, 1.0)
    return np.asarray(
        without_text + MARKUP_TOKENS * thought + CALL_TOKENS * calls + held,
        dtype=np.float64,
    )


def as_seen(records: Records, counts: TokenCounts) -> Records:
    """The records with the TPOT of the tokens between their events; and with the events as output
    tokens where a gap falls back on them."""
    import pyarrow as pa

    fallen = counts.fallen_back
    events = records.numbers("token_events")
    took_ms = records.numbers("e2el_ms") - records.numbers("ttft_ms")
    between = np.where(fallen, events - 1, counts.span.likely)
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(
            (between > 0) & records.equals("status", OK), took_ms / between, np.nan
        )
    columns = {"tpot_ms": pa.array(tpot, from_pandas=True)}
    if fallen.any():
        sources = records.strings("token_source")
        columns["output_tokens"] = pa.array(
            np.where(fallen, events, records.numbers("output_tokens")), from_pandas=True
        )
        columns["token_source"] = pa.array(
            [
                "events" if is_row else source
                for source, is_row in zip(sources, fallen, strict=True)
            ]
        )
    return records.with_columns(columns)


def _counted(records: Records) -> NDArray[np.bool_]:
    """Streamed answers of one choice whose tokens the server reports."""
    reported = records.equals("token_source", "usage") | records.equals(
        "token_source", "timings"
    )
    single = ~(records.numbers("choices") > 1)
    rows = (
        records.equals("status", OK)
        & ~records.equals("warmup", True)
        & reported
        & single
    )
    return np.asarray(
        rows & (records.numbers("token_events") > 0) & records.has("output_tokens"),
        dtype=np.bool_,
    )


def _confirmed(records: Records, counters: ServerCounters | None) -> bool:
    """Whether the server's counters, which cover the measured time, agree with its reports."""
    if counters is None or counters.output_tokens is None:
        return False
    reported = float(np.nansum(records.measured().numbers("output_tokens")))
    most = MOVES_COUNTS * reported + counters.error("output_tokens")
    return abs(counters.output_tokens - reported) <= most
