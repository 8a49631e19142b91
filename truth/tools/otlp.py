"""Spans of OpenTelemetry, OTLP in JSON: a message per line.

A request is a span of kind CLIENT with `gen_ai.operation.name`. E2EL is its duration; TTFT is an
attribute that ends with `time_to_first_chunk` or `time_to_first_token` (s), or `ttft_ms`. The
request's id is an attribute that ends with `request_id`; `….warmup` marks what does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truth.result import Result, Seen
from truth.tools.tool import NoResult, Tool, load_lines, total
from truth.units import NS_PER_MS
from truth.work import Work

CLIENT = 3
FAILED = 2  # code of a span's status
KINDS = ("stringValue", "intValue", "doubleValue", "boolValue")
IN_SECONDS = ("time_to_first_chunk", "time_to_first_token")


class Otlp(Tool):
    name = "otlp"
    title = "a client with spans of OpenTelemetry"

    def commands(self, work: Work, folder: Path) -> list[list[str]]:
        raise ValueError("give the client's command after --")

    def result(self, folder: Path) -> Path:
        return folder / "traces.jsonl"

    def read(self, path: Path) -> Result:
        spans = [span for message in load_lines(path) for span in _spans(message)]
        if not spans:
            raise NoResult("no span of kind CLIENT with gen_ai.operation.name")

        good = [span for span in spans if not _failed(span)]
        requests = [_seen(span) for span in good]
        return Result(
            requests=requests,
            completed=len(good),
            failed=len(spans) - len(good),
            output_tokens=total([seen.output_tokens for seen in requests]),
            input_tokens=total([seen.prompt_tokens for seen in requests]),
        )


def _spans(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The requests of one message, each with its attributes as a dict."""
    for resource in message.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                attributes = _attributes(span)
                is_request = "gen_ai.operation.name" in attributes
                if (
                    span.get("kind") == CLIENT
                    and is_request
                    and not _warmup(attributes)
                ):
                    yield {**span, "attributes": attributes}


def _attributes(span: dict[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for each in span.get("attributes", ()):
        for kind in KINDS:
            if kind in each["value"]:
                attributes[each["key"]] = each["value"][kind]
    return attributes


def _warmup(attributes: dict[str, Any]) -> bool:
    return bool(_ending(attributes, ".warmup"))


def _failed(span: dict[str, Any]) -> bool:
    status: dict[str, Any] = span.get("status") or {}
    return status.get("code") == FAILED or "error.type" in span["attributes"]


def _ending(attributes: dict[str, Any], end: str) -> Any:
    for name, value in attributes.items():
        if name.endswith(end):
            return value
    return None


def _seen(span: dict[str, Any]) -> Seen:
    attributes = span["attributes"]
    duration_ns = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
    return Seen(
        request_id=_ending(attributes, "request_id"),
        ttft_ms=_ttft_ms(attributes),
        e2el_ms=duration_ns / NS_PER_MS,
        output_tokens=_count(attributes, "gen_ai.usage.output_tokens"),
        prompt_tokens=_count(attributes, "gen_ai.usage.input_tokens"),
    )


def _ttft_ms(attributes: dict[str, Any]) -> float | None:
    for end in IN_SECONDS:
        seconds = _ending(attributes, end)
        if seconds is not None:
            return float(seconds) * 1e3
    milliseconds = _ending(attributes, ".ttft_ms")
    return None if milliseconds is None else float(milliseconds)


def _count(attributes: dict[str, Any], name: str) -> int | None:
    value = attributes.get(name)
    return None if value is None else int(value)
