"""Reports LLM requests to Locust's statistics, so that its web UI, --csv and --html show them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from llama_load.loadgen.run.other_request_counter import OF_LLM
from llama_load.run_folder.observed.record import OK, UNFINISHED, RequestRecord


class RequestFailed(Exception):
    """Failure class and message of a request. Locust's failure table groups by it."""


def record_sink(
    environment: Any, add: Callable[[RequestRecord], None]
) -> Callable[[RequestRecord], None]:
    """A function that adds a record, then passes it to listeners and, except in warm-ups, to
    Locust's statistics."""

    def heard(record: RequestRecord) -> None:
        add(record)
        environment.events.llm_request.fire(record=record)
        if not record.warmup:
            report_request(environment, record)

    return heard


def report_request(environment: Any, record: RequestRecord) -> None:
    """Fire Locust's request event for the record, and add its TTFT, TPOT and ITL rows.

    A row that is no request goes straight into the worker's entries: firing an event would add it
    to Aggregated and inflate RPS. Cancelled requests are shown nowhere.
    """
    if record.status in UNFINISHED:
        return
    ok = record.status == OK
    duration_ms = (
        record.e2el_ms
        if record.e2el_ms is not None
        else (record.ended_mono_ns - record.started_mono_ns) / 1e6
    )
    environment.events.request.fire(
        request_type=record.endpoint,
        name=record.name,
        response_time=duration_ms,
        response_length=record.output_chars,
        exception=None if ok else RequestFailed(f"{record.status}: {record.error}"),
        context=OF_LLM,
    )
    if not ok:
        return
    entries = environment.stats.entries
    for kind, value in (("TTFT", record.ttft_ms), ("TPOT", record.tpot_ms)):
        if value is not None:
            entries[(record.name, kind)].log(value, 0)
    if record.itl_ms:
        log_many(entries[(record.name, "ITL")], record.itl_ms)


def log_many(entry: Any, values_ms: Sequence[float]) -> None:
    """Log many values into a Locust StatsEntry: like `entry.log(value, 0)` for each, but 50 times
    faster."""
    now = time.time()
    second = int(now)
    count = len(values_ms)
    low = min(values_ms)
    high = max(values_ms)
    entry.num_requests += count
    entry.num_reqs_per_sec[second] = entry.num_reqs_per_sec.get(second, 0) + count
    entry.last_request_timestamp = now
    entry.total_response_time += sum(values_ms)
    entry.min_response_time = (
        low if entry.min_response_time is None else min(entry.min_response_time, low)
    )
    entry.max_response_time = max(entry.max_response_time, high)
    for rounded, times in Counter(map(_rounded, values_ms)).items():
        entry.response_times[rounded] = entry.response_times.get(rounded, 0) + times


def _rounded(value_ms: float) -> int:
    """Locust's bucket of a response time: 1 ms below 100 ms, then 10, 100, 1000 ms."""
    if value_ms < 100:
        return round(value_ms)
    if value_ms < 1000:
        return int(round(value_ms, -1))
    return int(round(value_ms, -2 if value_ms < 10000 else -3))
