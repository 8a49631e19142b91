"""Failure classes of answers that are complete HTTP, but no answer.

    context_exceeded   the prompt does not fit the context
    overloaded         429 or 503
    http_<status>      any other status outside 2xx
    error_event        the stream carried an error
    bad_event          an event is no valid JSON chunk
    no_stream          2xx, but not an event stream, or a compressed one
    cut_off            the stream ended without a finish_reason
    empty_answer       the stream ended well, without a token

Failures of the wire are in `llama_load.wire.errors`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

LONGEST_MESSAGE = 300
MOST_INFLATED_BYTES = 64 * 1024
_CONTEXT = re.compile(r"context (length|size|window)|exceeds? the (available )?context|maximum context", re.IGNORECASE)


def http_failure(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Class and sentence for an answer with a status outside 2xx. Header names are in lower case."""
    headers = headers or {}
    if 300 <= status < 400 and "location" in headers:
        return f"http_{status}", f"HTTP {status}: redirected to {headers['location']}; redirects are not followed, correct --host"
    if "gzip" in headers.get("content-encoding", "") or "deflate" in headers.get("content-encoding", ""):
        body = _inflated(body)
    message = describe_error(body)
    text = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    if status in (429, 503):
        return "overloaded", text
    if status == 400 and _context_exceeded(body, message):
        return "context_exceeded", text
    return f"http_{status}", text


def _inflated(body: bytes) -> bytes:
    """The beginning of a compressed body (proxies compress errors unasked), however large it would become."""
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, MOST_INFLATED_BYTES)
    except zlib.error:
        return body


def describe_error(body: bytes) -> str:
    """The message of an error body, in any of the layouts that servers use; else the beginning of the body."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = body.decode("utf-8", "replace")
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and key in value:
            value = value[key]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + "…"


def _context_exceeded(body: bytes, message: str) -> bool:
    return b"exceed_context_size_error" in body or b'"input_tokens"' in body or bool(_CONTEXT.search(message))
