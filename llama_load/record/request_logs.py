"""Requests in logs that other programs wrote, as if they had been recorded.

    OpenAI requests    the body of a request, alone or under `request` or `body`, with its answer
                       under `response`; `url` or `path` names the API
    OTel spans         OTLP/JSON, the conventions for generative AI
    LiteLLM            rows of its spend log (LiteLLM_SpendLogs, /spend/logs)

The layout is recognized by the content. A request without a time has no place in a trace.
Sources: OpenAI's API reference; open-telemetry/semantic-conventions-genai; BerriAI/litellm,
schema.prisma.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.ground.units import NS_PER_MS, s_to_ns
from llama_load.loadgen.workloads.data_files import DataFile
from llama_load.loadgen.workloads.otel_spans import SpanRequest, requests_of_spans
from llama_load.outside.budget import Budget, TooMuchWork
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import printable
from llama_load.record.chat_messages import message_of_answer, messages_of, tools_of
from llama_load.record.read_exchange import SeenRequest, api_of
from llama_load.servers.apis.prompt_content import as_sent
from llama_load.servers.json_fields import fields
from llama_load.servers.usage import known_count

LAYOUT = (
    'a request of OpenAI\'s API ({"messages": […], "timestamp": …}, alone or under "request" or '
    '"body"), an export of OpenTelemetry spans ({"resourceSpans": […]}), or a row of LiteLLM\'s '
    'spend log ({"startTime": …, "messages": …})'
)
_ANYTHING = msgspec.json.Decoder(dict[str, Any])
_STARTS = (
    *("startTime", "start_time", "started_at", "timestamp", "time", "created_at"),
    *("created", "date", "ts"),
)
_ENDS = ("endTime", "end_time", "ended_at", "completed_at", "finished_at")
_DURATIONS_MS = ("duration_ms", "latency_ms", "request_duration_ms")
_PATHS = ("url", "path", "endpoint", "route")
# A number of this size is in ms since 1970, a larger one in µs or ns; none of them is in the
# years 1980 to 5000 in a smaller unit.
_FROM_MS = 1e11
_FROM_US = 1e14
_FROM_NS = 1e17
# Of entries that are decoded: exports have many spans each, which are sent in turns with those of
# others.
MOST_KEPT_BYTES = 512 << 20
# In a log whose entries do not fit, those that come in turns are decoded again for each request.
MOST_TIMES_DECODED = 20


class NoRequestError(ValueError):
    """An entry that is no request; the message says why."""


class RequestLog:
    """The requests of a log in the order in which they were sent."""

    def __init__(self, path: Path) -> None:
        """UsageError: there is no such file, it is not JSON, or no request is in it."""
        self._file = DataFile(path, LAYOUT)
        self._path = path
        self._kept: OrderedDict[int, list[SeenRequest]] = OrderedDict()
        self._kept_bytes = 0
        self.left_out: Counter[str] = Counter()
        self._places: list[tuple[int, int, int]] = []
        for place in range(len(self._file)):
            for number, seen in enumerate(self._of_entry(place, self.left_out)):
                self._places.append((seen.started_ns, place, number))
        self._places.sort()
        if not self._places:
            why = "it is empty"
            for reason, _ in self.left_out.most_common(1):
                why = reason
            raise UsageError(
                f"{path} has no request for a trace: {why}; it must have {LAYOUT}"
            )

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[SeenRequest]:
        """UsageError: its entries would have to be decoded too often."""
        sizes = [self._file.memory_bytes(place) for place in range(len(self._file))]
        work = Budget(MOST_TIMES_DECODED * sum(sizes))
        for count, (_, place, number) in enumerate(self._places, start=1):
            try:
                entry = self._entry(place, sizes, work)
            except TooMuchWork:
                raise UsageError(
                    f"{self._path} has too many requests in another order than that of their "
                    "times; sort it, or split it"
                ) from None
            yield replace(entry[number], number=count)

    def _entry(self, place: int, sizes: list[int], work: Budget) -> list[SeenRequest]:
        if place not in self._kept:
            work.spend(sizes[place])
            self._kept[place] = self._of_entry(place, Counter())
            self._kept_bytes += sizes[place]
        self._kept.move_to_end(place)
        while self._kept_bytes > MOST_KEPT_BYTES and len(self._kept) > 1:
            oldest, _ = self._kept.popitem(last=False)
            self._kept_bytes -= sizes[oldest]
        return self._kept[place]

    def _of_entry(self, place: int, left_out: Counter[str]) -> list[SeenRequest]:
        entry = self._file.decode(place, _ANYTHING)
        found = []
        for each in _requests_in(entry, self._file.where(place)):
            if isinstance(each, SeenRequest):
                found.append(each)
            else:
                left_out[printable(each, 200)] += 1
        return found


def _requests_in(entry: Mapping[str, Any], where: str) -> Iterator[SeenRequest | str]:
    """The requests of an entry, and why others are left out."""
    if "resourceSpans" in entry or "resource_spans" in entry:
        for request in requests_of_spans(entry, where):
            if isinstance(request, UsageError):
                yield "a span without messages, or with some that are not understood"
            else:
                yield _of_span(request)
        return
    try:
        yield _of_entry(entry)
    except NoRequestError as error:
        yield str(error)


def _of_span(request: SpanRequest) -> SeenRequest:
    facts = request.span.facts
    seen = SeenRequest(
        0,
        "chat",
        request.span.started_ns,
        request.span.ended_ns,
        request.span.started_ns,
        200,
    )
    seen.model = str(facts.get("gen_ai.request.model") or "")
    seen.messages = [as_sent(message) for message in request.prompt]
    seen.tools = list(request.fields.get("tools") or [])
    seen.reply = as_sent(request.reply)
    seen.prompt_tokens = known_count(facts.get("gen_ai.usage.input_tokens"))
    seen.output_tokens = known_count(facts.get("gen_ai.usage.output_tokens"))
    cached = facts.get("gen_ai.usage.cache_read.input_tokens")
    seen.cached_tokens = known_count(cached)
    return seen


def _of_entry(entry: Mapping[str, Any]) -> SeenRequest:
    """Raises NoRequestError."""
    body = _body_of(entry)
    api = _api_of(entry, body)
    answer = _answer_of(entry)
    started_ns = _instant_of(entry, _STARTS)
    if started_ns is None:
        started_ns = _instant_of(answer, ("created", "created_at"))
    if started_ns is None:
        raise NoRequestError(
            "a request without a time (timestamp, startTime, created_at, …)"
        )
    seen = SeenRequest(
        0, api, started_ns, _end_of(entry, started_ns), started_ns, 200, body=body
    )
    seen.model = str(body.get("model") or entry.get("model") or "")
    seen.tools = tools_of(body)
    try:
        seen.messages = messages_of(api, body)
    except ValueError as error:
        raise NoRequestError(
            f"a request whose messages are not clear: {error}"
        ) from None
    prompt = body.get("prompt")
    seen.prompt = prompt if isinstance(prompt, str) else None
    if seen.messages is None and seen.prompt is None:
        raise NoRequestError(f"{api}: a trace has no such requests")
    seen.reply = _reply_of(api, answer)
    _count_tokens(entry, answer, seen)
    return seen


def _json(value: Any) -> Any:
    """A value, or what its text is in JSON: logs keep bodies as texts."""
    if not isinstance(value, str):
        return value
    try:
        return decode_foreign(value.encode("utf-8", "surrogatepass"))
    except ValueError:
        return None


def _body_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body of a request. Raises NoRequestError."""
    given = [entry]
    for name in ("request", "body", "proxy_server_request", "request_body", "params"):
        found = fields(_json(entry.get(name)))
        given += [found, fields(_json(found.get("body")))]
    for body in given:
        for name in ("messages", "prompt", "input"):
            content = body.get(name)
            if name == "messages":
                content = _json(content)
            if content:
                return {**body, name: content}
    raise NoRequestError(
        "an entry without messages or a prompt (LiteLLM keeps them with "
        "store_prompts_in_spend_logs)"
    )


def _api_of(entry: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    for given in (entry, fields(_json(entry.get("request")))):
        for name in _PATHS:
            path = given.get(name)
            if not isinstance(path, str):
                continue
            found = api_of(path.partition("?")[0])
            if found is not None:
                return found
    if "messages" in body:
        is_of_messages = (
            "system" in body or entry.get("call_type") == "anthropic_messages"
        )
        if is_of_messages:
            return "messages"
        return "chat"
    if "prompt" in body:
        return "completions"
    return "responses"


def _answer_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in ("response", "completion", "response_body"):
        answer = fields(_json(entry.get(name)))
        if answer:
            return fields(_json(answer.get("body"))) or answer
    return {}


def _reply_of(api: str, answer: Mapping[str, Any]) -> dict[str, Any] | None:
    if api in ("messages", "responses"):
        return message_of_answer(api, answer)
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        return None
    message = fields(fields(choices[0]).get("message"))
    if not message:
        return None
    reply = {"role": "assistant", "content": message.get("content")}
    if isinstance(message.get("tool_calls"), list) and message["tool_calls"]:
        reply["tool_calls"] = message["tool_calls"]
    return reply


def _count_tokens(
    entry: Mapping[str, Any], answer: Mapping[str, Any], seen: SeenRequest
) -> None:
    """Tokens, from the answer's usage, else from the columns of a spend log."""
    usage = fields(answer.get("usage")) or fields(_json(entry.get("usage")))
    details = fields(usage.get("prompt_tokens_details"))
    details = details or fields(usage.get("input_tokens_details"))
    prompt = known_count(usage.get("prompt_tokens", entry.get("prompt_tokens")))
    output = known_count(usage.get("completion_tokens", entry.get("completion_tokens")))
    cached = known_count(details.get("cached_tokens"))
    if prompt is None:
        prompt = known_count(usage.get("input_tokens"))
        read = known_count(usage.get("cache_read_input_tokens"))
        if (
            prompt is not None and read is not None
        ):  # which does not hold the cached ones
            cached = read
            written = known_count(usage.get("cache_creation_input_tokens"))
            prompt += read + (written or 0)
    if output is None:
        output = known_count(usage.get("output_tokens"))
    seen.prompt_tokens = prompt or None
    seen.output_tokens = output
    seen.cached_tokens = cached


def _end_of(entry: Mapping[str, Any], started_ns: int) -> int:
    ended_ns = _instant_of(entry, _ENDS)
    if ended_ns is not None:
        return max(ended_ns, started_ns)
    for name in _DURATIONS_MS:
        duration_ms = entry.get(name)
        if isinstance(duration_ms, int | float) and 0 <= duration_ms < _FROM_MS:
            return started_ns + round(duration_ms * NS_PER_MS)
    return started_ns


def _instant_of(entry: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of these fields that is a time, in ns since 1970."""
    for name in names:
        found = _instant_ns(entry.get(name))
        if found is not None:
            return found
    return None


def _instant_ns(value: Any) -> int | None:
    """A time in ns since 1970: a number of s, ms, µs or ns, or a date and time (UTC without a
    zone)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return _of_date(value)
    if not isinstance(value, int | float) or not 0 < value < 1e19:
        return None
    if value >= _FROM_NS:
        return int(value)
    if value >= _FROM_US:
        return round(value * 1000)
    if value >= _FROM_MS:
        return round(value * NS_PER_MS)
    return s_to_ns(value)


def _of_date(text: str) -> int | None:
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    with_zone = at if at.tzinfo else at.replace(tzinfo=UTC)
    return s_to_ns(with_zone.timestamp())
