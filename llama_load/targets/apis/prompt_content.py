"""The content of a request: a prompt as it stands in the body, and as one text for hashes and lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from llama_load.workloads.prompt import Image, Message, Prompt

# A JSON object of a request.
Fields = Mapping[str, object]
Messages = Sequence[Fields]
Content = str | Messages | Sequence[str]


def in_one_text(prompt: Prompt, history: Sequence[Message], prefix: str) -> str:
    """The prompt for an API without a chat template: a history is text, too."""
    return prefix + "\n\n".join(message.text for message in (*history, *prompt.added))


def conversation(prompt: Prompt, history: Sequence[Message], prefix: str) -> str | Messages:
    """What a turn adds to a history: a text if it is a user's and there is nothing else, otherwise a list of messages.

    `prefix` goes before everything else: servers cache images too. Images come before the text, as most chat templates expect;
    each is a placeholder that `with_images` replaces.
    """
    messages = (*history, *prompt.added)
    if len(messages) == 1 and messages[0].role == "user" and not messages[0].images:
        return prefix + messages[0].text
    return prefixed([_as_sent(message) for message in messages], prefix)


def _as_sent(message: Message) -> dict[str, Any]:
    """A message as the chat API takes it."""
    sent: dict[str, Any] = {"role": message.role, "content": message.text or None if message.calls else message.text}
    if message.images:
        images = [{"type": "image_url", "image_url": {"url": _name_of(image)}} for image in message.images]
        sent["content"] = [*images, {"type": "text", "text": message.text}]
    if message.calls:
        sent["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    if message.call_id is not None:
        sent["tool_call_id"] = message.call_id
    if message.name is not None:
        sent["name"] = message.name
    return sent


def images_of(messages: Sequence[Message]) -> tuple[Image, ...]:
    """The images of messages, in the order in which they are sent."""
    return tuple(image for message in messages for image in message.images)


def as_messages(content: Content) -> list[Any]:
    """The content as messages: a text is a user's."""
    return [{"role": "user", "content": content}] if isinstance(content, str) else list(content)


def prefixed(content: str | Messages, prefix: str) -> str | Messages:
    """Content with `prefix` before its first text or image."""
    if not prefix or not content:
        return content
    if isinstance(content, str):
        return prefix + content
    first, body = content[0], content[0].get("content")
    if isinstance(body, str):
        return [{**first, "content": prefix + body}, *content[1:]]
    return [{**first, "content": [{"type": "text", "text": prefix}, *body]}, *content[1:]] if isinstance(body, list) else content


def as_text(content: Content) -> str:
    """The content as one text: itself, the inputs line by line, or the messages as JSON (images by their digest)."""
    if isinstance(content, str):
        return content
    if all(isinstance(part, str) for part in content):
        return "\n".join(map(str, content))
    return msgspec.json.encode(content).decode()


def with_images(encoded: bytes, images: Sequence[Image]) -> tuple[bytes, ...]:
    """An encoded body in pieces, with each image's data URL in place of its placeholder. Copying megabytes instead would block the
    event loop, and so all streams, for some ms per image."""
    pieces, rest = [], encoded
    for image in images:
        before, _, rest = rest.partition(_name_of(image).encode())
        pieces += [before, image.data_url]
    return (*pieces, rest)


def _name_of(image: Image) -> str:
    return f"sha256:{image.sha256}"
