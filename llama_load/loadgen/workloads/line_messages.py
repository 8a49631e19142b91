"""Lines of data files in any layout, as messages: prompts, prompts with answers, turns, requests of
batch files, conversations.

What is not understood is refused by name (see `line_fields`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.data_files import (
    ASSISTANT,
    ROLES_OF_SPEAKERS,
    SYSTEM,
    USER,
)
from llama_load.loadgen.workloads.line_fields import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    SAMPLING,
    Fields,
    count_of,
    line_fields,
    message_fields,
    trace_fields,
)
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import printable

# Of a message: its answer is not in the file, and comes before the next message.
ASKS = "asks"
# Lists of messages, of which a line has one.
_LISTS = ("messages", "turns", "exchange")
# The line's own texts, of which messages are made.
_TEXTS = ("messages", "turns", "exchange", "prompt", "context", "system", "reply")


def read_line(given: Mapping[str, Any], where: str, fields: Fields) -> dict[str, Any]:
    """What is read of a line, under our names; its texts are `messages`, each of them under our
    names, too. UsageError: it has no question, or something that is not understood."""
    line = _unwrapped(fields.read(given, where), where)
    _refuse_times(line, where)
    messages = _messages_of(line, where)
    if not messages:
        raise UsageError(_no_question(given, where))
    if images := line.pop("images", None):
        roles = [message.get("role") for message in messages]
        first = roles.index(USER) if USER in roles else 0
        messages[first] = _with_images(messages[first], images)
    kept = {name: value for name, value in line.items() if name not in _TEXTS}
    kept["messages"] = messages
    if OUTPUT_TOKENS in kept:
        kept[OUTPUT_TOKENS] = count_of(kept[OUTPUT_TOKENS], OUTPUT_TOKENS, where)
    single = {name: kept.pop(name) for name in SAMPLING if name in kept}
    sampling = kept.get("sampling", {})
    if single and isinstance(sampling, Mapping):
        kept["sampling"] = {**sampling, **single}
    return kept


def _unwrapped(line: dict[str, Any], where: str) -> dict[str, Any]:
    """The line with the request in it (of a batch file) in its place."""
    body = line.pop("body", None)
    if isinstance(line.get("context"), Mapping):  # OpenAI's files of preferences
        body = line.pop("context")
    if isinstance(body, str):
        body = _decoded(body, where)
    if body is None:
        return line
    if not isinstance(body, Mapping):
        raise UsageError(f"{where} has a body that is no object")
    inner = _unwrapped(line_fields().read(body, f"the body of {where}"), where)
    for name in _TEXTS:
        if name in line and name in inner and line[name] != inner[name]:
            raise UsageError(_two_texts(where, f"{name} beside those of its body"))
    return {**line, **inner}


def _two_texts(where: str, which: str) -> str:
    return f"{where} has {which}: name what is to be sent with --columns, such as messages=messages"


def _refuse_times(line: dict[str, Any], where: str) -> None:
    """A date describes a line. UsageError: a number is when it is to be sent."""
    at = line.pop("time", None)
    if isinstance(at, int | float):
        raise UsageError(
            f"{where} has the timestamp {at:g}: texts are not sent at recorded times; send the "
            "lengths at their times with replay.py and --trace, or name what is to be sent with "
            "--columns, such as prompt=text"
        )
    if "delay" in line:
        raise UsageError(
            f"{where} has a delay, which only turns of a conversation have: remove it"
        )


def _messages_of(line: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """The messages that a line's texts are."""
    prompt = line.get("prompt", line.get("context"))
    messages = _listed_messages(line, where)
    if not messages and isinstance(prompt, list):
        messages = _conversation(prompt, where)
    elif messages and prompt is not None:
        _refuse_other_prompt(prompt, messages, where)
    elif not messages and prompt is not None:
        if not isinstance(prompt, str):
            raise UsageError(f"{where} has a prompt that is no text")
        parts = [prompt]
        if "prompt" in line and "context" in line:
            parts.append(_text_or_refuse(line["context"], "context", where))
        if any(map(str.strip, parts)):
            messages = [{"role": USER, "content": "\n\n".join(parts)}]
    if not messages:
        return []
    system = line.get("system")
    if system is not None and messages[0]["role"] != SYSTEM:
        text = _text_or_refuse(system, "system prompt", where)
        messages.insert(0, {"role": SYSTEM, "content": text})
    reply = line.get("reply")
    if isinstance(reply, list):
        messages += _conversation(reply, where)
    elif isinstance(reply, str) and messages[-1]["role"] != ASSISTANT:
        messages.append({"role": ASSISTANT, "content": reply})
    return messages


def _listed_messages(line: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """The messages of a line that has a list of them."""
    found = []
    for name in _LISTS:
        value = line.get(name)
        if value is not None and (name != "turns" or isinstance(value, list)):
            found.append(name)
    if not found:
        return []
    if len(found) > 1:
        raise UsageError(_two_texts(where, " and ".join(found)))
    (name,) = found
    if name == "turns":
        return list(_turns(line[name], where))
    return _conversation(line[name], where)


def _conversation(given: Any, where: str) -> list[dict[str, Any]]:
    """A list of messages, or of texts; without any role, users and the assistant take turns."""
    if isinstance(given, str):
        given = _decoded(given, where)
    if not isinstance(given, list):
        raise UsageError(
            f'{where} needs a list of messages, {{"role", "content"}} each'
        )
    fields = message_fields()
    messages: list[dict[str, Any]] = []
    for number, message in enumerate(given, start=1):
        place = f"{where}, message {number}"
        if isinstance(message, str):
            message = {"content": message}
        if not isinstance(message, Mapping):
            raise UsageError(f"{place} is not an object with role and content")
        read = fields.read(message, place)
        if "delay" in read:
            raise UsageError(
                f"{place} has a delay without a unit: write seconds as delay_s"
            )
        messages.append(_with_role(read))
    if not any("role" in message for message in messages):
        for number, message in enumerate(messages):
            message["role"] = ASSISTANT if number % 2 else USER
    return messages


def _turns(given: list[Any], where: str) -> Iterator[dict[str, Any]]:
    """Questions of a user, one after the other: texts, or aiperf's turns, whose delays are in
    ms."""
    fields = message_fields()
    for number, turn in enumerate(given, start=1):
        place = f"{where}, turn {number}"
        if isinstance(turn, str):
            turn = {"content": turn}
        if not isinstance(turn, Mapping):
            raise UsageError(f"{place} is neither a text nor an object with one")
        if isinstance(turn.get("timestamp"), int | float):
            raise UsageError(
                f"{place} has a timestamp: turns follow each other, each after its delay; "
                "remove it"
            )
        read = {"role": USER, **_with_role(fields.read(turn, place))}
        if "delay" in read:
            read["delay_s"] = _seconds(read.pop("delay"), place)
        if read["role"] == USER:
            read[ASKS] = True
        yield read


def _with_role(message: dict[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if isinstance(role, str):
        message["role"] = ROLES_OF_SPEAKERS.get(role.lower(), role)
    images = message.pop("images", None)
    if images is None:
        return message
    return _with_images(message, images)


def _with_images(message: dict[str, Any], images: Any) -> dict[str, Any]:
    """The message with these images behind its text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [_text_part(content or "")]
    for image in images if isinstance(images, list) else [images]:
        url = image if isinstance(image, Mapping) else {"url": image}
        parts = [*parts, {"type": "image_url", "image_url": url}]
    return {**message, "content": parts}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _refuse_other_prompt(
    prompt: Any, messages: list[dict[str, Any]], where: str
) -> None:
    """UltraChat has the first question beside the messages."""
    if all(message.get("content") != prompt for message in messages):
        raise UsageError(_two_texts(where, "a prompt beside its messages"))


def _no_question(given: Mapping[str, Any], where: str) -> str:
    """Why this line cannot be sent, and what can."""
    names = (
        ", ".join(printable(repr(name), 60) for name in list(given)[:12]) or "nothing"
    )
    try:
        lengths = trace_fields().read(given, where)
    except UsageError:
        lengths = {}
    if INPUT_TOKENS in lengths:
        return (
            f"{where} has no question, but lengths: it is a row of a trace, which "
            "locustfiles/replay.py sends (--trace FILE)"
        )
    return (
        f'{where} has no question: it needs a "prompt", "messages" or "turns", and has {names}; '
        "name the column with --columns prompt=NAME"
    )


def _decoded(text: str, where: str) -> Any:
    """JSON in a text, as CSV files have it."""
    try:
        return decode_foreign(text.encode())
    except ValueError as error:
        raise UsageError(f"{where} has a text in the place of JSON: {error}") from None


def _text_or_refuse(value: Any, what: str, where: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where} has a {what} that is no text")
    return value


def _seconds(ms: Any, where: str) -> float:
    if isinstance(ms, bool) or not isinstance(ms, int | float) or not ms >= 0:
        raise UsageError(
            f"{where} has the delay {printable(repr(ms), 60)}; it must be ms, 0 or more"
        )
    return ms / 1000
