"""Live figures as the web page shows them.

Rows with the figures of the run and its parts, the judgement so far, series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from llama_load.analysis.figures.check_limits import LIMITS, OTHERS_WAY_ON, OWN_SHARE
from llama_load.loadgen.live.figures import LiveFigures
from llama_load.loadgen.live.gauges import CORE_WAIT, LOOP_LAG, OTHERS
from llama_load.loadgen.live.groups import (
    LATENCIES,
    PERCENTILES,
    Group,
    GroupKey,
    added,
)
from llama_load.loadgen.live.stage_names import stage_name
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.vocabulary.verdict_words import CLIENT_BOUND, FAILED


def live_view(
    live: LiveFigures, stages: Sequence[str], version: int, width_s: int
) -> dict[str, Any]:
    """What the page asks for every second. Latencies are in ms.

    `rows`: the whole run first, then each workload, stage and host where there are several;
    `stages`: those that have begun, `from_s` since the begin; `series`: see `LiveFigures.series`.
    """
    groups = live.groups()
    total = added(groups.values())
    rows = _rows_of_run(groups, total, live.in_flight, stages)
    begun = []
    if len(stages) > 1:
        for number, from_s in live.stages.items():
            begun.append({"name": stage_name(stages, number), "from_s": from_s})

    return {
        "phase": live.phase,
        "stages": begun,
        "gauges": live.gauges,
        "so_far": list(judgement(total, live)),
        "rows": list(rows),
        "series": live.series(version, width_s),
    }


def judgement(total: Group, live: LiveFigures) -> Iterator[dict[str, str]]:
    """The words of the verdict that apply by now, with a sentence each.

    (All checks are made at the end.)
    """
    failure_ratio = total.failure_ratio or 0
    if failure_ratio > LIMITS["failure_ratio"].limit:
        kinds = []
        for name, count in total.failures.most_common(3):
            kinds.append(f"{count} {name}")

        share = f"{failure_ratio:.1%}"
        listed = ", ".join(kinds)
        text = f"{share} of the requests failed: {listed}"
        yield {"word": FAILED, "text": text}

    late_ms = live.lateness_ms
    limit = LIMITS["late_p99_ms"]
    ttft_ms = total.mean_ms("ttft") or 0
    allowed_ms = max(limit.limit, OWN_SHARE * ttft_ms)
    if late_ms is not None and late_ms > allowed_ms:
        text = f"scheduled requests are sent up to {late_ms:.1f} ms late"
        yield {"word": CLIENT_BOUND, "text": text}

    lag_ms = live.gauges.get(LOOP_LAG)
    limit = LIMITS["loop_lag_p99_ms"]
    e2el_ms = total.mean_ms("e2el") or 0
    allowed_ms = max(limit.limit, OWN_SHARE * e2el_ms)
    if lag_ms is not None and lag_ms > allowed_ms:
        text = f"the client's loop is {lag_ms:.1f} ms late"
        others = live.gauges.get(OTHERS)
        if others is not None:
            text += (
                f"; other programs take {others:.0f} % of the machine: {OTHERS_WAY_ON}"
            )

        yield {"word": CLIENT_BOUND, "text": text}

    waits_percent = live.gauges.get(CORE_WAIT, 0.0)
    limit = LIMITS["core_wait_ratio"]
    if waits_percent / 100 > limit.limit:
        text = f"the client waits for a core {waits_percent:.0f} % of the time"
        yield {"word": CLIENT_BOUND, "text": text}


def _rows_of_run(
    groups: Mapping[GroupKey, Group],
    total: Group,
    in_flight: Mapping[GroupKey, int],
    stages: Sequence[str],
) -> Iterator[dict[str, Any]]:
    all_in_flight = sum(in_flight.values())
    yield _row("all", "", total, all_in_flight)

    parts: dict[str, Callable[[GroupKey], str]] = {
        "workload": lambda key: key.workload,
        "stage": lambda key: stage_name(stages, key.stage),
        "host": lambda key: key.host,
    }

    by_stage = sorted(groups, key=lambda key: (key.stage, key))
    for kind, name_of in parts.items():
        by_name: dict[str, list[Group]] = {}
        for key in by_stage:
            of_name = by_name.setdefault(name_of(key), [])
            of_name.append(groups[key])

        flying = Counter[str]()
        for key, count in in_flight.items():
            flying[name_of(key)] += count

        if len(by_name) > 1:
            for name, own in by_name.items():
                group = added(own)
                yield _row(kind, name, group, flying[name])


def _row(kind: str, name: str, group: Group, in_flight: int) -> dict[str, Any]:
    row = {
        "kind": kind,
        "name": printable(name),
        "completed": group.completed,
        "failed": group.failed,
        "failures": dict(group.failures.most_common()),
        "in_flight": in_flight,
        "requests_per_s": group.request_throughput,
        "output_tok_per_s": group.output_throughput,
        "tok_per_s_per_user": group.tok_per_s_per_user,
        "prompt_tokens": group.prompt_tokens,
        "cached_tokens": group.cached_tokens,
        "output_tokens": group.output_tokens,
    }
    words = [f"p{percentile:g}" for percentile in PERCENTILES]
    for latency in LATENCIES:
        values_ms = group.percentiles_ms(latency)
        row[latency] = dict(zip(words, values_ms, strict=True))

    return row
