"""What is known of a client: its command for a work, and how its result is read."""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from truth.foreign import lines_of, refuse_large, text_of, value_of
from truth.problem import Problem
from truth.result import Result
from truth.work import Work

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
METRICS = ("ttft", "tpot", "itl", "e2el")
# What reading raises where there is no usable result.
READING_FAILED = (
    *(OSError, KeyError, ValueError, IndexError, TypeError, AttributeError),
    *(ArithmeticError, csv.Error),
)


class NoResult(ValueError):
    """The client ended without a result, or with one that cannot be read."""


class Tool(ABC):
    """A client. `name` is its name for --format and --tool, `title` that of its authors, `lacks`
    what it cannot do, or not by the commands here: a field of the work, and why. `searches`: it
    states the load that a server carries."""

    name: str
    title: str
    lacks: ClassVar[Mapping[str, str]] = {}
    searches: ClassVar[bool] = False

    @abstractmethod
    def commands(self, work: Work, folder: Path) -> list[list[str]]:
        """Commands to run one after the other in `folder`, which gets the result. ValueError: it
        cannot do this work."""

    @abstractmethod
    def result(self, folder: Path) -> Path:
        """The file or folder that `read` takes, after the commands."""

    @abstractmethod
    def read(self, path: Path) -> Result:
        """One of `READING_FAILED`: there is no usable result."""

    def unable(self, work: Work) -> str:
        """Why it cannot do this; empty if it can."""
        if work.ttft_ms and not self.searches:
            return "states no capacity"
        wanted = {
            "choices": work.choices > 1,
            "warmup": bool(work.warmup),
            "seconds": bool(work.seconds),
            "prompts": bool(work.prompts),
        }
        for name, reason in self.lacks.items():
            if wanted[name]:
                return reason
        return ""

    def env(self, work: Work) -> Mapping[str, str]:
        """Variables of the environment that it needs."""
        del work
        return OFFLINE


def load_json(path: Path) -> Any:
    """The object in a file."""
    return value_of(text_of(path))


def load_lines(path: Path) -> list[Any]:
    """An object per line."""
    text = text_of(path)
    refuse_large(text)
    return [value_of(line) for line in lines_of(text)]


def number_in(text: str | None) -> int | None:
    """The server's number of a request: the first word of its answer. None: there is none."""
    words = (text or "").split(maxsplit=1)
    if words and words[0].isdigit():
        return int(words[0])
    return None


def times(value: float | None, factor: float) -> float | None:
    """A value in other units; None stays None."""
    if value is None:
        return None
    return value * factor


def known(values: Mapping[str, float | None]) -> dict[str, float]:
    """Without those that are None."""
    return {name: value for name, value in values.items() if value is not None}


def total(values: list[int | None]) -> int | None:
    """The sum; None if one is None."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    return sum(numbers)


def as_read(tool: Tool, path: Path) -> Result:
    """Problem: there is no usable result at `path`."""
    try:
        return tool.read(path)
    except READING_FAILED as error:
        reason = f"{type(error).__name__}: {error}"
        raise Problem(f"{path} has no result of {tool.title} ({reason})") from error
