"""What an exchange was: its API, its messages or prompt, its answer, its times and tokens."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from llama_load.ground.units import ns_to_ms
from llama_load.loadgen.wire.sse import EventStream, EventTooLarge
from llama_load.loadgen.workloads.line_fields import SAMPLING
from llama_load.outside.foreign_json import decode_foreign, refuse_many_values
from llama_load.record.chat_messages import (
    MessageDict,
    message_of_answer,
    messages_of,
    tools_of,
)
from llama_load.record.passed_exchange import PassedExchange
from llama_load.servers.answer import AnswerReader
from llama_load.servers.apis import APIS
from llama_load.servers.json_fields import fields
from llama_load.servers.unstreamed import JsonAnswer
from llama_load.servers.usage import Usage, known_count, usage_of

WENT_AWAY = "the client went away"
# A compressed body may not grow beyond this.
MOST_DECODED_BYTES = 256 << 20
# Of a request, each of which takes a microsecond or more: any client that can connect holds up the
# recording of all others. A prompt of a million tokens has as many.
MOST_VALUES = 2_000_000
# Of these together, which take some ten microseconds and 500 bytes each.
MOST_PARTS = 100_000
MOST_NAME_CHARS = 1000
# What ended an exchange before its end.
_ENDS = {
    "client": WENT_AWAY,
    "server": "the server ended it",
    "relay": "the server could not be reached",
    "unread": "its answer is no HTTP",
    "stopped": "the recording was stopped",
}
# Other names of the same APIs; the last part of a path decides, so that any base path works.
_PATHS = {
    "/chat/completions": "chat",
    "/v1/completions": "completions",
    "/completion": "completion",
    "/completions": "completion",
    "/infill": "infill",
    "/messages": "messages",
    "/responses": "responses",
    "/embeddings": "embeddings",
    "/embedding": "embeddings",
    "/rerank": "rerank",
    "/reranking": "rerank",
}


@dataclass(slots=True)
class SeenRequest:
    """An exchange with an LLM's API. Times in ms, instants in monotonic ns; None: not seen.

    `messages` of a request that has some, in the layout of the chat API; else `prompt`. `reply`:
    the answer as a message, None if it could not be read whole. `failure`: why there is no complete
    answer. `processed_tokens`: of the prompt, in `processed_ms` of llama-server's time, and
    `predict_ms` for the answer.
    """

    number: int
    api: str
    started_ns: int
    ended_ns: int
    started_wall_ns: int
    status: int
    model: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    messages: list[MessageDict] | None = None
    prompt: str | None = None
    tools: list[Any] = field(default_factory=list)
    sampling: dict[str, Any] = field(default_factory=dict)
    reply: MessageDict | None = None
    reply_text: str = ""
    failure: str = ""
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    processed_tokens: int | None = None
    processed_ms: float | None = None
    predict_ms: float | None = None
    delay_ms: float = 0.0


class NotUnderstoodError(ValueError):
    """The exchange belongs to no conversation; the message says why."""


@dataclass(slots=True)
class _Ended:
    """What a reader of answers wants to know (see `EndedExchange`)."""

    status: int | None
    headers: Mapping[str, str]
    body: bytes
    failure: None = None
    cancelled: bool = False
    is_stream: bool = False
    error_frame: bytes = b""
    other_lines: bytes = b""
    has_body_end: bool = True


def api_of(path: str) -> str | None:
    """The API of a path; None if it is none of an LLM."""
    for ending in sorted(_PATHS, key=len, reverse=True):
        if path.rstrip("/").endswith(ending):
            return _PATHS[ending]
    return None


def read_exchange(passed: PassedExchange) -> SeenRequest | None:
    """The request, None if it is none to an LLM's API (/health, /v1/models, …). Raises
    NotUnderstoodError."""
    api = api_of(passed.path)
    if api is None or passed.method != "POST":
        return None
    if passed.not_kept:
        raise NotUnderstoodError(passed.not_kept)
    seen = SeenRequest(
        passed.number,
        api,
        passed.started_ns,
        passed.ended_ns,
        passed.started_wall_ns,
        passed.status,
        delay_ms=passed.delay_ms,
        failure=_failure_of(passed),
    )
    try:
        body = _body_of(passed)
    except NotUnderstoodError:
        if passed.end == "complete":
            raise
        return seen  # the request may have come in part
    seen.body = body
    model = body.get("model")
    seen.model = model if isinstance(model, str) else ""
    if len(seen.model) > MOST_NAME_CHARS:
        raise NotUnderstoodError(
            f"the name of its model has more than {MOST_NAME_CHARS:,} characters"
        )
    if _parts_of(body) > MOST_PARTS:
        raise NotUnderstoodError(
            f"it has more than {MOST_PARTS:,} messages, parts of them and tools"
        )
    seen.tools = tools_of(body)
    seen.sampling = {
        name: body[name] for name in SAMPLING if body.get(name) is not None
    }
    try:
        seen.messages = messages_of(api, body)
    except ValueError as error:
        raise NotUnderstoodError(str(error)) from None
    prompt = body.get("prompt")
    seen.prompt = prompt if isinstance(prompt, str) else None
    _read_answer(passed, seen)
    return seen


def _parts_of(body: Mapping[str, Any]) -> int:
    """How many messages, parts of messages and tools a request has."""
    count = 0
    for name in ("messages", "input", "system", "instructions", "tools"):
        value = body.get(name)
        for part in value if isinstance(value, list) else ():
            content = part.get("content") if isinstance(part, dict) else None
            count += 1 + (len(content) if isinstance(content, list) else 0)
    return count


def _body_of(passed: PassedExchange) -> Mapping[str, Any]:
    try:
        data = _decompressed(passed.request, passed.request_encoding)
        refuse_many_values(data, MOST_VALUES)
        body = decode_foreign(data)
    except ValueError as error:
        raise NotUnderstoodError(f"its body is not understood: {error}") from None
    if not isinstance(body, dict):
        raise NotUnderstoodError("its body is no JSON object")
    return body


def _decompressed(data: bytes, encoding: str) -> bytes:
    """Raises ValueError: an encoding that is not understood, or too much."""
    coding = encoding.strip().lower()
    if coding in ("", "identity"):
        return data
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"it is compressed by {coding[:20]!r}")
    decoder = zlib.decompressobj(wbits=47)  # gzip or zlib, by its head
    try:
        content = decoder.decompress(data, MOST_DECODED_BYTES)
    except zlib.error:
        raise ValueError("it is not compressed as it says") from None
    if decoder.unconsumed_tail:
        raise ValueError(f"it has more than {MOST_DECODED_BYTES >> 20} MiB")
    return content


# ---------------------------------------------------------------------- the answer


def _read_answer(passed: PassedExchange, seen: SeenRequest) -> None:
    whole = b"".join(piece for _, piece in passed.pieces)
    try:
        content = _decompressed(whole, passed.content_encoding)
    except ValueError as error:
        seen.failure = seen.failure or str(error)
        return
    is_compressed = content is not whole
    if passed.content_type.lower().startswith("text/event-stream"):
        pieces = passed.pieces
        if is_compressed:  # its events have no times of their own
            pieces = [(passed.ended_ns, content)]
        _read_stream(pieces, seen, has_times=not is_compressed)
    else:
        _read_document(passed, content, seen)


def _failure_of(passed: PassedExchange) -> str:
    """Why there is no complete answer; empty where there is a good one."""
    if passed.end == "relay" and passed.status != HTTPStatus.BAD_GATEWAY:
        return "refused by the recorder"
    if passed.end == "complete":
        return _failure_of_status(passed.status)
    return _ENDS.get(passed.end, passed.end)


def _failure_of_status(status: int) -> str:
    return "" if 200 <= status < 300 else f"HTTP {status}"


def _read_stream(
    pieces: list[tuple[int, bytes]], seen: SeenRequest, *, has_times: bool
) -> None:
    api = APIS[seen.api]
    if not hasattr(api, "stream_reader"):
        return
    reader: AnswerReader = api.stream_reader()
    stream = EventStream()
    try:
        for at_ns, data in pieces:
            for event in stream.feed(data):
                reader.event(event, at_ns)
        for event in stream.end():
            reader.event(event, seen.ended_ns)
    except EventTooLarge as error:
        seen.failure = seen.failure or str(error)
    reader.settle(_Ended(seen.status, {}, b""))
    _take_counts(reader, seen)
    if has_times:
        _take_times(reader, seen)
    # The OpenAI package hangs up at [DONE], which may be before the end of the body has come.
    if reader.done and seen.failure == WENT_AWAY:
        seen.failure = _failure_of_status(seen.status)
    if reader.error:
        seen.failure = seen.failure or "an error in the stream"
    elif not (reader.done or reader.finish_reason):
        seen.failure = seen.failure or "the stream ended early"
    _take_reply(reader, seen)


def _read_document(passed: PassedExchange, content: bytes, seen: SeenRequest) -> None:
    """An answer in one JSON body."""
    if seen.failure:
        return
    try:
        answer = decode_foreign(content)
    except ValueError:
        seen.failure = "its answer is no JSON"
        return
    if not isinstance(answer, dict):
        return
    if seen.api in ("messages", "responses"):
        seen.reply = message_of_answer(seen.api, answer)
        seen.reply_text = str((seen.reply or {}).get("content") or "")
        _count_usage(_usage_of(fields(answer.get("usage"))), seen)
    elif seen.api in ("completion", "infill"):
        native: AnswerReader = APIS[seen.api].stream_reader()  # type: ignore[attr-defined]
        native.event(content, passed.ended_ns)
        _take_counts(native, seen)
        seen.reply_text = native.text
    else:
        reader = JsonAnswer()
        reader.settle(_Ended(passed.status, {}, content))
        _take_counts(reader, seen)
        _take_reply(reader, seen)


def _usage_of(usage: Mapping[str, Any]) -> Usage:
    """Usage of the APIs of messages and responses."""
    cached = known_count(usage.get("cache_read_input_tokens"))
    details = fields(usage.get("input_tokens_details"))
    prompt = known_count(usage.get("input_tokens"))
    if cached is not None and prompt is not None:  # which does not hold the cached ones
        prompt += cached
        prompt += known_count(usage.get("cache_creation_input_tokens")) or 0
    if cached is None:
        cached = known_count(details.get("cached_tokens"))
    return usage_of(prompt, known_count(usage.get("output_tokens")), cached)


def _take_counts(reader: AnswerReader, seen: SeenRequest) -> None:
    if reader.usage is not None:
        _count_usage(reader.usage, seen)
    timings = reader.timings
    if timings is None:
        return
    if timings.cache_n is not None:
        seen.cached_tokens = timings.cache_n
        if timings.prompt_n is not None:
            seen.prompt_tokens = timings.cache_n + timings.prompt_n
    if seen.output_tokens is None:
        seen.output_tokens = timings.predicted_n
    seen.processed_tokens = timings.prompt_n
    seen.processed_ms = timings.prompt_ms
    seen.predict_ms = timings.predicted_ms


def _count_usage(usage: Usage, seen: SeenRequest) -> None:
    seen.prompt_tokens = usage.prompt_tokens
    seen.output_tokens = usage.completion_tokens
    details = usage.prompt_tokens_details
    if details is not None:
        seen.cached_tokens = details.cached_tokens


def _take_times(reader: AnswerReader, seen: SeenRequest) -> None:
    if not reader.token_ns:
        return
    first_ns = reader.token_ns[0]
    last_ns = reader.token_ns[-1]
    seen.ttft_ms = ns_to_ms(first_ns - seen.started_ns)
    tokens = seen.output_tokens or len(reader.token_ns)
    if tokens > 1:
        seen.tpot_ms = ns_to_ms(last_ns - first_ns) / (tokens - 1)


def _take_reply(reader: AnswerReader, seen: SeenRequest) -> None:
    """The answer as a message. Streams of other APIs do not tell their calls of tools here: the
    client's next request does."""
    seen.reply_text = reader.text
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in reader.calls
    ]
    if seen.messages is None or not (reader.text or calls):
        return
    if seen.api != "chat" and reader.finish_reason == "tool_calls":
        return
    seen.reply = {"role": "assistant", "content": reader.text or None}
    if calls:
        seen.reply["tool_calls"] = calls
