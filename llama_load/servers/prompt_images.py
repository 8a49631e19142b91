"""Images in prompts: their names in place of their data, and prompts with a tiny image in place of
each, for questions in which only the places of images matter."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

TEXT = "text"
IMAGE = "image"
OTHER = "part"
# Data of fewer characters stays as it is.
MOST_CHARS = 256
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
# In the APIs of chat, messages and responses. What other parts are called is a client's text, which
# a digest does not hold.
_KINDS = {
    **dict.fromkeys((TEXT, "input_text", "output_text"), TEXT),
    **dict.fromkeys((IMAGE, "image_url", "input_image"), IMAGE),
    **dict.fromkeys(("input_audio", "audio_url"), "audio"),
    "video_url": "video",
    **dict.fromkeys(("file", "input_file", "document"), "file"),
}


def kind_of(part: Any) -> str:
    """What a part of a message's content is: a text, an image, …"""
    kind = part.get("type") if isinstance(part, Mapping) else None
    return _KINDS.get(kind, OTHER) if isinstance(kind, str) else OTHER


def with_names(value: Any) -> Any:
    """A value of JSON with digests in place of data URLs and of base64 data."""
    if isinstance(value, Mapping):
        return {key: _with_name(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_name(each, "") for each in value]
    return value


def _with_name(value: Any, key: str) -> Any:
    if not isinstance(value, str):
        return with_names(value)
    is_data = value.startswith("data:") or key == "data"
    if is_data and len(value) > MOST_CHARS:
        return f"sha256:{_sha256(value)}"
    return value


def image_names(messages: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """A name for each image of these messages, in the layout of the chat API. None: they have other
    parts besides images and texts."""
    names = []
    for message in messages:
        for part in _content_parts(message):
            kind = kind_of(part)
            if kind == IMAGE:
                names.append(_sha256(json.dumps(with_names(part))))
            elif kind != TEXT:
                return None
    return names


def with_pixels(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """These messages with one pixel in place of each image."""
    found = []
    for message in messages:
        own = dict(message)
        if _content_parts(message):
            own["content"] = [_with_pixel(part) for part in _content_parts(message)]
        found.append(own)
    return found


def _with_pixel(part: Any) -> Any:
    if kind_of(part) != IMAGE:
        return part
    return {"type": "image_url", "image_url": {"url": PIXEL}}


def _content_parts(message: Mapping[str, Any]) -> Sequence[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else ()


def _sha256(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()
