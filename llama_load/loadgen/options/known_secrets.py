"""Finds the secrets of a process where it begins: in its command line and its environment.

What is found is masked wherever it leaves (`foreign_text.keep_secret`): a table, a folder's name, a
log, an answer that quotes it. Names only find the values; nothing is masked by its name alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.flags import FLAGS
from llama_load.loadgen.options.secret_flags import secret_values
from llama_load.outside.command_secrets import (
    SECRET_VARIABLE,
    secrets_in_urls,
    secrets_of_words,
)
from llama_load.outside.foreign_text import keep_secret

OTLP_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
LEAST_CHARS = 8  # of what only its variable's name makes a secret


def learn_secrets(words: Sequence[str] | None = None) -> None:
    """Mask the secrets of this process from now on. `words`: its command line, by default that of
    the process."""
    keep_secret(secrets_of_environment(os.environ))
    keep_secret(secrets_of_words(sys.argv[1:] if words is None else words))


def secrets_of_environment(variables: Mapping[str, str]) -> list[str]:
    """Those of our flags' variables, of OpenTelemetry's headers, and of variables that are named
    like secrets."""
    given = {}
    for flag in FLAGS:
        value = variables.get(flag.environment)
        given[flag.dest] = _values_of_variable(value) if flag.repeated else value
    found = secret_values(FlagReader(SimpleNamespace(**given)))
    for pair in variables.get(OTLP_HEADERS, "").split(","):
        value = pair.partition("=")[2].strip()
        found += [value, unquote(value)]
    for name, value in variables.items():
        if SECRET_VARIABLE.search(name) and _is_random(value):
            found.append(value)
        found += secrets_in_urls(value)
    return found


def _values_of_variable(value: str | None) -> list[str] | None:
    """The values in a variable of a flag that can be repeated: one, or a list of JSON."""
    if value is None:
        return None
    if value.startswith("["):
        with suppress(ValueError, RecursionError):
            return list(map(str, json.loads(value)))
    return [value]


def _is_random(value: str) -> bool:
    """Whether this may be a secret: no path, no sentence, no word such as `disabled`."""
    is_path = value.startswith(("/", "~", "."))
    has_spaces = value.split() != [value]
    is_text = is_path or has_spaces or value.isalpha()
    return len(value) >= LEAST_CHARS and not is_text


def secrets_of_document(value: Any) -> list[str]:
    """Those of a plan: variables of servers' environments, words of their commands, URLs."""
    if isinstance(value, str):
        return secrets_of_words([value])
    found: list[str] = []
    if isinstance(value, Mapping):
        for name, part in value.items():
            if SECRET_VARIABLE.search(str(name)) and isinstance(part, str):
                found.append(part)
            found += secrets_of_document(part)
    elif isinstance(value, list):
        found += secrets_of_words([part for part in value if isinstance(part, str)])
        for part in value:
            if not isinstance(part, str):
                found += secrets_of_document(part)
    return found
