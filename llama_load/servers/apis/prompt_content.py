"""The content of a request: a prompt as it stands in the body, and as one text.

The text is for hashes and lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from llama_load.outside.foreign_json import decode_foreign
from llama_load.servers.prompt import Image, Message, Prompt

# A JSON object of a request.
Fields = Mapping[str, object]
Messages = Sequence[Fields]
Content = str | Messages | Sequence[str]


def in_one_text(prompt: Prompt, history: Sequence[Message], prefix: str) -> str:
    """The prompt for an API without a chat template: a history is text, too."""
    return prefix + "\n\n".join(message.text for message in (*history, *prompt.added))


def conversation(
    prompt: Prompt, history: Sequence[Message], prefix: str
) -> str | Messages:
    """The content of a turn: a list of messages, or a text.

    A text if it is a user's and there is nothing else, no history and no images.

    `prefix` goes before everything else: servers cache images too. Images come before the text, as
    most chat templates expect; each is a placeholder that `with_images` replaces.
    """
    messages = (*history, *prompt.added)
    if len(messages) == 1 and messages[0].role == "user" and not messages[0].images:
        return prefix + messages[0].text
    return prefixed([as_sent(message) for message in messages], prefix)


def as_sent(message: Message) -> dict[str, Any]:
    """A message as the chat API takes it."""
    sent: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.calls and not message.text:
        sent["content"] = None  # a message of tool calls alone has no content

    if message.images:
        parts = []
        for image in message.images:
            parts.append({"type": "image_url", "image_url": {"url": _name_of(image)}})
        sent["content"] = [*parts, {"type": "text", "text": message.text}]

    if message.calls:
        calls = []
        for call in message.calls:
            function = {"name": call.name, "arguments": call.arguments}
            calls.append({"id": call.id, "type": "function", "function": function})
        sent["tool_calls"] = calls
    if message.call_id is not None:
        sent["tool_call_id"] = message.call_id
    if message.name is not None:
        sent["name"] = message.name
    return sent


def images_of(messages: Sequence[Message]) -> tuple[Image, ...]:
    """The images of messages, in the order in which they are sent."""
    images: list[Image] = []
    for message in messages:
        images += message.images
    return tuple(images)


def as_messages(content: Content) -> list[Any]:
    """The content as messages: a text is a user's."""
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    return list(content)


def prefixed(content: str | Messages, prefix: str) -> str | Messages:
    """Content with `prefix` before its first text or image."""
    if not prefix or not content:
        return content
    if isinstance(content, str):
        return prefix + content

    first = content[0]
    body = first.get("content")
    if isinstance(body, str):
        return [{**first, "content": prefix + body}, *content[1:]]
    if isinstance(body, list):
        parts = [{"type": "text", "text": prefix}, *body]
        return [{**first, "content": parts}, *content[1:]]
    return content


def as_text(content: Content) -> str:
    """The content as one text: itself, the inputs line by line, or the messages as JSON.

    Of images their digest.
    """
    if isinstance(content, str):
        return content
    if all(isinstance(part, str) for part in content):
        return "\n".join(map(str, content))
    return msgspec.json.encode(content).decode()


def kept_as_messages(text: str) -> str:
    """A kept prompt (`prompt_text`) as JSON of its messages, without the last bracket: a first
    question alone is kept as a text."""
    if text.startswith('[{"role"'):
        return text.removesuffix("]")
    return as_text(as_messages(text)).removesuffix("]")


def kept_messages(text: str) -> list[dict[str, Any]] | None:
    """The messages of a kept prompt (`prompt_text`); None: it is no such text."""
    encoded = (kept_as_messages(text) + "]").encode("utf-8", "surrogatepass")
    try:
        return decode_foreign(encoded, list[dict[str, Any]])
    except ValueError:
        return None


def with_images(encoded: bytes, images: Sequence[Image]) -> tuple[bytes, ...]:
    """An encoded body in pieces, with each image's data URL in place of its placeholder.

    Copying megabytes instead would block the event loop, and so all streams, for some ms per image.
    """
    pieces = []
    rest = encoded
    for image in images:
        before, _, rest = rest.partition(_name_of(image).encode())
        pieces += [before, image.data_url]
    return (*pieces, rest)


def _name_of(image: Image) -> str:
    return f"sha256:{image.sha256}"
