"""Mends that can be undone, to see that the attacker finds what they closed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.cookies import CookieError, SimpleCookie
from typing import Any

from llama_load.loadgen.wire import local_names, request_heads
from llama_load.outside import bound_headers, foreign_json
from llama_load.outside.secret_forms import pattern_of
from llama_load.page import guard, page_token
from llama_load.record import exchange_keys, foreign_pages
from llama_load.record.connection_pair import ConnectionPair
from llama_load.record.http_framing import Head, MessageReader, Part
from llama_load.record.relay import Relay
from llama_load.record.request_gate import RequestGate


@contextmanager
def _replaced(place: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


def _cookies_of(field: str) -> list[tuple[str, str]]:
    try:
        return [(name, morsel.value) for name, morsel in SimpleCookie(field).items()]
    except CookieError:
        return []


def _masked_by_patterns(texts: list[str], keys: list[str]) -> list[str]:
    pattern = re.compile("|".join(pattern_of(key[:200]) for key in keys))
    return [pattern.sub("***", text) for text in texts]


def _whole_step(self: MessageReader, data: bytes) -> tuple[list[Part], bytes]:
    parts: list[Part] = []
    while data:
        more, data = _step(self, data)
        parts += more
    return parts, data


_step = MessageReader.step
_begin_body = MessageReader._begin_body
_is_own_name = local_names.is_own_name


def _begin_body_of_any_coding(self: MessageReader, head: Head) -> None:
    fields = []
    for name, value in head.fields:
        is_coding = name == b"transfer-encoding"
        coding = value.rpartition(b",")[2].strip(b" \t\x0b\x0c\xa0")
        fields.append((name, coding if is_coding else value))
    _begin_body(self, Head(head.raw, head.first_line, tuple(fields)))


def _first_without_request(self: Relay) -> ConnectionPair | None:
    return next((pair for pair in self._pairs if not pair.open), None)


def _is_local(name: str, also_ours: Any = ()) -> bool:
    return name.endswith(".local") or _is_own_name(name, also_ours)


class _AnyNumber:
    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def _slow_cookies() -> Iterator[None]:
    with (
        _replaced(page_token, "cookies_of", _cookies_of),
        _replaced(guard, "cookies_of", _cookies_of),
    ):
        yield


@contextmanager
def _local_names() -> Iterator[None]:
    with (
        _replaced(local_names, "is_own_name", _is_local),
        _replaced(foreign_pages, "is_own_name", _is_local),
    ):
        yield


# By what each lets in: all fell in the fourth pass of attacks.
HOLES: dict[str, Callable[[], Any]] = {
    "cookies are read in quadratic time": _slow_cookies,
    "a head has no limit as a whole": lambda: _replaced(request_heads, "MOST_HEAD_BYTES", 1 << 30),
    "patterns are made of keys of clients": lambda: _replaced(exchange_keys, "_masked_texts", _masked_by_patterns),
    "requests that come together are taken together": lambda: _replaced(MessageReader, "step", _whole_step),
    "who reads nothing makes no room": lambda: _replaced(Relay, "_first_to_make_room", _first_without_request),
    "cookies of others go on": lambda: _replaced(RequestGate, "_with_known_cookies", lambda self, line: [line]),
    "a name may stand twice": lambda: _replaced(foreign_json, "_names_in", lambda value: _AnyNumber()),
    "other codings are chunked": lambda: _replaced(MessageReader, "_begin_body", _begin_body_of_any_coding),
    "names of a network are ours": _local_names,
    "a header may be two": lambda: _replaced(bound_headers, "_CONTROL", re.compile("(?!)")),
}  # fmt: skip

# The first seed from 1 on, of all targets, that finds each. Another grammar has others.
SEEDS = {
    "cookies are read in quadratic time": 552,
    "a head has no limit as a whole": 420,
    "patterns are made of keys of clients": 151,
    "requests that come together are taken together": 219,
    "who reads nothing makes no room": 230,
    "cookies of others go on": 37,
    "a name may stand twice": 170,
    "other codings are chunked": 943,
    "names of a network are ours": 12_548,
    "a header may be two": 52,
}
