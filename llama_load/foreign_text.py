"""Text that somebody else wrote (a server, a file, a peer) or that may quote one of our keys: made harmless before it is kept.

`printable` is called where such text enters and again where a line is printed; then one escape for each format: `markdown` and
`fence` here, JUnit's in `llama_load.reports.junit`. Secrets that this process knows (`keep_secret`) are replaced in all of them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

# The longest text of a server that is worth reading in a table or a message.
MOST_CHARS = 1000
MASK = "***"
# Shorter "secrets" are placeholders (none, EMPTY, x); replacing them would mask ordinary words.
LEAST_SECRET_CHARS = 6
# Names of headers and JSON keys whose values are secret.
_SECRET_NAME = re.compile(r"auth|cookie|credential|key|passw|secret|signature|token(?!s|iz)", re.IGNORECASE)

# C0, DEL and C1 control characters, line and paragraph separators, bidirectional marks, embeddings and isolates, lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# What is markup in Markdown, a backslash included, which would undo ours.
_MARKUP = re.compile(r"[\\`*\[\]<|~]")
_BACKTICKS = re.compile("`{3,}")

_secrets: set[str] = set()
_secret: re.Pattern[str] | None = None


def printable(text: str, most: int | None = MOST_CHARS) -> str:
    """The text on one line, without control and bidirectional characters (each becomes U+FFFD) and known secrets, cut after `most`
    characters."""
    # Cut before the search, or three megabytes would be searched; far enough behind the end that no secret is cut in two.
    if most is not None and len(text) > 8 * most + 4096:
        text = text[: 8 * most + 4096]
    text = _UNPRINTABLE.sub("\ufffd", redacted(text))
    return text if most is None or len(text) <= most else text[:most] + "…"


def printable_lines(text: str) -> str:
    """A text of our own in several lines, which may quote foreign ones: each `printable`, uncut."""
    return "\n".join(printable(line, None) for line in text.split("\n"))


def printable_json(value: Any, most: int = MOST_CHARS) -> Any:
    """A JSON value with every text in it `printable`, keys included."""
    if isinstance(value, str):
        return printable(value, most)
    if isinstance(value, Mapping):
        return {printable(str(name), most): printable_json(each, most) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [printable_json(each, most) for each in value]
    return value


def markdown(text: str) -> str:
    """The text inside a line or a table cell of Markdown: no markup of its own, no HTML."""
    return _MARKUP.sub(lambda match: "&lt;" if match[0] == "<" else "\\" + match[0], printable(text, None))


def fence(text: str) -> str:
    """The line that opens and closes a block of code around the text: longer than any row of backticks in it."""
    return "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))


# ---------------------------------------------------------------------- secrets


def is_secret_name(name: str) -> bool:
    """Whether a header or a JSON key of this name holds a secret: Authorization, X-Api-Key, access_token; not max_tokens."""
    return _SECRET_NAME.search(name) is not None


def keep_secret(values: Iterable[str]) -> None:
    """Replace these values from now on in whatever is printed, logged or written."""
    global _secret  # noqa: PLW0603 - one set of secrets a process: whatever it writes must not hold them
    for value in values:
        # The scheme of an Authorization header is no secret, what follows it is.
        for part in {value.strip(), value.strip().rpartition(" ")[2]}:
            if len(part) >= LEAST_SECRET_CHARS:
                encoded = base64.b64encode(part.encode()).decode().rstrip("=")
                _secrets.update((part, quote(part, safe=""), json.dumps(part)[1:-1], encoded))
    if _secrets:
        _secret = re.compile("|".join(map(re.escape, sorted(_secrets, key=len, reverse=True))))


def redacted(text: str) -> str:
    """The text with every known secret replaced by ***, also where it stands escaped for a URL or JSON, or in base64."""
    return text if _secret is None else _secret.sub(MASK, text)


def secrets_in(value: Any) -> list[str]:
    """The texts in a JSON value under keys that are named like secrets."""
    if isinstance(value, Mapping):
        own = [each for name, each in value.items() if is_secret_name(str(name)) and isinstance(each, str)]
        return own + [text for each in value.values() for text in secrets_in(each)]
    return [text for each in value for text in secrets_in(each)] if isinstance(value, list) else []


def masked(value: Any) -> Any:
    """A JSON value in which what `secrets_in` finds is ***."""
    if isinstance(value, Mapping):
        return {name: MASK if is_secret_name(str(name)) and isinstance(each, str) else masked(each) for name, each in value.items()}
    return [masked(each) for each in value] if isinstance(value, list) else value
