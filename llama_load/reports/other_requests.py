"""What a locustfile did besides LLM requests, in the block and in summary.json."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from llama_load.metrics.other_requests import OtherTraffic

NAME_WIDTH = 32
TEXT_WIDTH = 78


def traffic_lines(traffic: OtherTraffic) -> Iterable[str]:
    """A line a row with its first failure below it, then a line an exception."""
    if traffic.requests:
        yield f"{'':<{NAME_WIDTH}} {'req':>6} {'failed':>6} {'mean (ms)':>10} {'max (ms)':>10}"
    for row in traffic.requests:
        name = f"{row.method} {row.name}".strip()
        if len(name) > NAME_WIDTH:
            yield name
            name = ""
        yield f"{name:<{NAME_WIDTH}} {row.requests:>6} {row.failures:>6} {row.mean_ms:>10.2f} {row.longest_ms:>10.2f}"
        if row.error is not None:
            yield from _wrapped(f"! {row.error}")
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


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, TEXT_WIDTH, subsequent_indent="  ")
