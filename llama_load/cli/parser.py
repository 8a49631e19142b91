"""The argument parser of `llama-load`: bounded numbers, one-sentence errors, examples in --help."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from llama_load.ground.errors import did_you_mean

N = TypeVar("N", int, float)

# Commands whose words after -- are those of another program, wherever -- stands.
WITH_OTHERS_WORDS = ("serve", "capacity", "bench", "search", "sweep")

MOST_TOKENS = 10**7
MOST_REQUESTS = 10**7
LONGEST_MS = 1e9  # eleven days
LARGEST_SEED = 2**63 - 1


class Formatter(argparse.HelpFormatter):
    """argparse's layout of a help, in which names and flags with hyphens stay whole."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        words = " ".join(text.split())
        return textwrap.wrap(words, width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        words = " ".join(text.split())
        return textwrap.fill(
            words,
            width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )


class Parser(argparse.ArgumentParser):
    """argparse's parser, but errors are one sentence without the usage, and --help ends with
    examples.

    Every subcommand has at least one: what it does -> the command.
    """

    def __init__(
        self, *args: Any, examples: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        kwargs.setdefault("formatter_class", Formatter)
        super().__init__(*args, **kwargs)
        self.examples = dict(examples or {})
        self.set_defaults(parser=self)  # of the subcommand that was chosen

    def format_help(self) -> str:
        """The help of argparse and the examples, whose commands are not wrapped."""
        lines = []
        for does, command in self.examples.items():
            heading = does if does.endswith("?") else f"{does}:"
            lines.append(f"  {heading}\n    {command}\n")
        return super().format_help() + (
            "\nexamples:\n" + "\n".join(lines) if lines else ""
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A name that is not among the choices: the message suggests those that are spelled
        alike."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        is_command = action.nargs == argparse.PARSER
        near = (
            did_you_mean(str(value), choices) or f"; choose one of {', '.join(choices)}"
        )
        text = f"there is no {'command' if is_command else 'value'} {_short(str(value))}{near}"
        raise argparse.ArgumentError(None if is_command else action, text)

    def error(self, message: str) -> NoReturn:
        """Exit with 2."""
        see = (
            f" See {self.prog} --help"
            if message.endswith("?")
            else f"; see {self.prog} --help"
        )
        self.exit(2, f"{self.prog}: {message}{see}\n")


def split_dashes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments of `llama-load`, and what stands after -- for a server or for locust. argparse
    would take the first of them for an argument that is still to come."""
    given = list(words)
    if given[:1] and given[0] in WITH_OTHERS_WORDS and "--" in given:
        place = given.index("--")
        return given[:place], given[place + 1 :]
    return given, []


def whole_between(least: int, most: int) -> Callable[[str], int]:
    """An argparse type: a whole number from `least` to `most`."""
    return _bounded(int, least, most, f"a whole number from {least} to {most}")


def number_between(least: float, most: float) -> Callable[[str], float]:
    """An argparse type: a number from `least` to `most`."""
    return _bounded(float, least, most, f"a number from {least:g} to {most:g}")


def _bounded(
    kind: Callable[[str], N], least: float, most: float, name: str
) -> Callable[[str], N]:
    def read(text: str) -> N:
        with suppress(ValueError):
            if least <= (value := kind(text)) <= most:  # NaN is not
                return value
        raise argparse.ArgumentTypeError(f"must be {name}, got {_short(text)}")

    return read


def _short(text: str) -> str:
    return repr(text) if len(text) <= 40 else repr(text[:40] + "…")
