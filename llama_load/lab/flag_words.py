"""Flags given as keywords, in Python and in tests of pytest, as a command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from llama_load.loadgen.options.flag import Flag
from llama_load.loadgen.options.flags import FLAGS
from llama_load.loadgen.options.known_secrets import secrets_of_environment
from llama_load.loadgen.options.secret_flags import holds_secret
from llama_load.outside.foreign_text import keep_secret


def words_of(flags: Mapping[str, object]) -> tuple[list[str], dict[str, str]]:
    """The command line of flags given as keywords, and the variables of those that hold secrets:
    every user of the machine can read command lines.

    `max_tokens=64` is --max-tokens 64, True a flag without a value, a list a repeated one; None and
    False are left out.
    """
    words: list[str] = []
    variables: dict[str, str] = {}
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list | tuple) else [value]
        row = _row_of_secret(flag, values)
        if row is not None:
            variables[row.environment] = _text_of_variable(values)
            continue
        for item in values:
            words += _words_of_one(flag, item)
    keep_secret(secrets_of_environment(variables))
    return words, variables


def _row_of_secret(name: str, values: Sequence[object]) -> Flag | None:
    """The flag of this name, if one of these values is secret. (The command line also takes the
    beginning of a name.)"""
    given = [value for value in values if isinstance(value, str) and value]
    named = [flag for flag in FLAGS if name in (flag.name, *flag.also)]
    if not named:
        named = [flag for flag in FLAGS if flag.name.startswith(name)]
    for flag in named:
        if any(holds_secret(flag.kind, value) for value in given):
            return flag
    return None


def _text_of_variable(values: Sequence[object]) -> str:
    """Several values in one variable are a list of JSON, as Locust's parser reads it."""
    texts = list(map(str, values))
    return texts[0] if len(texts) == 1 else json.dumps(texts)


def _words_of_one(flag: str, value: object) -> Iterable[str]:
    if value is True:
        return [flag]
    if value is None or value is False:
        return []
    if str(value).startswith("-"):
        return [f"{flag}={value}"]
    return [flag, str(value)]
