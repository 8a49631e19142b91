"""What a locustfile did besides LLM requests, in the block and in summary.json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llama_load.observed.other_requests import OtherTraffic
from llama_load.reports.layout import TEXT_WIDTH, in_columns, wrapped


def traffic_lines(traffic: OtherTraffic) -> Iterable[str]:
    """A table of the requests, the first failure's text of each row, and a line per exception."""
    rows = [
        (_name(row.method, row.name), str(row.requests), str(row.failures), f"{row.mean_ms:.2f}", f"{row.longest_ms:.2f}")
        for row in traffic.requests
    ]
    if rows:
        yield from in_columns([("", "req", "failed", "mean (ms)", "max (ms)"), *rows])
    for row in traffic.requests:
        if row.error is not None:
            yield from _wrapped(f"! {_name(row.method, row.name)}: {row.error}")
    for each in traffic.exceptions:
        yield from _wrapped(f"! {each.count} x exception in a task: {each.text}")


def traffic_json(traffic: OtherTraffic) -> dict[str, Any]:
    """The keys `other_requests` and `task_exceptions`."""
    return {
        "other_requests": [
            {
                "method": row.method,
                "name": row.name,
                "requests": row.requests,
                "failures": row.failures,
                "mean_ms": row.mean_ms,
                "max_ms": row.longest_ms,
                "error": row.error,
            }
            for row in traffic.requests
        ],
        "task_exceptions": [{"text": each.text, "count": each.count} for each in traffic.exceptions],
    }


def _name(method: str, name: str) -> str:
    return f"{method} {name}".strip()


def _wrapped(text: str) -> list[str]:
    return list(wrapped(text, TEXT_WIDTH, indent="  "))
