"""Does a regular expression take linear time? It is tried on texts made of its own pieces, repeated
and then broken off.

A pattern backtracks where two of its parts match the same text, or where a match can begin
everywhere and fail at the end. Both show on repetitions of what the pattern itself looks for. Time
is that of this thread, and only its growth is judged: what seems to grow too fast is measured again
on texts up to sixteen times as long. There, quadratic time grows 256 times, and linear time, that
of a bounded repetition for example, 16 times; what a busy machine adds lies far below the difference.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

# Short ones first: an exponential pattern would not come back from long ones.
SIZES = (16, 20, 24, 28, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
# Below this a measurement is noise. A linear pattern takes a tenth of it for the longest text.
LEAST_S = 0.002
# Times of twice the length: 2 for a linear pattern, 4 for a quadratic one.
MOST_EXPONENT = 1.5
# The longer texts on which that is confirmed: so many times as long, in small steps, because an
# exponential pattern would not come back from a large one; and no longer once one has taken so long.
LONGER = 16
STEP = 1.25
ENOUGH_S = 0.1
MOST_PIECES = 4
BREAKS = ("", "\n!")


def growth(pattern: re.Pattern[Any]) -> tuple[float, str]:
    """The largest exponent of time over length, and the text on which it was seen, or the first
    that is too large; 0 where nothing took long."""
    worst = (0.0, "")
    for unit in units(pattern):
        for end in BREAKS:
            exponent = _exponent(pattern, unit, end)
            if exponent > worst[0]:
                worst = (exponent, f"{unit!r} * n + {end!r}")
            if exponent > MOST_EXPONENT:
                return worst
    return worst


def _exponent(pattern: re.Pattern[Any], unit: str, end: str) -> float:
    shorter = SIZES[0]
    for size in SIZES:
        if _seconds(pattern, _text(unit, size, end)) > LEAST_S:
            took_s = _least_seconds(pattern, _text(unit, size, end))
            if took_s > LEAST_S:
                if size == shorter:
                    return math.inf
                before_s = _least_seconds(pattern, _text(unit, shorter, end))
                exponent = _exponent_of(before_s, took_s, size / shorter)
                return (
                    exponent
                    if exponent <= MOST_EXPONENT
                    else _confirmed(pattern, unit, end, size, took_s)
                )
        shorter = size
    return 0.0


def _confirmed(
    pattern: re.Pattern[Any], unit: str, end: str, size: int, of_size_s: float
) -> float:
    """The exponent from a text of this size to the longest that is bearable."""
    longer = size
    took_s = of_size_s
    while took_s < ENOUGH_S and longer < LONGER * size:
        longer = math.ceil(longer * STEP)
        took_s = _seconds(pattern, _text(unit, longer, end))
    if took_s < 2 * ENOUGH_S:
        took_s = min(took_s, _least_seconds(pattern, _text(unit, longer, end)))
    return _exponent_of(of_size_s, took_s, longer / size)


def _exponent_of(before_s: float, took_s: float, times_as_long: float) -> float:
    return math.log(took_s / max(before_s, 1e-6)) / math.log(times_as_long)


def _least_seconds(pattern: re.Pattern[Any], text: str) -> float:
    """The least of several, because others use the machine, too."""
    return min(_seconds(pattern, text) for _ in range(5))


def _text(unit: str, size: int, end: str) -> str:
    return unit * max(1, size // len(unit)) + end


def _seconds(pattern: re.Pattern[Any], text: str) -> float:
    given: Any = (
        text.encode("latin-1", "replace")
        if isinstance(pattern.pattern, bytes)
        else text
    )
    began_s = time.thread_time()
    for _ in pattern.finditer(given):  # as search, sub and split do
        pass
    return time.thread_time() - began_s


def units(pattern: re.Pattern[Any]) -> Iterator[str]:
    """What is repeated: all pieces of the pattern in their order, each of them, alone and as a
    word, and pairs of the first ones."""
    source = pattern.pattern
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    parsed = re._parser.parse(
        text,
        pattern.flags & ~re.UNICODE if isinstance(source, bytes) else pattern.flags,
    )  # type: ignore[attr-defined]
    pieces = list(dict.fromkeys(filter(None, _pieces(parsed))))
    yield "".join(pieces) or "a"
    chosen = pieces[:MOST_PIECES]
    yield from pieces
    yield from (f"{piece} " for piece in pieces)
    yield from (
        first + second for first, second in product(chosen, repeat=2) if first != second
    )


def _pieces(parsed: Any) -> Iterator[str]:
    """The literals of a parsed pattern as texts, and a character of each class."""
    literal = ""
    for kind, value in parsed:
        if str(kind) == "LITERAL":
            literal += chr(value)
            continue
        yield literal
        literal = ""
        if str(kind) == "IN":
            yield _member(value)
        elif str(kind) in ("ANY", "NOT_LITERAL"):
            yield "a"
        elif str(kind) == "BRANCH":
            for branch in value[1]:
                yield from _pieces(branch)
        elif isinstance(value, tuple):
            for part in value:
                if isinstance(part, re._parser.SubPattern):  # type: ignore[attr-defined]
                    yield from _pieces(part)
        elif isinstance(value, re._parser.SubPattern):  # type: ignore[attr-defined]
            yield from _pieces(value)
    yield literal


def _member(items: Any) -> str:
    """A character of a class; of one that excludes characters a usual one."""
    of_category = {
        "CATEGORY_DIGIT": "1",
        "CATEGORY_SPACE": " ",
        "CATEGORY_WORD": "a",
        "CATEGORY_NOT_SPACE": "a",
        "CATEGORY_NOT_WORD": "-",
    }
    kind, value = items[0]
    if str(kind) == "NEGATE":
        excluded = {chr(number) for name, number in items[1:] if str(name) == "LITERAL"}
        return next(sign for sign in "a1 -=x" if sign not in excluded)
    if str(kind) == "LITERAL":
        return chr(value)
    if str(kind) == "RANGE":
        return chr(value[0])
    return of_category.get(str(value), "a")
