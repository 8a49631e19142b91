"""The messages of a request, in OpenAI's chat layout, whichever API it was sent to.

Parts that this layout does not have stay as they are: the reader of conversations then refuses
them by name, and nothing is left out silently. Sources: the API references of OpenAI (chat,
responses) and Anthropic (messages).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

MessageDict = dict[str, Any]

# Of a message: what clients do not send back, or send back differently. See
# `llama_load.loadgen.workloads.openai_messages`, which ignores them, too.
_LEFT_OUT = {
    *("reasoning", "reasoning_content", "thinking", "annotations", "refusal"),
    *("logprobs", "metadata", "id", "timestamp", "created_at", "weight"),
    *("finish_reason", "cache_control", "status", "function_call"),
}
_OTHER_LAYOUT = "its messages have another layout than those of the API"
_TEXT_PARTS = ("text", "input_text", "output_text")


def messages_of(api: str, body: Mapping[str, Any]) -> list[MessageDict] | None:
    """The messages of a request's body; None if this API has none. Raises ValueError: they are not
    understood."""
    try:
        messages = _messages_of(api, body)
    except (AttributeError, TypeError):
        raise ValueError(_OTHER_LAYOUT) from None
    for message in messages or ():
        _check_calls(message)
    return messages


def _messages_of(api: str, body: Mapping[str, Any]) -> list[MessageDict] | None:
    """What is no text, list or object where the API has one raises AttributeError or TypeError."""
    if api == "chat":
        return [_chat_message(message) for message in _objects(body.get("messages"))]
    if api == "messages":
        return _of_messages_api(body)
    if api == "responses":
        return _of_responses_api(body)
    return None


def tools_of(body: Mapping[str, Any]) -> list[Any]:
    """The tools of a request, in the layout of the chat API."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return []
    return [_tool(tool) for tool in tools]


def message_of_answer(api: str, answer: Mapping[str, Any]) -> MessageDict | None:
    """The message in an unstreamed answer of the APIs of messages and responses; None: it has none
    that is understood."""
    try:
        if api == "messages":
            said = _of_blocks({"role": "assistant", "content": answer.get("content")})
        else:
            said = _of_items(answer.get("output"))
    except (ValueError, AttributeError, TypeError):
        return None
    messages = [message for message in said if message["role"] == "assistant"]
    return messages[0] if messages else None


def _check_calls(message: MessageDict) -> None:
    """Raises ValueError: its calls of tools are no list of objects."""
    calls = message.get("tool_calls") or []
    are_calls = isinstance(calls, list)
    if not are_calls or not all(isinstance(call, Mapping) for call in calls):
        raise ValueError(_OTHER_LAYOUT)


def _tool(tool: Any) -> Any:
    """A tool: {"type": "function", "function": {…}}."""
    if not isinstance(tool, Mapping) or isinstance(tool.get("function"), Mapping):
        return tool
    if not tool.get("name"):
        return dict(tool)
    function = {"name": tool["name"]}
    if tool.get("description"):
        function["description"] = tool["description"]
    parameters = tool.get("input_schema", tool.get("parameters"))
    if parameters is not None:
        function["parameters"] = parameters
    return {"type": "function", "function": function}


def _objects(given: Any) -> list[Mapping[str, Any]]:
    if not isinstance(given, list) or not given:
        raise ValueError("it has no list of messages")
    if not all(isinstance(each, Mapping) for each in given):
        raise ValueError("a message of it is no object")
    return given


def _chat_message(message: Mapping[str, Any]) -> MessageDict:
    kept = {
        name: value
        for name, value in message.items()
        if name not in _LEFT_OUT and value not in (None, "", [])
    }
    content = message.get("content")
    if isinstance(content, list):
        kept["content"] = _joined_parts(content)
    kept.setdefault("content", None if kept.get("tool_calls") else "")
    return kept


def _joined_parts(parts: Sequence[Any]) -> Any:
    """A list of texts alone as one text, any other list with its parts in the chat layout."""
    found = [_part(part) for part in parts]
    texts = [part["text"] for part in found if _is_text(part)]
    return "\n".join(texts) if len(texts) == len(found) else found


def _is_text(part: Any) -> bool:
    is_part = isinstance(part, Mapping) and part.get("type") == "text"
    return is_part and isinstance(part.get("text"), str)


def _part(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    kind = part.get("type")
    if kind in _TEXT_PARTS:
        return {"type": "text", "text": part.get("text")}
    if kind == "input_image":
        return {"type": "image_url", "image_url": {"url": part.get("image_url")}}
    source = part.get("source")
    if kind == "image" and isinstance(source, Mapping):
        url = source.get("url")
        if source.get("type") == "base64":
            url = f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "image_url", "image_url": {"url": url}}
    return dict(part)


# ---------------------------------------------------------------------- /v1/messages


def _of_messages_api(body: Mapping[str, Any]) -> list[MessageDict]:
    found: list[MessageDict] = []
    system = body.get("system")
    if system:
        text = system if isinstance(system, str) else _joined_parts(system)
        found.append({"role": "system", "content": text})
    for message in _objects(body.get("messages")):
        found += _of_blocks(message)
    return found


def _of_blocks(message: Mapping[str, Any]) -> list[MessageDict]:
    """A message of blocks: its results of tools are messages of their own."""
    role = str(message.get("role"))
    content = message.get("content")
    if not isinstance(content, list):
        return [{"role": role, "content": content}]
    results: list[MessageDict] = []
    calls: list[MessageDict] = []
    parts: list[Any] = []
    for block in content:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "tool_result":
            results.append(_result(block.get("tool_use_id"), block.get("content")))
        elif kind == "tool_use":
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            calls.append(_call(block.get("id"), block.get("name"), arguments))
        elif kind not in ("thinking", "redacted_thinking"):
            parts.append(block)
    own: MessageDict = {
        "role": role,
        "content": _joined_parts(parts) if parts else None,
    }
    if calls:
        own["tool_calls"] = calls
    return [*results, own] if parts or calls else results


def _result(call_id: Any, content: Any) -> MessageDict:
    text = _joined_parts(content) if isinstance(content, list) else content
    if not isinstance(text, str | list):
        text = "" if text is None else json.dumps(text, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _call(call_id: Any, name: Any, arguments: Any) -> MessageDict:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


# ---------------------------------------------------------------------- /v1/responses


def _of_responses_api(body: Mapping[str, Any]) -> list[MessageDict]:
    if body.get("previous_response_id"):
        raise ValueError("its history is on the server (previous_response_id)")
    found: list[MessageDict] = []
    if body.get("instructions"):
        found.append({"role": "system", "content": body["instructions"]})
    given = body.get("input")
    if isinstance(given, str):
        return [*found, {"role": "user", "content": given}]
    return [*found, *_of_items(_objects(given))]


def _of_items(items: Any) -> list[MessageDict]:
    found: list[MessageDict] = []
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, Mapping):
            continue
        kind = item.get("type", "message")
        if kind == "message":
            content = item.get("content")
            text = _joined_parts(content) if isinstance(content, list) else content
            found.append({"role": str(item.get("role")), "content": text})
        elif kind == "function_call":
            name = item.get("name")
            call = _call(item.get("call_id"), name, item.get("arguments"))
            last = found[-1] if found else {}
            if last.get("role") == "assistant":
                last.setdefault("tool_calls", []).append(call)
            else:
                answer = {"role": "assistant", "content": None, "tool_calls": [call]}
                found.append(answer)
        elif kind == "function_call_output":
            found.append(_result(item.get("call_id"), item.get("output")))
        elif kind != "reasoning":
            found.append({"role": str(kind), "content": None})
    return found
