"""Recorded conversations and other requests as lines of files that workloads read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.ground.units import ns_to_s
from llama_load.loadgen.workloads.openai_messages import talk_of
from llama_load.record.joined_conversations import KEPT_FIELDS, Conversation
from llama_load.record.read_exchange import SeenRequest


def conversation_line(
    conversation: Conversation, origin_ns: int
) -> tuple[dict[str, Any], str]:
    """The line of a conversation for conversations.py, and why it cannot be sent, "" if it can.
    `origin_ns`: when the recording began."""
    first = conversation.first
    messages = list(conversation.messages)
    if conversation.reply is not None:
        messages.append(conversation.reply)
    line: dict[str, Any] = {"id": f"c{conversation.number}"}
    if first.model:
        line["model"] = first.model
    line["started_s"] = round(ns_to_s(first.started_ns - origin_ns), 3)
    if first.tools:
        line["tools"] = first.tools
        for name in KEPT_FIELDS:
            if first.body.get(name) is not None:
                line[name] = first.body[name]
    if first.sampling:
        line["sampling"] = first.sampling
    if conversation.history:
        line["history"] = conversation.history
    if conversation.branch_of is not None:
        line["branch_of"] = f"c{conversation.branch_of}"
        line["shared_messages"] = conversation.shared
    line["messages"] = messages
    try:
        talk_of(line, line["id"], "it")
    except UsageError as error:
        return line, str(error)
    return line, ""


def request_line(seen: SeenRequest, origin_ns: int) -> dict[str, Any]:
    """The line of a request without messages: with `prompt` for custom.py where it has one."""
    line: dict[str, Any] = {
        "endpoint": seen.api,
        "started_s": round(ns_to_s(seen.started_ns - origin_ns), 3),
    }
    if seen.prompt is not None:
        line["prompt"] = seen.prompt
        if seen.output_tokens:
            line["output_tokens"] = seen.output_tokens
        return line
    line["body"] = _without_stream(seen.body)
    return line


def _without_stream(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "stream"}
