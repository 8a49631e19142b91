"""Recorded arrivals: when requests arrived, and their lengths, from a published trace or a llama-load run.

    Mooncake, JSON Lines    {"timestamp": 3052, "input_length": 7234, "output_length": 794, "hash_ids": [0, 28]}, ms
    BurstGPT, CSV           Timestamp,Model,Request tokens,Response tokens,…, s
    a run folder            when its measured requests were scheduled (open loop) or started

The format is recognized by the content. Lines need not be in order.
"""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from llama_load.errors import UsageError
from llama_load.workloads.text_files import decoded

MOONCAKE = 'Mooncake\'s layout ({"timestamp": ms, "input_length": …, "output_length": …, "hash_ids": […]}, one per line)'
BURSTGPT = "BurstGPT's layout (CSV with the columns Timestamp in s, Request tokens and Response tokens)"
LAYOUTS = f"{MOONCAKE}, {BURSTGPT} or a run folder of llama-load"
SHOWN = 120  # characters of a file quoted in a message

_COLUMNS = ("timestamp", "request tokens", "response tokens")
TraceRow: TypeAlias = tuple[float, int | None, int | None, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A recorded request: its arrival in s after the first one, and its lengths in tokens if known.

    `hash_ids` name the blocks of its prompt (512 tokens each in Mooncake's traces): requests with the same first ids begin with the
    same text.
    """

    at_s: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    hash_ids: tuple[int, ...] = ()


def read_trace_file(path: Path) -> list[TraceRow]:
    """The requests of a trace file in file order. UsageError names the invalid line."""
    try:
        text = decoded(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"there is no trace at {path}; give a file in {LAYOUTS}") from None
    except OSError as error:
        raise UsageError(f"the trace {path} cannot be read: {error.strerror}") from None
    if text is None:
        raise UsageError(f"the trace {path} is not text; it must have {LAYOUTS}")
    if not text.strip():
        raise UsageError(f"the trace {path} is empty; it must have {LAYOUTS}")
    return list(_mooncake(path, text) if text.lstrip().startswith("{") else _burstgpt(path, text))


class _Mooncake(msgspec.Struct):
    timestamp: float
    input_length: int | None = None
    output_length: int | None = None
    hash_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if min(self.input_length or 0, self.output_length or 0) < 0:
            raise ValueError("a length is negative")


def _mooncake(path: Path, text: str) -> Iterator[TraceRow]:
    decoder = msgspec.json.Decoder(_Mooncake)
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                entry = decoder.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise UsageError(f"line {number} of the trace {path} does not have {MOONCAKE}: {error}") from None
            yield entry.timestamp / 1000, entry.input_length, entry.output_length, entry.hash_ids


def _burstgpt(path: Path, text: str) -> Iterator[TraceRow]:
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        header = next(filter(None, lines))
        names = [name.strip().lower() for name in header]
        if missing := [name for name in _COLUMNS if name not in names]:
            raise UsageError(
                f"the trace {path} has no column {missing[0]!r}, but begins with {_shown(header)!r}; it must have {LAYOUTS}"
            )
        at, request, response = map(names.index, _COLUMNS)
        for fields in filter(None, lines):
            try:
                yield _seconds(fields[at]), _tokens(fields[request]), _tokens(fields[response]), ()
            except (ValueError, IndexError):
                sentence = f"line {lines.line_num} of the trace {path}, {_shown(fields)!r}, does not have {BURSTGPT}"
                raise UsageError(sentence) from None
    except csv.Error as error:
        raise UsageError(f"line {lines.line_num} of the trace {path} does not have {BURSTGPT}: {error}") from None


def _shown(fields: list[str]) -> str:
    return textwrap.shorten(",".join(fields), SHOWN, placeholder="…")


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _tokens(text: str) -> int | None:
    """A length; None if missing or 0, which is BurstGPT's mark of a failed request."""
    value = float(text) if text.strip() else 0.0
    if value < 0 or not value.is_integer():
        raise ValueError(text)
    return int(value) or None
