"""The keys in a request, and their masks: in what is recorded of this exchange, and of no other.

What a key is the client says. Masked in the whole recording, the key of a stranger could be a word
of everybody's texts, or the name of a field.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from llama_load.command_secrets import HARMLESS, secrets_in_urls
from llama_load.foreign_text import LEAST_SECRET_CHARS, MASK, is_secret_name
from llama_load.record.http_framing import Head
from llama_load.secret_forms import pattern_of, quick_pattern_of

if TYPE_CHECKING:
    from llama_load.record.read_exchange import SeenRequest

# Of one request.
MOST_KEYS = 16
# Longer keys, such as JWTs, are found as they are, in URLs, base64 and hex alone: the pattern of
# all forms takes 1 ms for each character.
MOST_CHARS_OF_FORMS = 256
# New keys beyond so many characters, too: any user of the machine can send some with each request,
# and the recording of all others would come to a halt.
ALLOWED_CHARS = 1024
ALLOWED_CHARS_PER_S = 64
# Names of fields are masked from this length on. Those that the code looks for are shorter.
LEAST_NAME_CHARS = 24
# A value of a header with any other name that looks like a key: one word of letters and digits.
_LOOKS_LIKE_KEY = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9])[\w.~+=-]{20,}")
_HEADERS_WITHOUT_KEYS = HARMLESS | {"host", "content-length", "transfer-encoding"}
_COOKIE = "cookie"
# What a body has beside texts: {"api_key": …}, {"extra_headers": {"Authorization": …}}.
_KEY_FIELD = re.compile(
    r"(?:.*[_-])?(?:api[_-]?keys?|access[_-]?key(?:[_-]id)?|key|token|secret|passw(?:or)?d|"
    r"credentials?|authorization|cookie|signature)",
    re.IGNORECASE,
)
_NO_KEY_FIELD = "prompt_cache_key"
_TEXT_FIELDS = frozenset(
    (
        *("messages", "input", "prompt", "system", "instructions", "suffix"),
        *("query", "documents", "texts", "content", "tools", "response_format"),
    )
)


def keys_of_head(head: Head) -> list[str]:
    """The keys in a request's head: of its fields, its query, its cookies."""
    return list(islice(_in_head(head), MOST_KEYS))


def _in_head(head: Head) -> Iterator[str]:
    cookies: list[str] = []
    for raw_name, raw_value in head.fields:
        name = raw_name.decode("latin-1")
        value = raw_value.decode("latin-1")
        if name == _COOKIE:
            cookies += [part.partition("=")[2] for part in value.split(";")]
        elif is_secret_name(name) or _may_be_key(name, value):
            yield value
    target = head.first_line.split(b" ")[1].decode("latin-1")
    for name, value in parse_qsl(target.partition("?")[2]):
        if is_secret_name(name):
            yield value
    yield from cookies


def _may_be_key(name: str, value: str) -> bool:
    if name in _HEADERS_WITHOUT_KEYS:
        return False
    return _LOOKS_LIKE_KEY.fullmatch(value) is not None


def keys_of_body(body: Mapping[str, Any]) -> list[str]:
    """The keys beside the texts of a request's body, and those of tools that the server calls by
    itself (MCP)."""
    found: list[str] = []
    for name, value in body.items():
        if name not in _TEXT_FIELDS:
            found += _in_field(name, value, is_key=False)
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping) and tool.get("type", "function") != "function":
            found += _in_field("", tool, is_key=False)
    return found[:MOST_KEYS]


def _in_field(name: str, value: Any, *, is_key: bool) -> Iterator[str]:
    is_named = _KEY_FIELD.fullmatch(name) is not None and name != _NO_KEY_FIELD
    is_key = is_key or is_named
    if isinstance(value, str):
        if is_key:
            yield value
        yield from secrets_in_urls(value)
    elif isinstance(value, Mapping):
        for inner, part in value.items():
            yield from _in_field(inner, part, is_key=is_key)
    elif isinstance(value, list):
        for part in value:
            yield from _in_field("", part, is_key=is_key)


def mask_keys(seen: SeenRequest, keys_of_its_head: Sequence[str]) -> None:
    """Mask the keys of this request in all that is recorded of it."""
    keys = set(_values_of_keys((*keys_of_its_head, *keys_of_body(seen.body))))
    if not keys:
        return
    pattern = _pattern_of(
        tuple(
            sorted(
                keys,
                key=len,
                reverse=True,
            )
        )
    )
    seen.model = pattern.sub(MASK, seen.model)
    seen.reply_text = pattern.sub(MASK, seen.reply_text)
    for name in ("body", "messages", "prompt", "tools", "sampling", "reply"):
        setattr(seen, name, _masked(getattr(seen, name), pattern))


def _values_of_keys(keys: Iterable[str]) -> Iterator[str]:
    """What is secret in a value: of `Bearer KEY` the key. Shorter ones are placeholders."""
    for key in keys:
        value = key.strip()
        for part in (value, value.rpartition(" ")[2]):
            if len(part) >= LEAST_SECRET_CHARS:
                yield part


@dataclass(slots=True)
class _Allowance:
    """Characters of keys of which all forms may be looked for."""

    left: float = ALLOWED_CHARS
    at_s: float = field(default_factory=time.monotonic)

    def takes(self, chars: int) -> bool:
        now_s = time.monotonic()
        earned = ALLOWED_CHARS_PER_S * (now_s - self.at_s)
        self.left = min(ALLOWED_CHARS, self.left + earned)
        self.at_s = now_s
        if chars > self.left:
            return False
        self.left -= chars
        return True


_allowance = _Allowance()


@lru_cache(maxsize=64)
def _pattern_of(keys: tuple[str, ...]) -> re.Pattern[str]:
    patterns = []
    for key in keys:
        if len(key) <= MOST_CHARS_OF_FORMS and _allowance.takes(len(key)):
            patterns.append(pattern_of(key))
        else:
            patterns.append(quick_pattern_of(key))
    return re.compile("|".join(patterns))


def _masked(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(MASK, value)
    if isinstance(value, list):
        return [_masked(part, pattern) for part in value]
    if isinstance(value, Mapping):
        return {
            _masked_name(name, pattern): _masked(part, pattern)
            for name, part in value.items()
        }
    return value


def _masked_name(name: str, pattern: re.Pattern[str]) -> str:
    return name if len(name) < LEAST_NAME_CHARS else pattern.sub(MASK, name)
