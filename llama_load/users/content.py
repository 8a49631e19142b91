"""What a prompt looks like in a request body, and as one text for hashes and lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from llama_load.workloads.prompt import Image, Message, Prompt

Messages = Sequence[Mapping[str, Any]]
Content = str | Messages | Sequence[str]


def chat_content(prompt: Prompt, history: Sequence[Message], prefix: str) -> str | Messages:
    """A user's message after a history: a text if it is nothing but that, else a list of messages.

    `prefix` goes before the first text of all. Images come before the text, as most chat templates want them.
    """
    if not history and not prompt.images:
        return prefix + prompt.text
    texts = [*(message.text for message in history), prompt.text]
    texts[0] = prefix + texts[0]
    messages: list[Mapping[str, Any]] = [
        {"role": message.role, "content": text} for message, text in zip(history, texts, strict=False)
    ]
    content = [*map(_image_part, prompt.images), {"type": "text", "text": texts[-1]}] if prompt.images else texts[-1]
    return [*messages, {"role": "user", "content": content}]


def prefixed(content: str | Messages, prefix: str) -> str | Messages:
    """Content that a locustfile wrote, with `prefix` before its first text."""
    if not prefix or not content:
        return content
    if isinstance(content, str):
        return prefix + content
    first = content[0]
    return [{**first, "content": prefix + first["content"]}, *content[1:]] if isinstance(first.get("content"), str) else content


def plain(content: Content, images: Sequence[Image] = ()) -> str:
    """The content as one text: itself, the inputs line by line, or the messages as JSON with digests in place of images."""
    if isinstance(content, str):
        return content
    if all(isinstance(part, str) for part in content):
        return "\n".join(map(str, content))
    if images:
        digests = {image.data_url: f"sha256:{image.sha256}" for image in images}
        content = [_without_data(message, digests) for message in content if isinstance(message, Mapping)]
    return msgspec.json.encode(content).decode()


def _image_part(image: Image) -> Mapping[str, Any]:
    return {"type": "image_url", "image_url": {"url": image.data_url}}


def _without_data(message: Mapping[str, Any], digests: Mapping[str, str]) -> Mapping[str, Any]:
    parts = message["content"]
    if isinstance(parts, str):
        return message
    shown = [
        {"type": "image_url", "image_url": digests[part["image_url"]["url"]]} if "image_url" in part else part for part in parts
    ]
    return {**message, "content": shown}
