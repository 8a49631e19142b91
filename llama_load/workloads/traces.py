"""Recorded arrivals: when requests arrived, and their lengths, from a published trace or a
llama-load run.

    Mooncake, JSON Lines    {"timestamp": 3052, "input_length": 7234, "output_length": 794,
                            "hash_ids": [0, 28]}, ms
    Qwen-Bailian, the same  {"timestamp": 61.114, "chat_id": 159, "parent_chat_id": 55, …}, s;
                            blocks of 16 tokens
    BurstGPT, CSV           Timestamp,Model,Request tokens,Response tokens,…, s
    Azure, CSV              TIMESTAMP,ContextTokens,GeneratedTokens, date and time
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
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from llama_load.errors import UsageError
from llama_load.foreign_files import begin_of
from llama_load.workloads.text_files import MOST_BYTES, decoded, read_whole

MOONCAKE = (
    'Mooncake\'s layout ({"timestamp": ms, "input_length": …, "output_length": …, '
    '"hash_ids": […]}, one per line)'
)
BAILIAN = (
    'Qwen-Bailian\'s layout ({"chat_id", "parent_chat_id", "timestamp": s, "input_length", '
    '"output_length", "hash_ids"})'
)
AZURE = (
    "Azure's layout (CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens)"
)
BURSTGPT = (
    "BurstGPT's layout "
    "(CSV with the columns Timestamp in s, Request tokens and Response tokens)"
)
LAYOUTS = f"{MOONCAKE}, {BAILIAN}, {BURSTGPT}, {AZURE} or a run folder of llama-load"
MOONCAKE_BLOCK = 512  # tokens
BAILIAN_BLOCK = 16  # tokens
SHOWN = 120  # characters of a file quoted in a message

_AZURE = ("timestamp", "contexttokens", "generatedtokens")
_COLUMNS = ("timestamp", "request tokens", "response tokens")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A recorded request: its arrival in s, and its lengths in tokens if known.

    `hash_ids` name the blocks of its prompt (512 tokens each in Mooncake's traces): requests with
    the same first ids begin with the same text.
    """

    at_s: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    hash_ids: tuple[int, ...] = ()


def read_trace_file(path: Path) -> list[Arrival]:
    """The requests of a trace file in file order, at the file's own times. UsageError names the
    invalid line."""
    text = decoded(
        read_whole(path, "trace", MOST_BYTES, missing=f"; give a file in {LAYOUTS}")
    )
    if text is None:
        raise UsageError(f"the trace {path} is not text; it must have {LAYOUTS}")
    if not text.strip():
        raise UsageError(f"the trace {path} is empty; it must have {LAYOUTS}")
    return list(
        _json_lines(path, text) if text.lstrip().startswith("{") else _csv(path, text)
    )


def block_tokens(path: Path) -> int:
    """Tokens of the blocks that a trace's hash_ids name: 16 in Qwen-Bailian's, which have chat ids,
    512 in Mooncake's."""
    if path.is_dir():
        return MOONCAKE_BLOCK
    first_line = begin_of(path, 1 << 20).partition(b"\n")[0]
    return BAILIAN_BLOCK if b'"chat_id"' in first_line else MOONCAKE_BLOCK


class _Mooncake(msgspec.Struct):
    timestamp: float
    input_length: int | None = None
    output_length: int | None = None
    hash_ids: tuple[int, ...] = ()
    chat_id: int | None = None

    def __post_init__(self) -> None:
        if min(self.input_length or 0, self.output_length or 0) < 0:
            raise ValueError("a length is negative")


def _json_lines(path: Path, text: str) -> Iterator[Arrival]:
    decoder = msgspec.json.Decoder(_Mooncake)
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                entry = decoder.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise UsageError(
                    f"line {number} of the trace {path} does not have {MOONCAKE} or {BAILIAN}: "
                    f"{error}"
                ) from None
            at_s = entry.timestamp / (1000 if entry.chat_id is None else 1)
            yield Arrival(
                at_s,
                entry.input_length,
                entry.output_length,
                entry.hash_ids,
            )


def _csv(path: Path, text: str) -> Iterator[Arrival]:
    lines = csv.reader(io.StringIO(text, newline=""))
    layout = BURSTGPT
    try:
        header = next(filter(None, lines))
        names = [name.strip().lower() for name in header]
        columns, layout, instant = (
            (_AZURE, AZURE, _instant)
            if _AZURE[1] in names
            else (_COLUMNS, BURSTGPT, _seconds)
        )
        if missing := [name for name in columns if name not in names]:
            raise UsageError(
                f"the trace {path} has no column {missing[0]!r}, but begins with "
                f"{_shown_fields(header)!r}; it must have {LAYOUTS}"
            )
        at, request, response = map(names.index, columns)
        for fields in filter(None, lines):
            try:
                yield Arrival(
                    instant(fields[at]),
                    _tokens(fields[request]),
                    _tokens(fields[response]),
                )
            except (ValueError, IndexError):
                sentence = (
                    f"line {lines.line_num} of the trace {path}, {_shown_fields(fields)!r}, does "
                    f"not have {layout}"
                )
                raise UsageError(sentence) from None
    except csv.Error as error:
        raise UsageError(
            f"line {lines.line_num} of the trace {path} does not have {layout}: {error}"
        ) from None


def _shown_fields(fields: list[str]) -> str:
    return textwrap.shorten(
        ",".join(fields),
        SHOWN,
        placeholder="…",
    )


def _instant(text: str) -> float:
    """Seconds since 1970 of a date and time, UTC without a time zone: `2023-11-16
    18:17:03.9799600`. Digits after the microseconds are ignored."""
    at = datetime.fromisoformat(text.strip())
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


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
