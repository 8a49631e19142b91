"""Secrets in the values of flags: to mask them, and to leave them out of what is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any
from urllib.parse import unquote

from llama_load.loadgen.options.flag import Kind
from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.flags import FLAGS
from llama_load.outside.bound_headers import Headers
from llama_load.outside.command_secrets import is_secret_header, secrets_in_urls
from llama_load.outside.foreign_json import check_json
from llama_load.outside.foreign_text import MASK, masked, redacted, secrets_in

_FOR_SERVERS = frozenset((Kind.SERVER_KEY, Kind.HEADER, Kind.JSON))
_USER_IN_URL = re.compile(r"(://)[^/?#\s]*@")


def secret_values(flags: FlagReader, *, for_servers: bool = False) -> list[str]:
    """The values of secret flags, of headers that are not harmless, and of JSON fields with names
    of secrets. `for_servers`: only those that go to the servers under test."""
    kinds = _SECRETS_IN.keys() & _FOR_SERVERS if for_servers else _SECRETS_IN.keys()
    secrets: list[str] = []
    for flag in FLAGS:
        if flag.kind in kinds:
            for text in flags.texts(flag):
                secrets += _SECRETS_IN[flag.kind](text)
    return secrets


def redact_command(command: Sequence[str]) -> list[str]:
    """A command line with *** for keys, headers, users of URLs, and values in JSON that look like
    secrets."""
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
    """What masks the value of a flag; None where nothing need be masked. (argparse accepts any
    abbreviation of a flag.)"""
    if len(name) <= len("--"):
        return None
    rows = [flag for flag in FLAGS if flag.name.startswith(name)]
    if any(flag.secret for flag in rows):
        return lambda _: MASK
    if any(flag.kind is Kind.JSON for flag in rows):
        return redact_json
    return None


def redact_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Parsed options as sent to workers: without keys; each worker needs its own."""
    sent = dict(options)
    for flag in FLAGS:
        if flag.dest in sent and holds_secret(flag.kind, sent[flag.dest]):
            del sent[flag.dest]
    return sent


def holds_secret(kind: Kind, value: Any) -> bool:
    """Whether this value of a flag of this kind is left out of what is sent and shown."""
    if kind is Kind.JSON:
        return bool(value) and redact_json(value) != value
    if kind is Kind.DESTINATION:
        return bool(_in_url(str(value)))
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
        name, value = _name_and_value(line)
        is_name = is_header_name(name)
        if not is_name or not (line.isascii() and line.isprintable()):
            got = "something else"
            if is_name:
                got = f"{name.strip()!r} with a value that cannot be sent"
            faults.append(
                f"--header must look like 'Name: value', in ASCII, got {got} (not shown, it may "
                "hold a key)"
            )
        headers.append((name.strip(), value.strip()))
    return tuple(headers)


def _name_and_value(line: str) -> tuple[str, str]:
    """The parts of `Name: value`, or of `NAME=VALUE` as vLLM writes it; no name without a sign."""
    sign = re.search("[:=]", line)
    if sign is None:
        return "", ""
    return line[: sign.start()], line[sign.end() :]


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
    """The password and the query of a URL, as they are written and as they are sent."""
    _, _, after_scheme = url.partition("://")
    address, _, _ = after_scheme.partition("/")
    user, _, _ = address.rpartition("@")
    _, _, password = user.partition(":")
    found = [password, unquote(password)] if password else []
    return [*found, *secrets_in_urls(url)]


def _in_header(line: str) -> list[str]:
    headers = read_headers([line], [])
    return [value for name, value in headers if is_secret_header(name, value)]


# What is secret in a value, by its kind.
_SECRETS_IN: Mapping[Kind, Callable[[str], list[str]]] = {
    Kind.SERVER_KEY: lambda key: [key],
    Kind.SECRET: lambda secret: [secret],
    Kind.HEADER: _in_header,
    Kind.JSON: _in_json,
    Kind.DESTINATION: _in_url,
}
