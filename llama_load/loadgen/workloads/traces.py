"""Recorded arrivals: when requests arrived, and their lengths, from a published trace or a
llama-load run.

    Mooncake, JSON Lines    {"timestamp": 3052, "input_length": 7234, "output_length": 794,
                            "hash_ids": [0, 28]}, ms
    Qwen-Bailian, the same  {"timestamp": 61.114, "chat_id": 159, "parent_chat_id": 55, …}, s;
                            blocks of 16 tokens
    BurstGPT, CSV           Timestamp,Model,Request tokens,Response tokens,…, s
    Azure, CSV              TIMESTAMP,ContextTokens,GeneratedTokens, date and time
    a run folder            when its measured requests were scheduled (open loop) or started

Any other file is read by the names of its columns (`line_fields.TRACE`); where neither the layout
nor a name says the unit of its times, --trace-unit must. Lines need not be in order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.ground.units import quantity
from llama_load.loadgen.workloads.arrival import Arrival
from llama_load.loadgen.workloads.data_files import DataFile
from llama_load.loadgen.workloads.line_fields import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    TRACE,
    UNITS,
    folded,
    trace_fields,
    without_unit,
)
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import printable
from llama_load.servers.block_tokens import BAILIAN_BLOCK

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
# The mean rate above which a unit that was not given is taken for the wrong one: public traces of
# whole services have up to 50/s, and s read as ms gives a thousand times the rate.
MOST_IMPLIED_RPS = 200.0
MOST_BLOCK_TOKENS = 1 << 16
NO_INPUT = "without a prompt length (--input-len sends them)"
NO_OUTPUT = (
    "without an answer length, as of requests that failed (--output-len sends them)"
)
_OBJECT: msgspec.json.Decoder[Mapping[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_TIMES = [folded(name) for name in TRACE["at"]]
# Qwen-Bailian's and BurstGPT's times are in seconds.
_LAYOUTS_IN_S = (
    {"timestamp", "chatid", "parentchatid"},
    {"timestamp", "requesttokens", "responsetokens"},
)
_MOONCAKE_KEYS = {"timestamp", "inputlength", "outputlength", "hashids"}


@dataclass(frozen=True, slots=True)
class Trace:
    """Recorded arrivals; the tokens of the blocks that their hash_ids name; what of the file is
    left out, by reason, and the names of fields that change no request, or that --columns leaves
    out."""

    arrivals: list[Arrival]
    block_tokens: int = MOONCAKE_BLOCK
    left_out: Counter[str] = field(default_factory=Counter)
    ignored: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    def with_lengths(
        self, path: Path, input_len: int | None, *, sets_answers: bool
    ) -> Trace:
        """The arrivals that have lengths, or get them from flags. UsageError: none has."""
        left_out: Counter[str] = Counter()
        kept = []
        for arrival in self.arrivals:
            if arrival.input_tokens is None and input_len is None:
                left_out[NO_INPUT] += 1
            elif arrival.output_tokens is None and not sets_answers:
                left_out[NO_OUTPUT] += 1
            else:
                kept.append(arrival)
        if not kept:
            raise UsageError(
                f"no request of the trace {path} has both lengths: give --input-len and "
                "--output-len, or name the columns with --columns, such as "
                "input_tokens=in,output_tokens=out"
            )
        return replace(self, arrivals=kept, left_out=self.left_out + left_out)


def read_trace_file(
    path: Path, unit: str | None = None, columns: Mapping[str, str] | None = None
) -> Trace:
    """The requests of a trace file in file order, at the file's own times; `unit`: that of the
    times, s, ms, us or ns. UsageError names the invalid line, or asks for the unit."""
    file = DataFile(path, LAYOUTS, "trace", "--trace")
    if not len(file):
        return Trace([])
    reader = _Rows(file.decode(0, _OBJECT), file.where(0), columns)
    arrivals = [reader.arrival(row, where) for row, where in file.decoded(_OBJECT)]
    factor = 1.0
    if not reader.has_dates:
        times = [arrival.at_s for arrival in arrivals]
        is_mooncake = reader.is_mooncake
        factor = UNITS[unit or reader.unit or _implied_unit(path, times, is_mooncake)]
    return Trace(
        [replace(arrival, at_s=arrival.at_s * factor) for arrival in arrivals],
        reader.block_tokens,
        ignored=tuple(reader.fields.ignored),
        unread=tuple(reader.fields.unread),
    )


def _implied_unit(path: Path, times: Sequence[float], is_mooncake: bool) -> str:
    """The unit of times that no name tells: ms in Mooncake's layout, where they are whole, if that
    is a load that servers get. UsageError asks for it."""
    span = max(times) - min(times)
    if not span:
        return "ms"
    count = len(times)
    if not is_mooncake or not all(map(float.is_integer, times)):
        why = f"the trace {path} does not say the unit of its times"
    elif count / (span * UNITS["ms"]) > MOST_IMPLIED_RPS:
        why = f"the trace {path} has Mooncake's layout, but not its rates"
    else:
        return "ms"
    raise UsageError(_ask_for_unit(why, count, span))


def _ask_for_unit(why: str, count: int, span: float) -> str:
    seconds = span_and_rate(count, span)
    ms = span_and_rate(count, span * UNITS["ms"])
    return (
        f"{why}: {seconds} if it is seconds, {ms} if it is ms; give --trace-unit s or "
        "--trace-unit ms"
    )


def span_and_rate(count: int, span_s: float) -> str:
    """`12 requests in 2.75 s, 4.4/s`: of arrivals, with their mean rate."""
    requests = quantity(count, "request")
    if not span_s:
        return f"{requests} at once"
    return f"{requests} in {_in_full(span_s)} s, {_in_full(count / span_s, 2)}/s"


def _in_full(number: float, digits: int = 3) -> str:
    """In full where it is large: 3,600 and not 3.6e+03."""
    if number >= 10**digits:
        return f"{number:,.0f}"
    return f"{number:.{digits}g}"


class _Rows:
    """Reads the rows of a trace whose first one is known."""

    def __init__(
        self, first: Mapping[str, Any], where: str, columns: Mapping[str, str] | None
    ) -> None:
        self.fields = trace_fields(columns)
        self._key, self.unit = _time_key(first, self.fields.column("at"), where)
        given = first.get(self._key)
        self.has_dates = isinstance(given, str) and _finite_number(given) is None
        keys = {folded(key) for key in first}
        if self.unit is None and any(layout <= keys for layout in _LAYOUTS_IN_S):
            self.unit = "s"
        self.is_mooncake = keys >= _MOONCAKE_KEYS
        self.block_tokens = _block_tokens(first, where)
        self._numbers: dict[str, int] = {}

    def arrival(self, row: Mapping[str, Any], where: str) -> Arrival:
        """UsageError: no time, a key that is not known, or a length that is none."""
        if row.get(self._key) in (None, ""):
            if "delay" in row:
                raise UsageError(
                    f"{where} has a delay and no {self._key!r}: it is a later turn of a session: "
                    "send the file with conversations.py"
                )
            raise UsageError(f"{where} has no {self._key!r}, the time of its request")
        rest = {key: value for key, value in row.items() if key != self._key}
        read = self.fields.read(rest, where, without="at")
        return Arrival(
            self._at(row[self._key], where),
            _tokens(read.get(INPUT_TOKENS), INPUT_TOKENS, where),
            _tokens(read.get(OUTPUT_TOKENS), OUTPUT_TOKENS, where),
            self._ids(read.get("hash_ids"), where),
        )

    def _at(self, value: Any, where: str) -> float:
        if self.has_dates:
            try:
                return _instant(str(value))
            except ValueError:
                shown = printable(repr(value), 60)
                raise UsageError(
                    f"{where} has {self._key} {shown}, which is no date and time"
                ) from None
        number = _finite_number(value)
        if number is None:
            shown = printable(repr(value), 60)
            raise UsageError(f"{where} has {self._key} {shown}, which is no number")
        return number

    def _ids(self, value: Any, where: str) -> tuple[int, ...]:
        """Names of blocks; those that are texts are numbered."""
        if value is None:
            return ()
        if isinstance(value, str):
            try:
                value = decode_foreign(value.encode())
            except ValueError:
                value = None
        if not isinstance(value, list) or not all(
            isinstance(one, int | str) for one in value
        ):
            raise UsageError(f"{where} has hash_ids that are no list of ids")
        numbers = self._numbers
        return tuple(
            one if isinstance(one, int) else -1 - numbers.setdefault(one, len(numbers))
            for one in value
        )


def _time_key(
    first: Mapping[str, Any], column: str | None, where: str
) -> tuple[str, str | None]:
    """The key of the times, and the unit in its name."""
    if column is not None:
        return column, without_unit(column)[1]
    best = len(_TIMES)
    found = None
    for key in first:
        name, unit = without_unit(key)
        if folded(key) in _TIMES:
            name = key
            unit = None
        if folded(name) in _TIMES[:best]:
            best = _TIMES.index(folded(name))
            found = (key, unit)
    if found is None:
        names = ", ".join(printable(repr(key), 60) for key in list(first)[:12])
        raise UsageError(
            f"{where} has no time, but {names or 'nothing'}: name its column with --columns, such "
            f"as timestamp=NAME; known are {LAYOUTS}"
        )
    return found


def _block_tokens(first: Mapping[str, Any], where: str) -> int:
    """Tokens of the blocks that hash_ids name: 16 in Qwen-Bailian's, which have chat ids, 512 in
    Mooncake's."""
    given = first.get("block_size")
    if given is not None:
        size = _tokens(given, "block_size", where) or 0
        if not 1 <= size <= MOST_BLOCK_TOKENS:
            raise UsageError(f"{where} has a block_size of {size} tokens")
        return size
    if "chat_id" in first:
        return BAILIAN_BLOCK
    return MOONCAKE_BLOCK


def _instant(text: str) -> float:
    """Seconds since 1970 of a date and time, UTC without a time zone: `2023-11-16
    18:17:03.9799600`. Digits after the microseconds are ignored."""
    at = datetime.fromisoformat(text.strip())
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _finite_number(value: Any) -> float | None:
    """A finite number, also in a text; None if it is none."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return number


def _tokens(value: Any, name: str, where: str) -> int | None:
    """A length; None if missing or 0, which is BurstGPT's mark of a failed request."""
    if value is None:
        return None
    number = _finite_number(value)
    if number is None or number < 0 or not number.is_integer():
        shown = printable(repr(value), 60)
        raise UsageError(f"{where} has {name} {shown}; it must be 0 or more tokens")
    return int(number) or None
