"""How long a user waits before a later turn: constant, drawn from a distribution, or from a file of
recorded times.

2, constant:2       always 2 s
uniform:1,5         between 1 and 5 s, all equally likely
lognormal:4,1       median 4 s, standard deviation of its logarithm 1: mean 4 * exp(1/2) = 6.6 s
file:PATH           times of a file in s, one per line, drawn with equal probability
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.text_files import read_whole
from llama_load.outside.foreign_text import printable

EXAMPLES = "2, constant:2, uniform:1,5, lognormal:4,1 or file:PATH"
LONGEST_THINK_S = 1e6  # eleven days
MOST_FILE_BYTES = 64 * 2**20
CONSTANT = "constant"
UNIFORM = "uniform"
LOGNORMAL = "lognormal"
FILE = "file"
KINDS = (CONSTANT, UNIFORM, LOGNORMAL, FILE)
OF_FILE = f"{FILE}:"
_NUMBERS = {CONSTANT: 1, UNIFORM: 2, LOGNORMAL: 2}


@dataclass(frozen=True, slots=True)
class ThinkTime:
    """A distribution of think times in s: its kind with its numbers, or the times of a file."""

    kind: str
    numbers: tuple[float, ...]

    def draw(self, source: random.Random) -> float:
        """One think time, s."""
        draws: Mapping[str, Callable[[], float]] = {
            CONSTANT: lambda: self.numbers[0],
            UNIFORM: lambda: source.uniform(*self.numbers),
            LOGNORMAL: lambda: source.lognormvariate(
                math.log(self.numbers[0]), self.numbers[1]
            ),
            FILE: lambda: source.choice(self.numbers),
        }
        return min(draws[self.kind](), LONGEST_THINK_S)


def think_time(text: str, flag: str = "--think-time") -> ThinkTime:
    """The distribution that a text names. UsageError: it names none, or the file has no times."""
    kind, colon, rest = text.strip().partition(":")
    if not colon:
        rest = kind
        kind = CONSTANT
    if kind == FILE and rest:
        return ThinkTime(FILE, _times_of(Path(rest)))
    numbers = tuple(map(_number, rest.split(",")))
    if kind not in _NUMBERS or len(numbers) != _NUMBERS[kind] or None in numbers:
        raise UsageError(
            f"{flag} must look like {EXAMPLES} (seconds, 0 to {LONGEST_THINK_S:g}), got "
            f"{printable(text, 60)!r}"
        )
    values = tuple(number or 0.0 for number in numbers)
    if kind == UNIFORM and values[0] > values[1]:
        raise UsageError(
            f"{flag} uniform needs the smaller number first, got {values[0]:g},{values[1]:g}"
        )
    if kind == LOGNORMAL and (not values[0] or values[1] > 10):
        raise UsageError(
            f"{flag} lognormal needs a median above 0 and a sigma of 10 or less, got "
            f"{values[0]:g},{values[1]:g}"
        )
    return ThinkTime(kind, values)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= LONGEST_THINK_S else None


def _times_of(path: Path) -> tuple[float, ...]:
    data = read_whole(path, "file of think times", MOST_FILE_BYTES)
    times = []
    for number, line in enumerate(
        data.decode("utf-8", "replace").splitlines(), start=1
    ):
        if line.strip():
            value = _number(line.strip())
            if value is None:
                raise UsageError(
                    f"line {number} of {path} is no think time in seconds: "
                    f"{printable(line.strip(), 60)!r}"
                )
            times.append(value)
    if not times:
        raise UsageError(
            f"{path} contains no think time; write one per line, in seconds"
        )
    return tuple(times)
