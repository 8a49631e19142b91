"""Fields of the servers' JSON, checked: a value of an unexpected type counts as missing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from llama_load.outside.foreign_text import printable, printable_json

MOST = 2**53


def text(value: object) -> str | None:
    """A text that is not empty, made printable; else None."""
    return printable(value) if isinstance(value, str) and value else None


def count(value: object) -> int | None:
    """A whole number from 1 to 2**53, else None."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 < value <= MOST else None


def fields(value: object) -> dict[str, Any]:
    """A JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[dict[str, Any]]:
    """The entries of a JSON list, an empty object for one that is none; no list has no entries."""
    return list(map(fields, value)) if isinstance(value, list) else []


def abilities(value: object) -> dict[str, bool] | None:
    """The booleans of an object such as llama-server's `modalities`: {"vision": true}.

    None: not an object, or no boolean in it.
    """
    found = {}
    for name, able in fields(value).items():
        if isinstance(able, bool):
            found[printable(name)] = able
    return found or None


def settings(value: object, names: Collection[str]) -> dict[str, Any] | None:
    """An object's numbers, booleans, texts and lists of texts with one of these names.

    None if there is none.
    """
    found = {}
    for name, setting in fields(value).items():
        if name in names and _is_setting(setting):
            found[name] = setting
    return printable_json(found) or None


def _is_setting(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(each, str) for each in value)
    return isinstance(value, bool | int | float | str)
