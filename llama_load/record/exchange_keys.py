"""The keys in a request, and their masks: in what is recorded of this exchange, and of no other.

What a key is the client says. Masked in the whole recording, the key of a stranger could be a word
of everybody's texts, or the name of a field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from llama_load.outside.command_secrets import HARMLESS, secrets_in_urls
from llama_load.outside.foreign_text import LEAST_SECRET_CHARS, MASK, is_secret_name
from llama_load.outside.secret_forms import literal_forms, parts_of_credentials
from llama_load.record.http_framing import Head

if TYPE_CHECKING:
    from llama_load.record.read_exchange import SeenRequest

# Of one request.
MOST_KEYS = 16
# Longer ones are found as they are alone. Nobody's keys are longer; heads have 64 KiB.
MOST_CHARS_OF_FORMS = 8 << 10
# Characters of texts times forms of keys, about a second: in longer texts keys are found as they
# are.
MOST_COMPARED_CHARS = 2_000_000_000
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
_RECORDED = (
    *(
        "model",
        "reply_text",
        "body",
        "messages",
        "prompt",
        "tools",
        "sampling",
        "reply",
    ),
)
# What may stand between texts that are looked at as one.
_SIGNS = [*map(chr, (*range(9), *range(14, 32), *range(0xFDD0, 0xFDF0)))]
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
        if _is_tool_of_server(tool):
            found += _in_field("", tool, is_key=False)
    return found[:MOST_KEYS]


def _is_tool_of_server(tool: Any) -> bool:
    return isinstance(tool, Mapping) and tool.get("type", "function") != "function"


def _names_a_key(name: str) -> bool:
    return _KEY_FIELD.fullmatch(name) is not None and name != _NO_KEY_FIELD


def _in_field(name: str, value: Any, *, is_key: bool) -> Iterator[str]:
    is_key = is_key or _names_a_key(name)
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
    """Mask the keys of this request in all that is recorded of it: in their places whole, and
    wherever else they stand. Raises ValueError: its texts cannot be told apart."""
    keys = _values_of_keys((*keys_of_its_head, *keys_of_body(seen.body)))
    seen.body = {
        name: value if name in _TEXT_FIELDS else _without_keys(name, value)
        for name, value in seen.body.items()
    }
    seen.tools = [
        _without_keys("", tool) if _is_tool_of_server(tool) else tool
        for tool in seen.tools
    ]
    if not keys:
        return

    texts: list[str] = []
    for field in _RECORDED:
        _take_texts(getattr(seen, field), texts)
    masked = iter(_masked_texts(texts, keys))
    for field in _RECORDED:
        setattr(seen, field, _with_texts(getattr(seen, field), masked))


def _without_keys(name: str, value: Any, *, is_key: bool = False) -> Any:
    """A field of a body, with the texts in fields of keys masked whole."""
    is_key = is_key or _names_a_key(name)
    if isinstance(value, str):
        return MASK if is_key and len(value) >= LEAST_SECRET_CHARS else value
    if isinstance(value, Mapping):
        return {
            inner: _without_keys(inner, part, is_key=is_key)
            for inner, part in value.items()
        }
    if isinstance(value, list):
        return [_without_keys("", part, is_key=is_key) for part in value]
    return value


def _values_of_keys(keys: Iterable[str]) -> list[str]:
    """What is secret in these values; shorter ones are placeholders. The longest first."""
    found = set()
    for key in keys:
        for part in parts_of_credentials(key):
            if len(part) >= LEAST_SECRET_CHARS:
                found.add(part)
    return sorted(found, key=lambda part: (-len(part), part))


def _masked_texts(texts: list[str], keys: list[str]) -> list[str]:
    """These texts without the keys. All are one text meanwhile: in a long one a literal is found in
    linear time, whatever both are."""
    whole = "".join(texts)
    sign = next((sign for sign in _SIGNS if sign not in whole), None)
    if sign is None:
        raise ValueError("its texts have all control characters")
    joined = sign.join(texts)
    for form in _forms_of(keys, len(joined)):
        if sign not in form:
            joined = joined.replace(form, MASK)
    return joined.split(sign)


def _forms_of(keys: list[str], chars: int) -> list[str]:
    """What to look for in so many characters."""
    forms = []
    for key in keys:
        if len(key) <= MOST_CHARS_OF_FORMS:
            forms += literal_forms(key)
        else:
            forms.append(key)
    return forms if chars * len(forms) <= MOST_COMPARED_CHARS else keys


def _take_texts(value: Any, texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, list):
        for part in value:
            _take_texts(part, texts)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if len(name) >= LEAST_NAME_CHARS:
                texts.append(name)
            _take_texts(part, texts)


def _with_texts(value: Any, texts: Iterator[str]) -> Any:
    """The value with these texts in the places of its own, in the order of `_take_texts`."""
    if isinstance(value, str):
        return next(texts)
    if isinstance(value, list):
        return [_with_texts(part, texts) for part in value]
    if isinstance(value, Mapping):
        changed = {}
        for name, part in value.items():
            shown = next(texts) if len(name) >= LEAST_NAME_CHARS else name
            changed[shown] = _with_texts(part, texts)
        return changed
    return value
