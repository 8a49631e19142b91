"""Sessions of TraceLab: rounds of Claude Code and Codex with lengths and times, without texts, a
line each.

    {"session_id": "…", "round_index": 0, "input_tokens_total": 32272, "output_tokens": 931,
     "timing_events": [{"event_type": "user_message", "timestamp": "2026-06-01T05:40:20.151Z"}, …]}

A round's prompt goes on from the one before it where it is longer than that and its answer; else
the client has compacted its context. The wait before a round is from the last event of the model's
answer to the last message or tool result that the round sends. Source:
https://github.com/uw-syfi/TraceLab, Data format.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.outside.foreign_text import printable

KEY = "input_tokens_total"
NO_TOKENS = "rounds without tokens, as of answers that broke off"
# Of all texts that are made for a run: 200 MB. The whole corpus has far more.
MOST_TOKENS = 50_000_000
_INPUTS = ("user_message", "tool_result")
_REPORT = "usage_report"


@dataclass(frozen=True, slots=True)
class Round:
    """A round: tokens of its prompt, those of them that are new, and those of its answer; when its
    input was complete, and when its answer had ended, s since 1970."""

    where: str
    index: int
    total: int
    added: int
    output: int
    asked_s: float | None
    ended_s: float | None


def sessions(
    rows: Iterable[tuple[Mapping[str, Any], str]], left_out: Counter[str]
) -> Iterator[tuple[dict[str, Any], str]]:
    """The sessions in the order of their first rounds, in the layout of kv-cache-tester, each with
    the place of its first round. `left_out` counts rounds that have no tokens. UsageError names a
    round that is not understood, or says that there are too many."""
    rounds: dict[str, list[Round]] = defaultdict(list)
    tokens = 0
    for row, where in rows:
        one = _round(row, where)
        rounds[str(row.get("session_id"))].append(one)
        tokens += one.added + one.output
        if tokens > MOST_TOKENS:
            raise UsageError(
                f"the sessions up to {where} have more than {MOST_TOKENS:,} tokens: send a part "
                "of the file, such as its first thousand lines"
            )
    for name, of_session in rounds.items():
        of_session.sort(key=attrgetter("index"))
        requests = list(_sent_rounds(of_session))
        left_out[NO_TOKENS] += len(of_session) - len(requests)
        if requests:
            yield {"id": name, "requests": requests}, of_session[0].where


def _sent_rounds(of_session: Iterable[Round]) -> Iterator[dict[str, Any]]:
    answered_s: float | None = None
    for one in of_session:
        wait_s = 0.0
        if answered_s is not None and one.asked_s is not None:
            wait_s = max(0.0, one.asked_s - answered_s)
        answered_s = one.ended_s
        if one.total and one.output:
            yield {
                "type": "s",
                "in": one.total,
                "out": one.output,
                "think_time": wait_s,
            }


def _round(row: Mapping[str, Any], where: str) -> Round:
    asked_s = None
    ended_s = None
    for event in _listed_events(row, where):
        try:
            kind = event["event_type"]
            at_s = datetime.fromisoformat(event["timestamp"]).timestamp()
        except (KeyError, TypeError, ValueError):
            raise UsageError(
                f"{where} has an event without an event_type and a timestamp"
            ) from None
        if kind in _INPUTS:
            asked_s = at_s
        elif kind != _REPORT:
            ended_s = at_s
    return Round(
        where,
        _number_of_round(row, "round_index", where),
        _number_of_round(row, KEY, where),
        _number_of_round(row, "newly_append_tokens", where),
        _number_of_round(row, "output_tokens", where),
        asked_s,
        ended_s,
    )


def _listed_events(row: Mapping[str, Any], where: str) -> list[Any]:
    events = row.get("timing_events") or []
    if not isinstance(events, list):
        raise UsageError(f"{where} has timing_events that are no list")
    return events


def _number_of_round(row: Mapping[str, Any], name: str, where: str) -> int:
    """A number of the round; 0 without one."""
    number = row.get(name) or 0
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        shown = printable(repr(number), 60)
        raise UsageError(f"{where} has {name} {shown}; it must be 0 or more")
    return number
