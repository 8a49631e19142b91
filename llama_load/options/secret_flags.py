"""Secrets in the values of flags, by the kinds of their rows: to mask them, and to leave them out of what is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any
from urllib.parse import unquote

from llama_load.bound_headers import Headers
from llama_load.command_secrets import is_secret_header
from llama_load.foreign_json import check_json
from llama_load.foreign_text import MASK, masked, redacted, secrets_in
from llama_load.options.flag import Kind
from llama_load.options.flag_reader import FlagReader
from llama_load.options.flags import FLAGS

_FOR_SERVERS = frozenset((Kind.SERVER_KEY, Kind.HEADER, Kind.JSON))
_USER_IN_URL = re.compile(r"(://)[^/?#\s]*@")


def secret_values(flags: FlagReader, *, for_servers: bool = False) -> list[str]:
    """The values of secret flags, of headers that are not harmless, and of JSON fields with names of secrets.
    `for_servers`: only those that go to the servers under test."""
    return [
        secret
        for flag in FLAGS
        if flag.kind in _SECRETS_IN and (flag.kind in _FOR_SERVERS or not for_servers)
        for text in flags.texts(flag)
        for secret in _SECRETS_IN[flag.kind](text)
    ]


def redact_command(command: Sequence[str]) -> list[str]:
    """A command line with *** for keys, headers, users of URLs, and values in JSON that look like secrets."""
    shown: list[str] = []
    words = iter(command)
    for word in words:
        name, equals, value = word.partition("=")
        hides = _masking(name)
        if hides is not None and equals:
            shown.append(f"{name}={hides(value)}")
            continue
        shown.append(_USER_IN_URL.sub(rf"\1{MASK}@", redacted(word)))
        if hides is not None:
            shown += map(hides, islice(words, 1))
    return shown


def _masking(name: str) -> Callable[[str], str] | None:
    """What masks the value of a flag; None where nothing need be masked. (argparse accepts any abbreviation of a flag.)"""
    rows = [flag for flag in FLAGS if flag.name.startswith(name)] if len(name) > len("--") else []
    if any(flag.secret for flag in rows):
        return lambda _: MASK
    return redact_json if any(flag.kind is Kind.JSON for flag in rows) else None


def redact_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Parsed options as sent to workers: without keys; each worker needs its own."""
    rows = {flag.dest: flag for flag in FLAGS}
    return {name: value for name, value in options.items() if name not in rows or not _holds_secret(rows[name].kind, value)}


def _holds_secret(kind: Kind, value: Any) -> bool:
    if kind is Kind.JSON:
        return bool(value) and redact_json(value) != value
    if kind is Kind.DESTINATION:
        return _USER_IN_URL.search(str(value)) is not None
    return kind in _SECRETS_IN


def redact_json(text: str) -> str:
    """A JSON text with *** for the values of keys with names of secrets; unchanged without any."""
    try:
        check_json(text.encode())
        value = json.loads(text)
    except ValueError:
        return MASK
    return json.dumps(masked(value)) if secrets_in(value) else redacted(text)


def read_headers(lines: Sequence[str], faults: list[str]) -> Headers:
    """Names and values of headers; those that cannot be sent are faults."""
    headers = []
    for line in lines:
        separator = min((sign for sign in ":=" if sign in line), key=line.index, default=":")  # vLLM writes NAME=VALUE
        name, has_value, value = line.partition(separator)
        is_name = has_value and is_header_name(name)
        if not is_name or not (line.isascii() and line.isprintable()):
            got = f"{name.strip()!r} with a value that cannot be sent" if is_name else "something else"
            faults.append(f"--header must look like 'Name: value', in ASCII, got {got} (not shown, it may hold a key)")
        headers.append((name.strip(), value.strip()))
    return tuple(headers)


def is_header_name(name: str) -> bool:
    """Whether a text is an HTTP token, as header names must be."""
    return re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name.strip(), re.ASCII) is not None


def _in_json(text: str) -> list[str]:
    try:
        check_json(text.encode())
        value = json.loads(text)
    except ValueError:
        return []
    return secrets_in(value) if isinstance(value, dict) else []


def _in_url(url: str) -> list[str]:
    """The password in a URL, as it is written and as it is sent."""
    password = url.partition("://")[2].partition("/")[0].rpartition("@")[0].partition(":")[2]
    return [password, unquote(password)] if password else []


# What is secret in a value, by its kind.
_SECRETS_IN: Mapping[Kind, Callable[[str], list[str]]] = {
    Kind.SERVER_KEY: lambda key: [key],
    Kind.SECRET: lambda secret: [secret],
    Kind.HEADER: lambda line: [value for name, value in read_headers([line], []) if is_secret_header(name, value)],
    Kind.JSON: _in_json,
    Kind.DESTINATION: _in_url,
}
