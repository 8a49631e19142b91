"""Every command takes its flags before and behind its other words, and what stands after --."""

from __future__ import annotations

import argparse

import pytest

from llama_load.cli.main import command_parser
from llama_load.cli.parser import WITH_OTHERS_WORDS, Parser, split_dashes

FURTHER = ["--max-tokens", "32", "-u", "2"]
TEXTS = ("1", "100", "0.9", "503", "1x1", "1-2", "a=1", "http://127.0.0.1:9")


def commands(
    parser: Parser, words: tuple[str, ...] = ()
) -> dict[tuple[str, ...], Parser]:
    """The parsers without subcommands, by the words that lead to them."""
    found = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                found |= commands(inner, (*words, name))
    return found or {words: parser}


PARSER = command_parser()
COMMANDS = commands(PARSER)


def value_of(action: argparse.Action) -> str:
    """A text that this argument takes."""
    if action.choices is not None:
        return str(next(iter(action.choices)))
    for text in TEXTS:
        try:
            if action.type is None or action.type(text) is not None:
                return text
        except (argparse.ArgumentTypeError, ValueError):
            continue
    raise AssertionError(f"no text for {action.option_strings}")


def flags_of(action: argparse.Action) -> list[str]:
    name = action.option_strings[-1]
    if action.nargs == 0:
        return [name]
    count = action.nargs if isinstance(action.nargs, int) else 1
    return [name, *[value_of(action)] * count]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_flags_stand_before_and_behind_the_other_words(words: tuple[str, ...]) -> None:
    flags: list[str] = []
    others: list[str] = []
    parser = COMMANDS[words]
    excluded = [
        action
        for group in parser._mutually_exclusive_groups
        for action in group._group_actions[1:]
    ]
    for action in parser._actions:
        if action in excluded or isinstance(action, argparse._HelpAction):
            continue
        if action.option_strings:
            flags += flags_of(action)
        else:
            others.append(value_of(action))

    after = ["--", *FURTHER] if words[0] in WITH_OTHERS_WORDS else []
    lines = [[*words, *flags, *others, *after], [*words, *others, *flags, *after]]
    parsed = []
    for line in lines:
        own, further = split_dashes(line)
        arguments, unknown = PARSER.parse_known_args(own)
        assert unknown == []
        assert further == after[1:]
        parsed.append(vars(arguments))
    assert parsed[0] == parsed[1]
    for value in others:
        assert any(value in str(given) for given in parsed[0].values())


def test_capacity_in_the_order_in_which_people_write_it() -> None:
    line = "capacity http://127.0.0.1:9 --max-time 90 -- --max-tokens 32"
    own, further = split_dashes(line.split())
    arguments = PARSER.parse_args(own)
    assert (arguments.url, arguments.max_time, further) == (
        "http://127.0.0.1:9",
        90.0,
        ["--max-tokens", "32"],
    )
