"""Output tokens by two sources: the server's report (usage, timings) and the token events of the stream.

Each event carries one token or more, so a stream's events bound its tokens from below, except events that arrived together (a
gateway may cut a token into pieces). More tokens than events are possible where tokens have no event: the end of the answer,
blanks before its first token, characters of several tokens (held until they are complete), accepted draft tokens, hidden
reasoning and its markup, events that report several tokens. Events whose text is as long as that of several tokens of the
prompts hold several tokens. What is left is a disagreement. Where no other count (timings, the server's counters) confirms the
report, the events count.

The comparison is arithmetic on whole counts: its only error is the resolution of the sources, which is stated above. A
disagreement below `LIMITS["count_gap_ratio"]` of all tokens is within it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.check_limits import LIMITS
from llama_load.observed.record import OK
from llama_load.observed.records import Records
from llama_load.observed.server_counters import ServerCounters
from llama_load.units import NS_PER_MS

LIMIT = "count_gap_ratio"
# Tokens around reasoning that servers cut out of the text (`<think>`, the channels of gpt-oss).
MARKUP_TOKENS = 16
# Text decides whether events hold several tokens only from this many tokens an event on.
LEAST_PER_EVENT = 1.5
# Characters per token, where the prompts do not give them: English text.
CHARS_PER_TOKEN, LEAST_PROMPT_TOKENS = 4.0, 200
# Events with the text of this many tokens on average hold several; a token of English text is sometimes a whole word.
LONG_EVENT = 1.75
TOOLS = ("tool_calls", "function_call")


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


def count_gaps(records: Records, counters: ServerCounters | None) -> list[CountGap]:
    """The comparison for each server that reports output tokens of streamed answers. `counters`: of all servers together."""
    counted = _counted(records)
    tokens, events = records.numbers("output_tokens"), records.numbers("token_events")
    hosts = records.strings("host")
    names = list(dict.fromkeys(host for host, is_counted in zip(hosts, counted, strict=True) if is_counted))
    more = np.maximum(0.0, tokens - events - _without_event(records))
    more[_placed(records)] = 0.0
    less = np.maximum(0.0, events - records.numbers("merged_events") - tokens)
    gaps = []
    for name in names:
        rows = counted & np.array([host == name for host in hosts], dtype=np.bool_)
        several = _text_of_several(records, rows)
        gap = np.nan_to_num(np.where(rows, less if several else more + less, 0.0))
        ratio = float(gap.sum() / max(1.0, tokens[rows].sum()))
        is_confirmed = records.has("server_predict_ms")[rows].all() or _confirmed(records, counters)
        fewer = float(np.nan_to_num(np.where(rows, less, 0.0)).sum()) > gap.sum() / 2
        falls_back = ratio > LIMITS[LIMIT].limit and (fewer or not is_confirmed)
        gaps.append(
            CountGap(name, int(rows.sum()), int(tokens[rows].sum()), int(events[rows].sum()), ratio, gap > 0, falls_back, several)
        )
    return gaps


def uncounted(records: Records) -> float | None:
    """The share of the tokens that the events of streams without usage miss, where events were counted as tokens; None without such
    streams.

    An answer that ended by length has max_tokens tokens, or the context was full. Else the text decides: events of 7 characters and
    more, or of 1.75 tokens of the prompts, hold several tokens. 20 events of an answer that ended at max_tokens 80: 0.74 (one
    token may have no event).
    """
    rows = records.equals("status", OK) & records.equals("token_source", "events") & ~(records.numbers("choices") > 1)
    rows &= (records.numbers("token_events") > 0) & ~np.logical_or.reduce([records.equals("finish_reason", name) for name in TOOLS])
    if not rows.any():
        return None
    of = records.where(rows)
    events, chars, asked = of.numbers("token_events"), np.nan_to_num(of.numbers("output_chars")), of.numbers("max_tokens")
    usual = _usual_chars(records, rows)
    asked = np.where(of.equals("finish_reason", "length") & (asked > 0), asked, np.nan)
    by_text = np.fmin(asked, np.where(chars >= LONG_EVENT * usual * events, chars / usual, events))
    tokens = np.fmax(np.maximum(by_text, events), asked - _without_event(of))
    return float((tokens - events).sum() / tokens.sum())


def as_seen(records: Records, gaps: Sequence[CountGap]) -> Records:
    """The records with the events as output tokens where a gap falls back on them: tokens, source and TPOT."""
    rows = np.zeros(len(records), dtype=np.bool_)
    for gap in gaps:
        rows |= gap.rows & gap.falls_back
    if not rows.any():
        return records
    import pyarrow as pa

    table = records.table
    events = records.numbers("token_events")
    first, last = records.optional_instants("first_token_mono_ns"), records.optional_instants("last_token_mono_ns")
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(events > 1, (last - first) / NS_PER_MS / (events - 1), np.nan)
    sources = records.strings("token_source")
    columns = {
        "output_tokens": pa.array(np.where(rows, events, records.numbers("output_tokens")), from_pandas=True).cast("int64"),
        "tpot_ms": pa.array(np.where(rows, tpot, records.numbers("tpot_ms")), from_pandas=True),
        "token_source": pa.array(["events" if is_row else source for source, is_row in zip(sources, rows, strict=True)]),
    }
    for name, column in columns.items():
        table = table.set_column(table.column_names.index(name), name, column.cast(table.schema.field(name).type))
    return Records(table)


def _counted(records: Records) -> NDArray[np.bool_]:
    """Streamed answers of one choice whose tokens the server reports. Tool calls come in pieces of their arguments."""
    reported = records.equals("token_source", "usage") | records.equals("token_source", "timings")
    calls = np.logical_or.reduce([records.equals("finish_reason", name) for name in TOOLS])
    single = ~(records.numbers("choices") > 1)
    rows = records.equals("status", OK) & ~records.equals("warmup", True) & reported & ~calls & single
    return np.asarray(rows & (records.numbers("token_events") > 0) & records.has("output_tokens"), dtype=np.bool_)


def _without_event(records: Records) -> NDArray[np.float64]:
    """The most tokens of each answer that have no event of their own."""

    def known(name: str) -> NDArray[np.float64]:
        return np.nan_to_num(records.numbers(name))

    wide = np.maximum(0.0, known("output_bytes") - known("output_chars"))
    thought = (known("reasoning_tokens") > 0) | (
        records.optional_instants("first_answer_mono_ns") > records.optional_instants("first_token_mono_ns")
    )
    hidden = np.maximum(0.0, known("first_event_tokens") - 1)
    return 1 + known("blank_events") + wide + known("draft_accepted") + hidden + MARKUP_TOKENS * thought


def _placed(records: Records) -> NDArray[np.bool_]:
    """Answers whose events report their own tokens."""
    return records.lists("event_tokens")[0] > 0


def _text_of_several(records: Records, rows: NDArray[np.bool_]) -> bool:
    """Whether the text of an event is as long as several tokens: nearer to that than to one, by the prompts' characters a token.

    2,000 characters, 100 events, usage 500, prompts of 4 characters a token: 20 characters an event are 5 tokens: yes. 100 events,
    usage 200, 400 characters: 4 characters an event are one token: no.
    """
    tokens, events = records.numbers("output_tokens")[rows].sum(), records.numbers("token_events")[rows].sum()
    chars = records.numbers("output_chars")[rows].sum()
    if tokens < LEAST_PER_EVENT * events or not chars:
        return False
    usual = _usual_chars(records, rows)
    return abs(math.log(chars / tokens / usual)) <= abs(math.log(chars / events / usual))


def _usual_chars(records: Records, rows: NDArray[np.bool_]) -> float:
    """Characters per token of the prompts of these requests."""
    counted = rows & ~np.isnan(records.numbers("prompt_tokens")) & np.isnan(records.numbers("images"))
    sent, of = records.numbers("prompt_chars")[counted].sum(), records.numbers("prompt_tokens")[counted].sum()
    return float(sent / of) if of >= LEAST_PROMPT_TOKENS and sent else CHARS_PER_TOKEN


def _confirmed(records: Records, counters: ServerCounters | None) -> bool:
    """Whether the server's counters, which cover the measured time, agree with its reports."""
    if counters is None or counters.output_tokens is None:
        return False
    reported = float(np.nansum(records.measured().numbers("output_tokens")))
    return abs(counters.output_tokens - reported) <= LIMITS[LIMIT].limit * reported + counters.error("output_tokens")
