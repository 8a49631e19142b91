"""A prompt as it appears in a request body, and as one text for hashes and lengths."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import gevent
import msgspec

from llama_load.errors import UsageError
from llama_load.targets.body import CHAT, EMBEDDINGS, RERANK, WITH_TEMPLATE
from llama_load.workloads.prompt import Image, Message, Prompt

Messages = Sequence[Mapping[str, Any]]
# Hashing this much takes 0.1 ms.
LONG_CHARS = 32_768

Content = str | Messages | Sequence[str]


def content_of(prompt: str | Messages | Prompt, endpoint: str, history: Sequence[Message], prefix: str) -> Content:
    """The content for this endpoint, from a workload's prompt or the locustfile's own; `prefix` goes in front. UsageError,
    a message without a subject: the endpoint does not accept such content."""
    if endpoint == RERANK:
        return _query_and_documents(prompt, prefix)
    if not isinstance(prompt, Prompt):
        return _prefixed(prompt, prefix)
    if endpoint == EMBEDDINGS:
        return [prefix + text for text in prompt.inputs or (prompt.text,)]
    if prompt.inputs:
        raise UsageError("brings batches of texts: write self.embed() or self.rerank() in the task")
    messages = (*history, *prompt.added)
    if endpoint != CHAT and any(message.images for message in messages):
        raise UsageError("sends images, for which only the chat endpoint is supported")
    if endpoint != CHAT and any(message.calls or message.call_id for message in messages):
        raise UsageError("sends tool calls and their results, for which only the chat endpoint is supported")
    if endpoint in WITH_TEMPLATE:
        return _chat_content(messages, prefix)
    return prefix + "\n\n".join(message.text for message in messages)  # a history is text too


def _query_and_documents(prompt: str | Messages | Prompt, prefix: str) -> Sequence[str]:
    if not isinstance(prompt, Prompt) or not prompt.text or not prompt.inputs:
        raise UsageError("brings no query with documents: use locustfiles/rerank.py, or write self.rerank(query, documents)")
    return [prefix + prompt.text, *prompt.inputs]


def _chat_content(messages: Sequence[Message], prefix: str) -> str | Messages:
    """The messages: a text if there is only a user's one without images, otherwise as the API takes them.

    `prefix` goes before everything else: servers cache images too. Images come before the text, as most chat templates expect;
    each is a placeholder that `with_images` replaces.
    """
    if len(messages) == 1 and messages[0].role == "user" and not messages[0].images:
        return prefix + messages[0].text
    return _prefixed([_as_sent(message) for message in messages], prefix)


def _as_sent(message: Message) -> dict[str, Any]:
    """A message as the chat API takes it."""
    text: str | None = message.text
    sent: dict[str, Any] = {"role": message.role, "content": text or None if message.calls else text}
    if message.images:
        sent["content"] = [*map(_image_part, message.images), {"type": "text", "text": text}]
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


def _prefixed(content: str | Messages, prefix: str) -> str | Messages:
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


def text_digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def in_thread_if_long(function: Callable[..., str], text: str, *rest: str) -> str:
    """`function(text, …)`; for a long text in a thread, so that the event loop is not blocked."""
    arguments = (text, *rest)
    return function(*arguments) if len(text) <= LONG_CHARS else cast(str, gevent.get_hub().threadpool.apply(function, arguments))


def with_images(encoded: bytes, images: Sequence[Image]) -> tuple[bytes, ...]:
    """An encoded body in pieces, with each image's data URL in place of its placeholder. Copying megabytes instead would block the
    event loop, and so all streams, for some ms per image."""
    pieces, rest = [], encoded
    for image in images:
        before, _, rest = rest.partition(_name_of(image).encode())
        pieces += [before, image.data_url]
    return (*pieces, rest)


def _image_part(image: Image) -> Mapping[str, Any]:
    return {"type": "image_url", "image_url": {"url": _name_of(image)}}


def _name_of(image: Image) -> str:
    return f"sha256:{image.sha256}"
