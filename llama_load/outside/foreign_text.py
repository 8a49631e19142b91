"""Sanitizes text from servers, files and peers, and text that may quote a key, before it is stored
or printed.

`printable` is applied where such text enters and again where it is printed. Each output format has
its own escaping: `markdown` and `fence` here, JUnit's in `llama_load.analysis.reports.junit`. All
of them replace known secrets (see `keep_secret`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from llama_load.outside.secret_forms import parts_of_credentials, pattern_of

# The length at which foreign text is cut in tables and messages.
MOST_CHARS = 1000
MASK = "***"
# Shorter "secrets" are placeholders (none, EMPTY, x); masking them would mask ordinary words.
LEAST_SECRET_CHARS = 6
# Names of headers and JSON keys whose values are secret.
_SECRET_NAME = re.compile(
    r"auth|cookie|credential|key|passw|secret|signature|token(?!s|iz)", re.IGNORECASE
)
# Names in which "token" is a piece of text: first-token-ms, token_timeout, stop_token_ids,
# long-prefill-token-threshold, eos_token.
_TEXT_TOKEN = re.compile(
    r"(?<![a-z])(?:first|last|next|per|max|min|stop|bos|eos|pad|unk|image)[-_]?token|"
    r"token[-_]?(?:ms|ids|time|timeout|delay|limit|count|budget|threshold|logprobs?)(?![a-z])",
    re.IGNORECASE,
)

# C0, DEL and C1 control characters, line and paragraph separators, bidirectional marks, embeddings
# and isolates, lone surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Of these, those that JSON may have as they are; its own line ends are no part of its texts.
_OBEYED_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Characters of Markdown markup, including the backslash, which would cancel our escapes.
_MARKUP = re.compile(r"[\\`*\[\]<|~]")
# Lines of servers' verbose logs that quote requests or answers.
_QUOTES_TEXT = re.compile(
    r"""["'\\](?:content|messages|prompt|text|input)["'\\]"""
    r"""|\bprompt: ['"]|\brequest: |\bnext token\b"""
)
_PROMPT = re.compile(r"\bPrompt\b")
_BACKTICKS = re.compile("`{3,}")

# Each with what finds it, the longest first: one secret may be a part of another.
_secrets: dict[str, re.Pattern[str]] = {}


def printable(text: str, most: int | None = MOST_CHARS) -> str:
    """The text on one line, without control and bidirectional characters (each becomes U+FFFD) and
    known secrets, cut after `most` characters."""
    # Cut long texts before the search, far enough behind the final cut that no secret is split.
    if most is not None and len(text) > 8 * most + 4096:
        text = text[: 8 * most + 4096]
    text = _UNPRINTABLE.sub("\ufffd", redacted(text))
    return text if most is None or len(text) <= most else text[:most] + "…"


def printable_lines(text: str) -> str:
    """Our own text of several lines, which may quote foreign text: each line `printable`, uncut."""
    return "\n".join(printable(line, None) for line in text.split("\n"))


def printable_json(value: Any, most: int = MOST_CHARS) -> Any:
    """A JSON value with every text in it `printable`, keys included."""
    if isinstance(value, str):
        return printable(value, most)
    if isinstance(value, dict):
        return {
            printable(str(name), most): printable_json(part, most)
            for name, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [printable_json(part, most) for part in value]
    return value


def escaped_json(text: str) -> str:
    r"""A JSON text with escapes (\u202e) for the characters that a terminal obeys: the same value.

    JSON itself asks for escapes of the first 32 alone.
    """
    if text.isascii() and "\x7f" not in text:  # nearly all of long ones
        return text
    return _OBEYED_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def markdown(text: str) -> str:
    """The text escaped for a line or table cell of Markdown, without markup and HTML."""
    return _MARKUP.sub(
        lambda match: "&lt;" if match[0] == "<" else "\\" + match[0],
        printable(text, None),
    )


def fence(text: str) -> str:
    """The fence of a Markdown code block around the text: longer than any run of backticks in
    it."""
    return "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))


def quotes_text(line: str) -> bool:
    """Whether this line of a server's log may quote a prompt or an answer."""
    if _QUOTES_TEXT.search(line):
        return True
    # as one pattern with what follows, this would take quadratic time
    prompt = _PROMPT.search(line)
    return prompt is not None and ":" in line[prompt.end() :]


# ---------------------------------------------------------------------- secrets


def is_secret_name(name: str) -> bool:
    """Whether a header, JSON key or flag of this name holds a secret: Authorization, X-Api-Key,
    --hf-token; not max_tokens."""
    return _SECRET_NAME.search(_TEXT_TOKEN.sub("", name)) is not None


def keep_secret(values: Iterable[str]) -> None:
    """From now on replace these values in everything printed, logged or written."""
    global _secrets  # noqa: PLW0603 - one set of secrets per process
    known = dict(_secrets)
    for value in values:
        for part in parts_of_credentials(value):
            if len(part) >= LEAST_SECRET_CHARS and part not in known:
                known[part] = re.compile(pattern_of(part))
    longest_first = sorted(known, key=len, reverse=True)
    _secrets = {secret: known[secret] for secret in longest_first}


def redacted(text: str) -> str:
    """The text with every known secret replaced by ***, in all the forms of `secret_forms`."""
    for pattern in _secrets.values():
        text = pattern.sub(MASK, text)
    return text


def redacted_bytes(data: bytes) -> bytes:
    """The same for a text in UTF-8, which may have other bytes in it."""
    if not _secrets:
        return data
    return redacted(data.decode("utf-8", "surrogateescape")).encode(
        "utf-8", "surrogateescape"
    )


def secrets_in(value: Any, *, is_secret: bool = False) -> list[str]:
    """The texts in a JSON value under keys that are named like secrets, however deep below them."""
    if isinstance(value, str):
        return [value] if is_secret else []
    found: list[str] = []
    if isinstance(value, Mapping):
        for name, part in value.items():
            found += secrets_in(part, is_secret=is_secret or is_secret_name(str(name)))
    elif isinstance(value, list):
        for part in value:
            found += secrets_in(part, is_secret=is_secret)
    return found


def masked(value: Any, *, is_secret: bool = False) -> Any:
    """The JSON value with every text that `secrets_in` finds replaced by ***."""
    if isinstance(value, str):
        return MASK if is_secret else value
    if isinstance(value, Mapping):
        return {
            name: masked(part, is_secret=is_secret or is_secret_name(str(name)))
            for name, part in value.items()
        }
    return (
        [masked(part, is_secret=is_secret) for part in value]
        if isinstance(value, list)
        else value
    )
