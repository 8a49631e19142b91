"""Decodes JSON of others, whose memory and depth are bounded before anything is made of it.

A value takes up to eighty times its length in memory: a list of empty lists of 250 MiB takes 6 GB.
What is nested more than a thousand levels deep exceeds Python's stack, in the decoder or in
whatever walks over the result.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar, overload

from llama_load.outside.budget import has_one_budget, spend_bytes

# Documents of people have fewer than 20 levels.
MOST_DEPTH = 100
MOST_MEMORY_BYTES = 2 << 30
# What CPython takes for a list, an object with its first keys, and a value with its place.
LIST_BYTES = 88
OBJECT_BYTES = 272
VALUE_BYTES = 40
# Of the budget of a command, in bytes of a table that take as long to read: values of JSON this
# many times their memory, and a name with its value 6 µs more.
TIME_OF_VALUES = 4
BYTES_OF_NAME = 800
# A string that never ends is one match, up to the end: looking for its end from each of its quotes
# would take quadratic time.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# Of an integer with more digits no float can be made, so that reports would end in a traceback.
MOST_DIGITS = 300
_LONG_NUMBER = re.compile(rb"(?<![0-9])[0-9]{%d}" % (MOST_DIGITS + 1))
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))

_CONTAINERS = (dict, list)

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class TooDeep(ValueError):
    """JSON of others has too many levels, or would take too much memory."""


class TooMany(ValueError):
    """JSON of others has too many values."""


@overload
def decode_foreign(data: Buffer) -> Any: ...
@overload
def decode_foreign(data: Buffer, kind: type[T]) -> T: ...
def decode_foreign(data: Buffer, kind: Any = Any) -> Any:
    """The JSON value, of this type. Raises ValueError: it is none, has over `MOST_DEPTH` levels, an
    integer of over `MOST_DIGITS` digits or an object with a name twice, of which readers take
    different ones; or it is too large decoded."""
    import msgspec  # the sampler of telemetry does without

    check_json(data)
    _refuse_long_numbers(data)
    value = msgspec.json.decode(data)
    if _STRING.sub(b"", data).count(b":") != _names_in(value):
        raise ValueError("it has an object with a name twice")
    return value if kind is Any else msgspec.json.decode(data, type=kind)


def check_json(data: Buffer) -> None:
    """Raises TooDeep, before it is decoded."""
    whole = data if isinstance(data, bytes) else bytes(data)
    brackets = whole.count(b"[") + whole.count(b"{")
    is_small = len(whole) * VALUE_BYTES <= MOST_MEMORY_BYTES
    is_flat = brackets <= MOST_DEPTH
    if is_small and is_flat and not has_one_budget():
        return

    structure = _STRING.sub(b"", whole)  # brackets and commas in texts are none
    memory = _memory_of(structure) + len(whole)
    if has_one_budget():
        names = structure.count(b":")
        spend_bytes(decoded=TIME_OF_VALUES * memory + BYTES_OF_NAME * names)
    if memory > MOST_MEMORY_BYTES:
        raise TooDeep(
            f"its values would take {memory / 2**30:.1f} GiB of memory, over the limit of "
            f"{MOST_MEMORY_BYTES >> 30} GiB"
        )
    if _depth_of(structure) > MOST_DEPTH:
        raise TooDeep(f"it is nested too deeply: more than {MOST_DEPTH} levels")


def _refuse_long_numbers(data: Buffer) -> None:
    if _LONG_NUMBER.search(data) and _LONG_NUMBER.search(_STRING.sub(b"", data)):
        raise ValueError(f"it has a number of more than {MOST_DIGITS} digits")


def refuse_many_values(data: bytes, most: int) -> None:
    """Raises TooMany: this JSON has more values than that, in lists and objects."""
    if len(data) < 2 * most:  # each takes a comma beside itself
        return
    structure = _STRING.sub(b"", data)
    if structure.count(b",") + structure.count(b":") > most:
        raise TooMany(f"it has more than {most:,} values")


def _names_in(value: Any) -> int:
    """How many names the objects of a value have together."""
    count = 0
    rest = [value]
    while rest:
        each = rest.pop()
        if type(each) is dict:
            count += len(each)
            rest += [part for part in each.values() if type(part) in _CONTAINERS]
        elif type(each) is list:
            rest += [part for part in each if type(part) in _CONTAINERS]
    return count


def memory_bytes(data: bytes) -> int:
    """What the value of this JSON takes, decoded, about."""
    return _memory_of(_STRING.sub(b"", data)) + len(data)


def _memory_of(structure: bytes) -> int:
    lists = structure.count(b"[")
    objects = structure.count(b"{")
    values = structure.count(b",") + structure.count(b":")
    return LIST_BYTES * lists + OBJECT_BYTES * objects + VALUE_BYTES * values


def _depth_of(structure: bytes) -> int:
    import numpy as np

    brackets = np.frombuffer(structure.translate(None, _NO_BRACKET), np.uint8)
    opens = np.isin(brackets, np.frombuffer(b"[{", np.uint8))
    steps = np.where(opens, np.int8(1), np.int8(-1))
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0))
