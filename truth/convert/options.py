"""A command's options, and what each of them means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from truth.problem import Problem

INFINITE = "inf"


@dataclass(frozen=True, slots=True)
class Table:
    """What is known of a client's options.

    `names`: options with a value, and the word of the work that they set; several options may be
    the same. `flags`: options without a value, and the word that they set to `yes`. `needed`: the
    only value for which there is an equal, with the reason. `refused`: options without an equal,
    with the reason. `ignored`: options of reports, which change no work, and how many values each
    has. `defaults`: words as the client has them where they are not given.
    """

    start: Sequence[str]
    names: Mapping[str, str]
    flags: Mapping[str, str] = field(default_factory=dict)
    needed: Mapping[str, tuple[Sequence[str], str]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)


def read_options(table: Table, words: Sequence[str]) -> dict[str, str]:
    """The words of the work. Problem: all options that have no equal, with their reasons."""
    values = dict(table.defaults)
    problems: list[str] = []
    left = _separated(words)
    while left:
        option = left.pop(0)
        if option in table.flags:
            values[table.flags[option]] = "yes"
        elif option in table.ignored:
            del left[: table.ignored[option]]
        elif option in table.refused:
            problems.append(f"{option}: {table.refused[option]}")
            _drop_value(left)
        elif option in table.needed:
            allowed, reason = table.needed[option]
            if _value(option, left) not in allowed:
                problems.append(f"{option}: {reason}")
        elif option in table.names:
            _set(values, table.names[option], _value(option, left))
        else:
            problems.append(f"{option}: no equal is known")
            _drop_value(left)
    if problems:
        raise Problem("no equal work: " + "; ".join(problems))
    return values


def _set(values: dict[str, str], name: str, value: str) -> None:
    """An option that may be given several times adds to the last value."""
    if name == "extra" and name in values:
        value = f"{values[name]},{value}"
    values[name] = value


def _separated(words: Sequence[str]) -> list[str]:
    """`--name=value` as two words."""
    separated: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name.startswith("--"):
            separated += [name, value]
        else:
            separated.append(word)
    return separated


def _value(option: str, left: list[str]) -> str:
    if not left:
        raise Problem(f"{option} has no value")
    return left.pop(0)


def _drop_value(left: list[str]) -> None:
    while left and not left[0].startswith("-"):
        left.pop(0)


def pairs_of(text: str) -> dict[str, str]:
    """`a=1,b=2` or `a:1,b:2` as a dict."""
    pairs: dict[str, str] = {}
    for part in text.split(","):
        mark = "=" if "=" in part else ":"
        name, _, value = part.partition(mark)
        if name:
            pairs[name.strip()] = value.strip()
    return pairs
