"""Live figures as the web page shows them: rows with the figures of the run and its parts, the judgement so far, series."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from llama_load.foreign_text import printable
from llama_load.live.figures import LATENCIES, PERCENTILES, Group, GroupKey, LiveFigures, added
from llama_load.metrics.check_limits import LIMITS, OWN_SHARE
from llama_load.metrics.verdict_words import CLIENT_BOUND, FAILED

# Gauges of what the client feels: title of the chart with its unit, and the name of the line (see `llama_load.run.live_meters`).
LOOP_LAG = "Lag of the client's loop (ms): p99 of 10 s"
CORE_WAIT = "Client waits for a core (%): of the last second"
OTHERS = "CPU of other programs (% of all cores): of the last second"
WORKER_CPU = "CPU of a worker (% of a core): the busiest"


def live_view(live: LiveFigures, stages: Sequence[str], version: int, width_s: int) -> dict[str, Any]:
    """`rows`: the whole run first, then each workload, stage and host where there are several. `series`: see
    `LiveFigures.series`. Latencies are in ms."""
    groups = live.groups()
    total = added(groups.values())
    return {
        "phase": live.phase,
        "gauges": live.gauges,
        "so_far": list(judgement(total, live)),
        "rows": list(_rows(groups, total, live.in_flight, stages)),
        "series": live.series(version, width_s),
    }


def judgement(total: Group, live: LiveFigures) -> Iterator[dict[str, str]]:
    """The words of the verdict that apply by now, with a sentence each. (All checks are made at the end.)"""
    limit = LIMITS["failure_ratio"].limit
    if (total.failure_ratio or 0) > limit:
        why = ", ".join(f"{count} {name}" for name, count in total.failures.most_common(3))
        yield {"word": FAILED, "text": f"{total.failure_ratio:.1%} of the requests failed: {why}"}
    late_ms = live.lateness_ms
    allowed_ms = max(LIMITS["late_p99_ms"].limit, OWN_SHARE * (total.mean_ms("ttft") or 0))
    if late_ms is not None and late_ms > allowed_ms:
        yield {"word": CLIENT_BOUND, "text": f"scheduled requests are sent up to {late_ms:.1f} ms late"}
    lag_ms, others = live.gauges.get(LOOP_LAG), live.gauges.get(OTHERS)
    if lag_ms is not None and lag_ms > max(LIMITS["loop_lag_p99_ms"].limit, OWN_SHARE * (total.mean_ms("e2el") or 0)):
        also = "" if others is None else f"; other programs take {others:.0f} % of the machine"
        yield {"word": CLIENT_BOUND, "text": f"the client's loop is {lag_ms:.1f} ms late{also}"}
    waits = live.gauges.get(CORE_WAIT)
    if waits is not None and waits / 100 > LIMITS["core_wait_ratio"].limit:
        yield {"word": CLIENT_BOUND, "text": f"the client waits for a core {waits:.0f} % of the time"}


def _rows(
    groups: Mapping[GroupKey, Group], total: Group, in_flight: Mapping[GroupKey, int], stages: Sequence[str]
) -> Iterator[dict[str, Any]]:
    yield _row("all", "", total, sum(in_flight.values()))
    parts: tuple[tuple[str, Callable[[GroupKey], str]], ...] = (
        ("workload", lambda key: key.workload),
        ("stage", lambda key: stage_name(stages, key.stage)),
        ("host", lambda key: key.host),
    )
    for kind, name_of in parts:
        names = dict.fromkeys(name_of(key) for key in sorted(groups, key=lambda key: (key.stage, key)))
        for name in names if len(names) > 1 else ():
            own = added(group for key, group in groups.items() if name_of(key) == name)
            yield _row(kind, name, own, sum(count for key, count in in_flight.items() if name_of(key) == name))


def _row(kind: str, name: str, group: Group, in_flight: int) -> dict[str, Any]:
    latencies = {latency: dict(zip(map(_word, PERCENTILES), group.percentiles_ms(latency), strict=True)) for latency in LATENCIES}
    return {
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
        **latencies,
    }


def _word(percentile: float) -> str:
    return f"p{percentile:g}"


def stage_name(stages: Sequence[str], number: int) -> str:
    """The name of a stage; empty in a run without stages."""
    return stages[number] if 0 <= number < len(stages) else ""
