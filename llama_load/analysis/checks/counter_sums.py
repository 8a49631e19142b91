"""Every counter of a server is compared with the sum of the answers, or it is not read.

`COMPARISONS` has a row for each field of `ServerCounters`; a test holds that none is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from llama_load.analysis.figures.check import Check, limited
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.evidence import Evidence
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.servers.apis import NOT_CACHED

NAME = "counter_gap_ratio"
# Sources of prompt tokens that are no report of the server.
PLANNED = ("plan", "plan+template")
# A preempted request is looked up again in the cache, and cached blocks are counted in different
# places of the engine.
CACHE_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a counter is compared: its unit, its value, and the sum of what the answers report.

    `judged_by`: the check that compares it, where that is not this one. `needs_requests`: without a
    counter of requests more of it may be another client's, which `other_client_ratio` judges.
    `tolerance`: beyond the limit.
    """

    unit: str = ""
    value: Callable[[ServerCounters], int | None] = lambda counters: None
    column: str = ""
    judged_by: str = ""
    needs_requests: bool = False
    tolerance: float = 0.0


def _drafted(counters: ServerCounters) -> int | None:
    return None if counters.speculation is None else counters.speculation.draft_tokens


# By field of `ServerCounters`.
COMPARISONS = {
    "requests": Comparison(judged_by="other_client_ratio"),
    "output_tokens": Comparison(
        "output tokens",
        lambda counters: counters.output_tokens,
        "output_tokens",
        needs_requests=True,
    ),
    "prompt_tokens": Comparison(
        "prompt tokens",
        lambda counters: counters.prompt_tokens,
        "prompt_tokens",
        needs_requests=True,
    ),
    "cache_queries": Comparison(judged_by="server_cache_hit_ratio"),
    "cache_hits": Comparison(
        "cached prompt tokens",
        lambda counters: counters.cache_hits,
        "cached_tokens",
        needs_requests=True,
        tolerance=CACHE_TOLERANCE,
    ),
    "external_hits": Comparison(judged_by="server_cache_hit_ratio"),
    "speculation": Comparison(
        "drafted tokens",
        _drafted,
        "draft_tokens",
        needs_requests=True,
        tolerance=CACHE_TOLERANCE,
    ),
    "preemptions": Comparison(judged_by="preemption_ratio"),
    "times": Comparison(judged_by="unexplained_ratio"),
}


def compared(evidence: Evidence) -> Iterator[Check]:
    """What the server counted against the sums of the answers. Counts: no error beyond the rounding
    of printed counters.

    Failed and cut requests are in the counters, too: with them an excess is no disagreement."""
    counters = evidence.counters
    if counters is None:
        yield limited(
            NAME,
            None,
            "the server's counters are not known: only the answers count tokens",
        )
        return
    sent = evidence.sent
    is_other = any(sent.equals("endpoint", endpoint).any() for endpoint in NOT_CACHED)
    if (
        is_other
        or evidence.others.requests
        or bool((sent.numbers("choices") > 1).any())
    ):
        yield limited(
            NAME,
            None,
            "the server's counters include requests that are not chats or completions of one answer",
        )
        return
    if counters.requests is None or not _are_all_ours(evidence, counters.requests):
        return  # `other_client_ratio` compares them, or has the cause
    agreeing: list[tuple[float, str, int, int]] = []
    found: list[tuple[float, str, int, int]] = []
    for row in COMPARISONS.values():
        value = row.value(counters)
        summed = _sum(sent, row.column) if row.column else None
        if value is None or summed is None:
            continue
        beyond = _beyond(
            value,
            summed,
            counters,
            row,
            is_whole=bool(sent.equals("status", "ok").all()),
        )
        is_wrong = beyond > LIMITS[NAME].limit + row.tolerance
        (found if is_wrong else agreeing).append((beyond, row.unit, value, summed))
    if found:
        beyond, unit, value, summed = max(found)
        text = f"the server counted {value} {unit}, its answers report {summed}: one of both is wrong"
        yield limited(NAME, beyond, text)
    elif agreeing:
        units = ", ".join(unit for _, unit, _, _ in agreeing)
        yield limited(
            NAME, 0.0, f"the server counted as many {units} as its answers report"
        )


def _are_all_ours(evidence: Evidence, requests: int) -> bool:
    """Whether the server counted no other requests than ours."""
    sent = evidence.sent
    most = int(np.nan_to_num(sent.numbers("tries"), nan=1.0).sum())
    slack = LIMITS["other_client_ratio"].limit * most
    return len(sent.ok()) - slack <= requests <= most + slack


def _sum(sent: Records, column: str) -> int | None:
    """The sum over the answers; None where one does not report it."""
    values = sent.ok().numbers(column)
    if column == "prompt_tokens" and any(
        sent.ok().equals("prompt_token_source", source).any() for source in PLANNED
    ):
        return None
    return None if not len(values) or np.isnan(values).any() else int(values.sum())


def _beyond(
    value: int,
    summed: int,
    counters: ServerCounters,
    row: Comparison,
    *,
    is_whole: bool,
) -> float:
    """How far the counter is from the sum, as a share of the larger one; an excess counts only if
    every request was answered."""
    error = counters.error(
        "speculation"
        if row.unit == "drafted tokens"
        else row.column.replace("cached_tokens", "cache_hits")
    )
    if value > summed and not is_whole:
        return 0.0
    return max(0, abs(value - summed) - error) / max(value, summed, 1)
