"""What a server's errors say: the class and message of an answer with an error, in its status or in
its stream."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from llama_load.failure_kind import FailureKind
from llama_load.foreign_json import decode_foreign
from llama_load.foreign_text import printable

# A valid count in a server's JSON; anything else makes the document invalid.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]

LONGEST_MESSAGE = 300
MOST_INFLATED_BYTES = 64 * 1024
_CONTEXT = re.compile(
    r"context (length|size|window)|exceeds? the (available )?context|maximum context",
    re.IGNORECASE,
)


def http_failure(
    status: int, body: bytes, headers: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """Class and message of an answer with a status outside 2xx. Header names are in lower case."""
    headers = headers or {}
    if 300 <= status < 400 and "location" in headers:
        return (
            f"http_{status}",
            f"HTTP {status}: redirected to {headers['location']}; redirects are not followed, "
            "correct --host",
        )
    if "gzip" in headers.get("content-encoding", "") or "deflate" in headers.get(
        "content-encoding", ""
    ):
        body = _inflated(body)
    message = describe_error(body)
    text = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    if status in (429, 503):
        return FailureKind.OVERLOADED, text
    if status == 400 and _context_exceeded(body, message):
        return FailureKind.CONTEXT_EXCEEDED, text
    return f"http_{status}", text


def page_status(status: int, value: object) -> int:
    """The status of a control page with this JSON: some servers answer 200, with an error in the
    body, on paths that they do not have (LM Studio) or with a key that they refuse."""
    if status != 200 or not isinstance(value, dict):
        return status
    error = value.get("error")
    if not error and value.get("success") is not False:
        return status
    inner = error if isinstance(error, dict) else {}
    for code in (inner.get("code"), inner.get("status"), value.get("code")):
        text = str(code)
        if re.fullmatch(r"[45]\d\d", text, re.ASCII):
            return int(text)
    return 404


def event_failure(message: str) -> tuple[str, str]:
    """Class and message of an error event in a stream."""
    if _CONTEXT.search(message):
        return FailureKind.KV_POOL_FULL, f"during the answer: {message}"
    return FailureKind.ERROR_EVENT, message


def context_numbers(body: bytes) -> tuple[int | None, int | None]:
    """Tokens of the prompt and of the context, from the error of a prompt that does not fit; None
    where not reported.

    llama-server has fields for both, vLLM and llama-cpp-python a sentence.
    """
    try:
        refusal = decode_foreign(body, _Refusal).error
    except ValueError:
        return None, None
    if refusal.n_prompt_tokens is not None:
        return refusal.n_prompt_tokens, refusal.n_ctx
    context = re.search(r"context length is (\d{1,15})\b", refusal.message)
    prompt = re.search(
        r"\b(\d{1,15}) (?:input tokens|in the messages)|requested (\d{1,15}) tokens",
        refusal.message,
    )
    return _first_number(prompt), _first_number(context)


class _Details(msgspec.Struct):
    message: str = ""
    n_prompt_tokens: Count | None = None
    n_ctx: Count | None = None


class _Refusal(msgspec.Struct):
    error: _Details = msgspec.field(default_factory=_Details)


def _first_number(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    for group in match.groups():
        if group:
            return int(group)
    return None


def _inflated(body: bytes) -> bytes:
    """The decompressed beginning of a body (some proxies compress errors against the request), at
    most 64 KiB."""
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(
            body, MOST_INFLATED_BYTES
        )
    except zlib.error:
        return body


def describe_error(body: bytes) -> str:
    """The message in an error body of any known layout; else the beginning of the body."""
    try:
        value: Any = decode_foreign(body)
    except ValueError:
        value = body.decode("utf-8", "replace")
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and key in value:
            value = value[key]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return printable(" ".join(text.split()), LONGEST_MESSAGE)


def _context_exceeded(body: bytes, message: str) -> bool:
    return (
        b"exceed_context_size_error" in body
        or b'"input_tokens"' in body
        or bool(_CONTEXT.search(message))
    )
