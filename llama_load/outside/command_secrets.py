"""Finds secrets in command lines: values of secret flags, headers, JSON, URLs, and commands in one
word.

Names only find the values; these are masked wherever they leave (`foreign_text.keep_secret`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from urllib.parse import unquote

from llama_load.outside.foreign_text import (
    LEAST_SECRET_CHARS,
    MASK,
    is_secret_name,
    redacted,
    secrets_in,
)

# Headers whose values hold no secret. The value of every other header is treated as a key, whatever
# its name: services take keys in X-Jwt, X-Team or Ocp-Apim-Subscription-Id as well.
HARMLESS = frozenset(
    (
        *(
            "accept",
            "accept-charset",
            "accept-encoding",
            "accept-language",
            "anthropic-beta",
            "anthropic-version",
            "cache-control",
        ),
        *(
            "connection",
            "content-encoding",
            "content-language",
            "content-type",
            "date",
            "expect",
            "openai-beta",
            "origin",
        ),
        *(
            "pragma",
            "priority",
            "te",
            "traceparent",
            "tracestate",
            "user-agent",
            "via",
            "x-correlation-id",
            "x-request-id",
        ),
    )
)
# Fields of headers whose values differ between requests (see `loadgen.users.request_headers`).
FIELD = re.compile(r"\{(conversation|prompt|user|worker)\}")
# Flags whose values are secrets in most programs. (Names such as --auth or --key-file would take
# words for secrets.)
_SECRET_FLAG = re.compile(
    r"--?(?:[\w-]*(?:api-?keys?|token|secret|passw(?:or)?d|credentials?)|hft)",
    re.IGNORECASE,
)
_NO_SECRET_FLAG = re.compile(
    r"(?:max|min|stop|eos|bos|pad|unk|image|first|last)[-_]?token|file$", re.IGNORECASE
)
_HEADER_FLAGS = frozenset(("--header", "-H", "--proxy-header"))
# Variables of any program, such as HF_TOKEN and AWS_SECRET_ACCESS_KEY.
SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:API_?KEYS?|ACCESS_KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS)$",
    re.IGNORECASE,
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_IN_URL = re.compile(r"\w://([^/?#\s@]*)@|[?&]([\w.-]+)=([^&#\s]+)")
# What stands behind a URL in JSON, a shell or a sentence.
_CLOSING = "\"',;)]}>."
_DEEPEST = 3  # commands in words of commands


def is_secret_header(name: str, value: str) -> bool:
    """Whether the value must be treated as a key: it has letters or digits of its own, and no
    harmless name."""
    return (
        name.strip().lower() not in HARMLESS
        and re.search(r"[^\W_]", FIELD.sub("", value)) is not None
    )


def secrets_of_words(words: Iterable[str], depth: int = 0) -> list[str]:
    """Those of a command line: values of secret flags (several, too), variables before it, headers,
    JSON, URLs, and commands in one word, such as those of --serve."""
    found: list[str] = []
    flag = ""
    for word in words:
        # several words in one, as in plans
        if depth < _DEEPEST and word.startswith("-") and " " in word:
            with suppress(ValueError):
                found += secrets_of_words(shlex.split(word), depth + 1)
        name, equals, value = word.partition("=")
        if word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            flag = name
            if equals:
                found += _of_value(name, value, depth)
                flag = ""
            continue
        if assigned := _ASSIGNMENT.fullmatch(word):
            found += [assigned[2]] if SECRET_VARIABLE.search(assigned[1]) else []
        found += _of_value(flag, word, depth)
        if not _is_secret_flag(flag):
            flag = ""  # a secret flag may have several values
    return found


def _is_secret_flag(flag: str) -> bool:
    return (
        _SECRET_FLAG.fullmatch(flag) is not None
        and _NO_SECRET_FLAG.search(flag) is None
    )


def _of_value(flag: str, value: str, depth: int) -> list[str]:
    found = secrets_in_urls(value)
    if _is_secret_flag(flag):
        found.append(value)
    if flag in _HEADER_FLAGS:
        sign = min(
            (sign for sign in ":=" if sign in value), key=value.index, default=":"
        )
        name, _, of_header = value.partition(sign)
        found += [of_header] if is_secret_header(name, of_header) else []
    if value.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            found += secrets_in(json.loads(value))
    elif depth < _DEEPEST and " " in value.strip():
        with suppress(ValueError):
            found += secrets_of_words(shlex.split(value), depth + 1)
    return found


def secrets_in_urls(text: str) -> list[str]:
    """Users and passwords of URLs, their whole queries, and values in these with names of secrets,
    as they are written and as they are sent."""
    if "://" not in text:
        return []
    return [*_in_urls(text), *_queries(text)]


def _in_urls(text: str) -> Iterator[str]:
    for match in _IN_URL.finditer(text):
        user_info, name, value = match.groups()
        if user_info is not None:
            user, _, password = user_info.partition(":")
            written = password or user  # https://TOKEN@host
        elif is_secret_name(name):
            written = value
        else:
            continue
        if not written:  # https://@host
            continue
        yield written
        yield unquote(written)


def _queries(text: str) -> Iterator[str]:
    """What stands behind the ? of URLs, whatever their scheme: signatures have any name."""
    for word in text.split():
        _, sign, behind = word.partition("://")
        if not sign:
            continue
        query = behind.partition("#")[0].partition("?")[2].rstrip(_CLOSING)
        if query:
            yield query


def redact_words(words: Iterable[str]) -> tuple[str, ...]:
    """A command line with *** for its own secrets and for known ones."""
    shown = tuple(words)
    for secret in sorted(set(secrets_of_words(shown)), key=len, reverse=True):
        if len(secret) >= LEAST_SECRET_CHARS:
            shown = tuple(word.replace(secret, MASK) for word in shown)
        elif secret:  # a placeholder: only where it is the whole value
            shown = tuple(
                re.sub(rf"(^|=){re.escape(secret)}$", rf"\1{MASK}", word)
                for word in shown
            )
    return tuple(map(redacted, shown))
