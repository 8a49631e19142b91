"""Messages of OpenAI's chat API, as data files have them: all roles, tool calls, tool results,
images, sub-agents.

What is not understood is refused by name: a message that is sent without a part of it would be
another load.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.data_files import ASSISTANT
from llama_load.loadgen.workloads.line_fields import (
    OUTPUT_TOKENS,
    SAMPLING,
    Fields,
    count_of,
    line_fields,
)
from llama_load.loadgen.workloads.line_messages import ASKS, read_line
from llama_load.loadgen.workloads.talks import (
    ROLES,
    TOOL,
    RecordedMessage,
    Talk,
    recorded_wait_s,
    turns_of,
)
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import printable
from llama_load.servers.prompt import Image, Message, ToolCall

_FIELDS = ("tools", "tool_choice", "parallel_tool_calls")
_TEXT_PARTS = ("text", "input_text", "output_text")
_IMAGE_PARTS = ("image_url", "input_image", "image")
_DATA_URL = "data:image/"


def talk_of(
    given: Mapping[str, Any], name: str, where: str, fields: Fields | None = None
) -> Talk:
    """The conversation of a line of a data file. UsageError says what in it is not understood, and
    where."""
    return talk_of_read(read_line(given, where, fields or line_fields()), name, where)


def talk_of_read(line: Mapping[str, Any], name: str, where: str) -> Talk:
    """The same, of a line that was read (see `read_line`)."""
    if "functions" in line:
        raise UsageError(
            f"{where} has functions, which OpenAI replaced by tools: convert them"
        )
    messages = line["messages"]
    recorded = [
        _recorded(message, f"{where}, message {number}")
        for number, message in enumerate(messages, start=1)
    ]
    opening, turns = turns_of(recorded, where, _history(line, len(recorded), where))
    return Talk(
        _text(line.get("id")) or name,
        opening,
        turns,
        _fields(line, where),
        line.get(OUTPUT_TOKENS),
    )


def _history(line: Mapping[str, Any], messages: int, where: str) -> int:
    """How many of the first messages were there before the first request of a recording."""
    given = line.get("history", 0)
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise UsageError(f"{where} has history {_quoted(given)}; it must be 0 or more")
    if given >= messages:
        raise UsageError(
            f"{where} has history {given}, but {messages} messages: no request is left"
        )
    return given


def _recorded(message: Mapping[str, Any], where: str) -> RecordedMessage:
    role = message.get("role")
    if role not in ROLES:
        raise UsageError(
            f"{where} has the role {_quoted(role)}; known are {', '.join(ROLES)}"
        )
    text, images = _content(message.get("content"), where)
    calls = _calls(message.get("tool_calls"), where)
    if calls and role != ASSISTANT:
        raise UsageError(
            f"{where} has tool_calls, but its role is {role}: only an assistant calls tools"
        )
    if role == ASSISTANT and not (text.strip() or calls):
        raise UsageError(
            f"{where} is an answer without text and tool calls; leave it out"
        )
    if role == "user" and not (text.strip() or images):
        raise UsageError(f"{where} is a question without text; leave it out")
    call_id = _text(message.get("tool_call_id"))
    if (role == TOOL) != (call_id is not None):
        raise UsageError(
            f"{where}: a message of the role tool, and no other, needs a tool_call_id"
        )
    agents = message.get("agents") or []
    if agents and (role != ASSISTANT or not isinstance(agents, list)):
        raise UsageError(
            f"{where}: agents must be a list of sub-agents that an assistant started"
        )
    return RecordedMessage(
        Message(str(role), text, images, calls, call_id, _text(message.get("name"))),
        _delay(message.get("delay_s"), where),
        tuple(
            _agent(agent, number, where) for number, agent in enumerate(agents, start=1)
        ),
        output_tokens=_count(message, OUTPUT_TOKENS, where),
        asks=ASKS in message,
    )


def _agent(agent: Any, number: int, where: str) -> Talk:
    where = f"{where}, agent {number}"
    if not isinstance(agent, Mapping):
        raise UsageError(f"{where} is not an object with messages")
    name = _text(agent.get("name")) or f"agent {number}"
    talk = talk_of(agent, name, where)
    if any(turn.agents for turn in talk.turns):
        raise UsageError(
            f"{where} has sub-agents of its own; only one level of them can be sent"
        )
    return Talk(
        talk.id, talk.opening, talk.turns, talk.fields, talk.output_tokens, name=name
    )


def _content(content: Any, where: str) -> tuple[str, tuple[Image, ...]]:
    """Text and images; text parts are joined by line breaks."""
    if content is None or isinstance(content, str):
        return content or "", ()
    if not isinstance(content, list):
        raise UsageError(
            f"{where} has a content that is neither text nor a list of parts"
        )
    texts = []
    images = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in _TEXT_PARTS and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind in _IMAGE_PARTS:
            images.append(_image(part.get("image_url", part.get("source")), where))
        else:
            raise UsageError(
                f"{where} has a part of the type {_quoted(kind)}; known are text and image_url"
            )
    return "\n".join(texts), tuple(images)


def _image(given: Any, where: str) -> Image:
    url = given.get("url") if isinstance(given, Mapping) else given
    if isinstance(given, Mapping) and given.get("type") == "base64":  # Anthropic's
        url = f"data:{given.get('media_type')};base64,{given.get('data')}"
    head, comma, data = (
        url.partition(";base64,") if isinstance(url, str) else ("", "", "")
    )
    if not comma or not head.startswith(_DATA_URL):
        raise UsageError(
            f"{where} has an image that is no data URL; write it as data:image/png;base64,…"
        )
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(f"{where} has an image whose base64 is invalid") from None
    return Image(str(url).encode("ascii"), hashlib.sha256(content).hexdigest(), 0, 0)


def _calls(given: Any, where: str) -> tuple[ToolCall, ...]:
    if given in (None, []):
        return ()
    calls = []
    for number, call in enumerate(
        given if isinstance(given, list) else [given], start=1
    ):
        function = call.get("function") if isinstance(call, Mapping) else None
        call_id = _text(call.get("id")) if isinstance(call, Mapping) else None
        name = _text(function.get("name")) if isinstance(function, Mapping) else None
        if (
            not isinstance(function, Mapping)
            or name is None
            or call_id is None
            or call.get("type", "function") != "function"
        ):
            raise UsageError(
                f'{where}: tool call {number} must be {{"id", "type": "function", "function": '
                f'{{"name", "arguments"}}}}'
            )
        arguments = function.get("arguments")
        calls.append(
            ToolCall(
                call_id,
                name,
                arguments
                if isinstance(arguments, str)
                else json.dumps(arguments or {}),
            )
        )
    if len({call.id for call in calls}) < len(calls):
        raise UsageError(f"{where} has two tool calls with the same id")
    return tuple(calls)


def _fields(line: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`tools` and what belongs to them, for the request body."""
    fields = {
        name: line[name] for name in _FIELDS if line.get(name) not in (None, [], "")
    }
    tools = fields.get("tools")
    if isinstance(tools, str):  # some data sets keep them as JSON text
        try:
            tools = fields["tools"] = decode_foreign(tools.encode())
        except ValueError as error:
            raise UsageError(
                f"{where} has tools that are not valid JSON: {error}"
            ) from None
    if tools is not None and not (
        isinstance(tools, list)
        and all(
            isinstance(tool, Mapping) and isinstance(tool.get("function"), Mapping)
            for tool in tools
        )
    ):
        raise UsageError(
            f'{where} has tools that are no list of {{"type": "function", "function": {{…}}}}'
        )
    if tools is None and "tool_choice" in fields:
        raise UsageError(f"{where} has a tool_choice, but no tools")
    return fields | _sampling(line, where)


def _sampling(line: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The sampling of a recording. Fields of the load itself (stream, max_tokens) are none."""
    sampling = line.get("sampling")
    if sampling is None:
        return {}
    if not isinstance(sampling, Mapping):
        raise UsageError(f"{where} has a sampling that is no object")
    unknown = [name for name in sampling if name not in SAMPLING]
    if unknown:
        raise UsageError(
            f"{where} has {_quoted(unknown[0])} in its sampling; known are {', '.join(SAMPLING)}"
        )
    return dict(sampling)


def _delay(given: Any, where: str) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        raise UsageError(
            f"{where} has the delay_s {_quoted(given)}; it must be seconds, 0 or more"
        )
    return recorded_wait_s(given, where)


def _count(message: Mapping[str, Any], key: str, where: str) -> int | None:
    if key not in message:
        return None
    return count_of(message[key], key, where)


def _text(value: Any) -> str | None:
    return (
        str(value)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != ""
        else None
    )


def _quoted(value: Any) -> str:
    return printable(repr(value), 60)
