"""Conversations from spans of OpenTelemetry's conventions for generative AI, exported as JSON
(OTLP).

A span of the operation `chat` is a request: `gen_ai.input.messages` is its whole prompt,
`gen_ai.output.messages` its answer. Spans of one `gen_ai.conversation.id` (else of one trace) are a
conversation; those below a nested `invoke_agent` span are a sub-agent's. Source:
open-telemetry/semantic-conventions-genai, model/gen-ai/*.json; opentelemetry-proto, OTLP/JSON.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.data_files import ASSISTANT, SYSTEM
from llama_load.loadgen.workloads.talks import (
    ROLES,
    TOOL,
    RecordedTurn,
    Talk,
    recorded_wait_s,
)
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import printable
from llama_load.servers.prompt import Message, ToolCall

CHAT = ("chat", "generate_content")
AGENT = "invoke_agent"
_INPUT = "gen_ai.input.messages"
_OUTPUT = "gen_ai.output.messages"
_SYSTEM = "gen_ai.system_instructions"
_TOOLS = "gen_ai.tool.definitions"
_CONVERSATION = "gen_ai.conversation.id"
_IGNORED_PARTS = {"reasoning"}


@dataclass(frozen=True, slots=True)
class Span:
    """A span: its place in the trace, its instants in ns since 1970, and its attributes."""

    id: str
    parent: str
    trace: str
    started_ns: int
    ended_ns: int
    facts: Mapping[str, Any]

    @property
    def operation(self) -> str:
        """Such as "chat" or "invoke_agent"; "" without one."""
        return str(self.facts.get("gen_ai.operation.name", ""))


@dataclass(frozen=True, slots=True)
class SpanRequest:
    """A chat span, read: its prompt, its answer, and `tools`, if it has some."""

    span: Span
    prompt: tuple[Message, ...]
    reply: Message
    fields: Mapping[str, Any]


def talks_of_spans(export: Mapping[str, Any], where: str) -> list[Talk]:
    """The conversations of an export. UsageError: a span has no messages, or some that are not
    understood."""
    spans = {span.id: span for span in _spans(export, where)}
    threads: dict[tuple[str, str], dict[str, list[Span]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for span in sorted(spans.values(), key=lambda span: span.started_ns):
        if span.operation in CHAT:
            conversation = str(span.facts.get(_CONVERSATION) or span.trace)
            threads[
                span.trace if _CONVERSATION not in span.facts else "", conversation
            ][_agent_of(span, spans)].append(span)
    return [_talk(name, agents, spans, where) for (_, name), agents in threads.items()]


def requests_of_spans(
    export: Mapping[str, Any], where: str
) -> Iterator[SpanRequest | UsageError]:
    """The requests of an export one by one, in its order; for one without messages, or with some
    that are not understood, the reason. UsageError: it is no export."""
    for span in _spans(export, where):
        if span.operation not in CHAT:
            continue
        try:
            yield _request(span, where)
        except UsageError as error:
            yield error


def _talk(
    name: str,
    agents: Mapping[str, Sequence[Span]],
    spans: Mapping[str, Span],
    where: str,
) -> Talk:
    own, *others = (
        agents.values()
    )  # the first to send a request is the conversation's own
    talk, ends = _thread(name, [_request(span, where) for span in own], where)
    turns = list(talk.turns)
    for number, thread in enumerate(others, start=1):
        agent, _ = _thread(name, [_request(span, where) for span in thread], where)
        above = spans.get(_agent_of(thread[0], spans))
        label = printable(
            str((above.facts if above else {}).get("gen_ai.agent.name") or "agent"), 60
        )
        place = max(0, sum(ended <= thread[0].started_ns for ended in ends) - 1)
        turns[place] = replace(
            turns[place],
            agents=(*turns[place].agents, replace(agent, name=f"{label} {number}")),
        )
    return replace(talk, turns=tuple(turns))


def _thread(
    name: str, requests: Sequence[SpanRequest], where: str
) -> tuple[Talk, list[int]]:
    """The turns of one agent, and when each answer ended."""
    turns: list[RecordedTurn] = []
    so_far: tuple[Message, ...] = ()
    ended_ns = requests[0].span.started_ns
    for request in requests:
        goes_on = (
            bool(turns)
            and request.prompt[: len(so_far)] == so_far
            and len(request.prompt) > len(so_far)
        )
        added = request.prompt[len(so_far) :] if goes_on else request.prompt
        delay_s = (
            recorded_wait_s((request.span.started_ns - ended_ns) / 1e9, where)
            if turns
            else None
        )
        turns.append(
            RecordedTurn(
                added,
                request.reply,
                delay_s,
                _output_tokens(request.span),
                resets=bool(turns) and not goes_on,
            )
        )
        so_far = (*request.prompt, request.reply)
        ended_ns = request.span.ended_ns
    return Talk(name, (), tuple(turns), requests[0].fields), [
        request.span.ended_ns for request in requests
    ]


def _request(span: Span, where: str) -> SpanRequest:
    where = f"{where}, span {span.id}"
    if _INPUT not in span.facts or _OUTPUT not in span.facts:
        raise UsageError(
            f"{where} has no {_INPUT if _INPUT not in span.facts else _OUTPUT}: record it again "
            "with the capture of message "
            "content turned on (OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT)"
        )
    prompt = [
        message
        for given in _list(span.facts[_INPUT], where)
        for message in _messages(given, where)
    ]
    if instructions := span.facts.get(_SYSTEM):
        texts = [
            str(part.get("content", ""))
            for part in _list(instructions, where)
            if isinstance(part, Mapping)
        ]
        prompt.insert(0, Message(SYSTEM, "\n\n".join(texts)))
    replies = [
        message
        for given in _list(span.facts[_OUTPUT], where)
        for message in _messages(given, where)
    ]
    if len(replies) != 1 or replies[0].role != ASSISTANT:
        raise UsageError(
            f"{where} has {len(replies)} output messages; only one answer of an assistant can be "
            "sent"
        )
    if not prompt:
        raise UsageError(f"{where} has no input message")
    tools = [_tool(tool, where) for tool in _list(span.facts.get(_TOOLS) or [], where)]
    return SpanRequest(
        span, tuple(prompt), replies[0], {"tools": tools} if tools else {}
    )


def _messages(given: Any, where: str) -> Iterator[Message]:
    """The messages of one that has parts; each tool result becomes a message of its own, as the
    chat API has it."""
    role, parts = (
        (given.get("role"), given.get("parts"))
        if isinstance(given, Mapping)
        else (None, None)
    )
    if role not in ROLES or not isinstance(parts, list):
        raise UsageError(
            f"{where} has a message with the role {printable(repr(role), 60)}; known are "
            f"{', '.join(ROLES)}"
        )
    texts: list[str] = []
    calls: list[ToolCall] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text":
            texts.append(str(part.get("content", "")))
        elif kind == "tool_call":
            arguments = part.get("arguments")
            text = (
                arguments
                if isinstance(arguments, str)
                else json.dumps(arguments or {}, ensure_ascii=False)
            )
            calls.append(
                ToolCall(
                    str(part.get("id") or f"call_{len(calls)}"),
                    str(part.get("name")),
                    text,
                )
            )
        elif kind == "tool_call_response":
            result = part.get("response", part.get("result"))
            text = (
                result
                if isinstance(result, str)
                else json.dumps(result, ensure_ascii=False)
            )
            yield Message(TOOL, text, call_id=str(part.get("id") or "call_0"))
        elif kind not in _IGNORED_PARTS:
            raise UsageError(
                f"{where} has a part of the type {printable(repr(kind), 60)}, which is not "
                "understood; remove it"
            )
    if texts or calls:
        yield Message(str(role), "\n".join(texts), calls=tuple(calls))


def _tool(given: Any, where: str) -> dict[str, Any]:
    if isinstance(given, Mapping) and isinstance(given.get("function"), Mapping):
        return dict(given)
    if not isinstance(given, Mapping) or not given.get("name"):
        raise UsageError(f"{where} has a tool definition without a name")
    kept = {
        key: given[key]
        for key in ("name", "description", "parameters")
        if given.get(key) is not None
    }
    return {"type": "function", "function": kept}


def _output_tokens(span: Span) -> int | None:
    tokens = span.facts.get("gen_ai.usage.output_tokens")
    return tokens if isinstance(tokens, int) and tokens > 0 else None


def _agent_of(span: Span, spans: Mapping[str, Span]) -> str:
    """The id of the nearest agent's span above; "" without any."""
    seen: set[str] = set()
    above = spans.get(span.parent)
    while above is not None and above.id not in seen:
        if above.operation == AGENT:
            return above.id
        seen.add(above.id)
        above = spans.get(above.parent)
    return ""


def _list(value: Any, where: str) -> list[Any]:
    """An attribute that is a list, or JSON text of one."""
    if isinstance(value, str):
        try:
            value = decode_foreign(value.encode())
        except ValueError as error:
            raise UsageError(
                f"{where} has an attribute that is not valid JSON: {error}"
            ) from None
    if not isinstance(value, list):
        raise UsageError(f"{where} has an attribute that is no list of messages")
    return value


def _spans(export: Mapping[str, Any], where: str) -> Iterator[Span]:
    try:
        for resource in (
            export.get("resourceSpans") or export.get("resource_spans") or ()
        ):
            for scope in (
                resource.get("scopeSpans") or resource.get("scope_spans") or ()
            ):
                for span in scope.get("spans") or ():
                    yield Span(
                        str(span["spanId"]),
                        str(span.get("parentSpanId") or ""),
                        str(span["traceId"]),
                        int(span["startTimeUnixNano"]),
                        int(span["endTimeUnixNano"]),
                        {
                            fact["key"]: _value_of_json(fact["value"])
                            for fact in span.get("attributes") or ()
                        },
                    )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{where} is no JSON export of OpenTelemetry spans (OTLP/JSON): "
            f"{type(error).__name__} {error}"
        ) from None


def _value_of_json(given: Mapping[str, Any]) -> Any:
    """A value of OTLP's JSON: {"stringValue": …}, {"intValue": "5"}, {"arrayValue": {"values":
    […]}}, {"kvlistValue": …}."""
    ((kind, value),) = given.items()
    if kind == "intValue":
        return int(value)
    if kind == "arrayValue":
        return [_value_of_json(item) for item in value.get("values", ())]
    if kind == "kvlistValue":
        return {
            item["key"]: _value_of_json(item["value"])
            for item in value.get("values", ())
        }
    return value
