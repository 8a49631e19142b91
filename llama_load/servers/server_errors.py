"""What a server's errors say: the class and message of an answer with an error, in its status or in
its stream."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from llama_load.ground.failure_kind import FailureKind
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import printable

# A valid count in a server's JSON; anything else makes the document invalid.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]

LONGEST_MESSAGE = 300
MOST_INFLATED_BYTES = 64 * 1024
# An error may be in a text in an error; relays nest them in this way.
MOST_LEVELS = 8
# Where errors have their words, the outermost first. The words of a provider behind a router are
# in `raw`.
_PLACES = (
    "error",
    "errors",
    "detail",
    "details",
    "raw",
    "message",
    "msg",
    "error_message",
    "errorMessage",
    "error_msg",
    "base_resp",
    "status_msg",
    "data",
    "exception",
    "fault",
    "reason",
)
# Of these, the ones that a chunk without an error does not have.
_SIGNS = frozenset(
    (
        "error",
        "errors",
        "error_code",
        "error_message",
        "errorMessage",
        "error_msg",
        "exception",
        "fault",
        "detail",
    )
)
_FAULT = re.compile(
    r"error|exception|fail|fatal|traceback|exhausted|out of memory|unavailable|overloaded|"
    r"timed? ?out|refused|denied|forbidden|unauthorized|not found|bad gateway|too many|exceed|"
    r"disconnect",
    re.IGNORECASE,
)
_TITLE = re.compile(r"<title>([^<]*)</title>", re.IGNORECASE)
_LAST_OF_TRACEBACK = re.compile(r"\ATraceback .*\n(?=\S)", re.DOTALL)
# Classes by the words of an error or by its codes, the first that fits.
_POOL = r"kv[ _-]?(cache|pool)[^.]{0,40}(exhaust|full|out of|no )|no free (kv|slot)"
_CONTEXT = (
    r"context[ _-]?(length|size|window|limit|overflow|is full)|"
    r"exceeds? (the )?(available )?context|exceed_context_size|"
    r"max(imum)? (context|input|prompt)|(prompt|input) is too long|"
    r"too many (input |prompt )?tokens|exceeds? the (max|limit of)[^.]{0,30}tokens|"
    r"max_new_tokens. must|reduce the length"
)
_QUOTA = (
    r"quota|billing|\bcredits?\b|balance|payment|arrear|"
    r"(spend|usage|request|token)[a-z]{0,20}[ _]limit|rate[ _-]?limit|"
    r"(requests|tokens) per (second|min|hour|day)|\b[RT]P[MDS]\b|余额|欠费|限流|配额"
)
_OVERLOAD = (
    r"overload|too many (concurrent )?requests|(server|model|engine|system)[a-z ]{0,12} busy|"
    r"queue (is |was )?(full|length|limit)|(over|at|out of|insufficient|no) capacity|"
    r"temporarily unavailable|service.?unavailable|no (healthy|available|ready) [a-z]+|"
    r"insufficient_system_resource|loading model|model is (currently |still )?loading|繁忙|过载|"
    r'"(code|status)": ?"?(429|503|529)\b'
)
_CLASSES = (
    (re.compile(_POOL, re.IGNORECASE), FailureKind.KV_POOL_FULL),
    (re.compile(_CONTEXT, re.IGNORECASE), FailureKind.CONTEXT_EXCEEDED),
    (re.compile(_QUOTA, re.IGNORECASE), FailureKind.QUOTA_EXCEEDED),
    (re.compile(_OVERLOAD, re.IGNORECASE), FailureKind.OVERLOADED),
)
# What a status says where the words do not, and the classes that its words may say.
_OF_STATUS = {
    402: FailureKind.QUOTA_EXCEEDED,
    429: FailureKind.OVERLOADED,
    503: FailureKind.OVERLOADED,
    529: FailureKind.OVERLOADED,
}
_SAID_BY_STATUS = {
    FailureKind.CONTEXT_EXCEEDED: (400, 413, 422, 500),
    FailureKind.QUOTA_EXCEEDED: (402, 403, 429),
}


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
    encoding = headers.get("content-encoding", "")
    if "gzip" in encoding or "deflate" in encoding:
        body = _inflated(body)
    message = describe_error(body)
    text = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    said = _class_said(_looked_through(body))
    if status == 400 and b'"input_tokens"' in body:
        said = FailureKind.CONTEXT_EXCEEDED
    if said is not None and status in _SAID_BY_STATUS.get(said, ()):
        return said, text
    return _OF_STATUS.get(status, f"http_{status}"), text


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


def event_failure(body: bytes, *, generated: bool) -> tuple[str, str]:
    """Class and message of an error in an answer of status 200. `generated`: tokens came before
    it."""
    message = describe_error(body)
    kind = _class_said(_looked_through(body)) or FailureKind.ERROR_EVENT
    if generated and kind == FailureKind.CONTEXT_EXCEEDED:
        kind = FailureKind.KV_POOL_FULL
    if generated and kind == FailureKind.KV_POOL_FULL:
        message = f"during the answer: {message}"
    return kind, message


def _class_said(words: str) -> FailureKind | None:
    for pattern, kind in _CLASSES:
        if pattern.search(words):
            return kind
    return None


def _looked_through(body: bytes) -> str:
    """An error with its codes, as far as it is looked through."""
    return body[: 4 * LONGEST_MESSAGE].decode("utf-8", "replace")


def has_error(document: object) -> bool:
    """Whether this JSON document of status 200 is an error: by its names, or by its type."""
    if not isinstance(document, dict):
        return False
    if "error" in (
        document.get("type"),
        document.get("object"),
        document.get("status"),
    ):
        return True
    if document.get("success") is False or any(map(document.get, _SIGNS)):
        return True
    base = document.get("base_resp")
    return isinstance(base, dict) and bool(base.get("status_code"))


def sounds_like_error(text: str) -> bool:
    """Whether a text that is no chunk names a fault."""
    return _FAULT.search(text) is not None


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
    """The message in an error body of any known layout; else the beginning of the body.

    Of a page its title, of a traceback its last line.
    """
    try:
        value: Any = decode_foreign(body)
    except ValueError:
        value = body.decode("utf-8", "replace")
    said = value
    for _ in range(MOST_LEVELS):
        deeper = _deeper(said)
        if deeper is None:
            break
        said = deeper
    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    if title := _TITLE.search(text):
        text = title[1]
    text = _LAST_OF_TRACEBACK.sub("", text)
    return printable(" ".join(text.split()), LONGEST_MESSAGE)


def _deeper(said: Any) -> Any:
    """What an error holds, one level deeper; None at its words."""
    if isinstance(said, dict):
        metadata = said.get("metadata")
        if isinstance(metadata, dict) and metadata.get("raw"):
            return metadata["raw"]
        for name in _PLACES:
            if said.get(name):
                return said[name]
    if isinstance(said, list) and said and not _names_a_field(said[0]):
        return said[0]
    if isinstance(said, str) and said.lstrip().startswith("{"):
        with suppress(ValueError):
            return decode_foreign(said.encode("utf-8", "surrogatepass"))
    return None


def _names_a_field(said: Any) -> bool:
    """Whether it is one of FastAPI's faults of a request, whose place is a part of the message."""
    return isinstance(said, dict) and "loc" in said
