"""How far an interruption moves the figures: a time in which the server did nothing, or nothing but
one slow prompt.

Whoever waits in that time waits longer by it. So its part of each latency is how much of it lies
within that latency: between start and first token of TTFT, between first and last token of TPOT.
In an open loop requests queue up behind it; they wait longer by at most its length, until no more
are in flight than before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.figures.spoiled import (
    E2EL,
    ITL,
    LEAST_UPPER,
    RATES,
    TPOT,
    TTFT,
    UPPER,
)
from llama_load.analysis.statistics.slices import Instants, Values
from llama_load.ground.units import NS_PER_MS
from llama_load.run_folder.arithmetic.percentiles import is_enough
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.observed.records import Records

Flags = NDArray[np.bool_]

# Parts of a run with figures of their own, from so many requests on.
PART_COLUMNS = ("workload", "host")
LEAST_OF_A_PART = 20


@dataclass(frozen=True, slots=True)
class Moved:
    """The shares by which figures are larger (rates smaller) because of it, by their names (see
    `analysis.figures.spoiled`)."""

    shifts: Mapping[str, float]

    @property
    def largest(self) -> float:
        """The largest of them."""
        return max(self.shifts.values(), default=0.0)

    def beyond(self, limit: float) -> tuple[str, ...]:
        """The figures that move by more."""
        return tuple(name for name, shift in self.shifts.items() if shift > limit)

    def with_shifts(self, shifts: Mapping[str, float]) -> Moved:
        """The larger shift of each figure."""
        larger = dict(self.shifts)
        for name, shift in shifts.items():
            larger[name] = max(shift, larger.get(name, 0.0))
        return Moved(larger)


def moved_by(
    records: Records,
    begin_ns: int,
    end_ns: int,
    *,
    percentiles: Sequence[float],
    stops_streams: bool,
    is_open: bool,
) -> Moved:
    """How far this time moves the figures of the answered requests among these.

    `stops_streams`: answers that had begun stood still as well. Four users, 100 s, nothing for 10 s
    of them: each latency that covers it is longer by 10 s, mean E2EL and rates by 10 %.
    """
    ok = records.where(
        records.equals("status", OK) & records.has("first_token_mono_ns")
    )
    started_ns = ok.instants("started_mono_ns")
    first_ns = ok.optional_instants("first_token_mono_ns")
    last_ns = ok.optional_instants("last_token_mono_ns")
    # Who got a first token meanwhile did not wait for it.
    waited_ms = np.where(
        first_ns >= end_ns, _overlap_ms(started_ns, first_ns, begin_ns, end_ns), 0.0
    )
    if is_open:
        queued = (started_ns >= end_ns) & (
            started_ns < _drained_ns(records, begin_ns, end_ns)
        )
        lasted_ms = (end_ns - begin_ns) / NS_PER_MS
        took_ms = (first_ns - started_ns) / NS_PER_MS
        waited_ms = np.where(queued, np.minimum(lasted_ms, took_ms), waited_ms)
    stood_ms = np.zeros(len(ok))
    if stops_streams:
        stood_ms = _overlap_ms(first_ns, last_ns, begin_ns, end_ns)

    return _moved(ok, waited_ms, stood_ms, percentiles=percentiles, is_open=is_open)


def moved_without(
    ok: Records, waited_ms: Values, *, percentiles: Sequence[float], is_open: bool
) -> Moved:
    """How far these waits before the first tokens move the figures of these answered requests.

    2 of 100 waited for 1 s, TTFT is 300 ms without: mean TTFT is 320 ms, 6 % more.
    """
    waited_ms = np.minimum(waited_ms, np.nan_to_num(ok.numbers("ttft_ms"), nan=np.inf))
    stood_ms = np.zeros(len(ok))
    return _moved(ok, waited_ms, stood_ms, percentiles=percentiles, is_open=is_open)


def moved_at_the_end(
    ok: Records, late_ms: Values, *, percentiles: Sequence[float], is_open: bool
) -> Moved:
    """How far last events that came so late move the figures of these answered requests.

    All 100 answers ended 40 ms late, E2EL is 400 ms with it: mean E2EL moves by 10 %.
    """
    waited_ms = np.zeros(len(ok))
    return _moved(ok, waited_ms, late_ms, percentiles=percentiles, is_open=is_open)


def _moved(
    ok: Records,
    waited_ms: Values,
    stood_ms: Values,
    *,
    percentiles: Sequence[float],
    is_open: bool,
) -> Moved:
    """The shifts of requests that waited so long before their first token, and stood still so long
    after it."""
    ttft_ms = ok.numbers("ttft_ms")
    tpot_ms = ok.numbers("tpot_ms")
    e2el_ms = ok.numbers("e2el_ms")
    steps = np.maximum(1.0, (e2el_ms - ttft_ms) / np.maximum(1e-6, tpot_ms))
    changes = {
        TTFT: (ttft_ms, waited_ms),
        TPOT: (tpot_ms, stood_ms / steps),
        E2EL: (e2el_ms, waited_ms + stood_ms),
    }
    parts = _rows_of_parts(ok)
    shifts = {}
    for name, (values, more) in changes.items():
        of_parts = [_middle_shift(values[part], more[part]) for part in parts]
        shifts[name] = _largest(of_parts)
    shifts[ITL] = shifts[TPOT]
    shifts[UPPER] = _largest(
        [
            _upper_shift_by(values[part], more[part], percentiles)
            for values, more in changes.values()
            for part in parts
        ]
    )
    if not is_open:
        shifts[RATES] = shifts[E2EL]
    return Moved(shifts)


def _overlap_ms(
    since_ns: Instants, until_ns: Instants, begin_ns: int, end_ns: int
) -> Values:
    """How much of the time lies between these instants."""
    begins = np.maximum(since_ns, begin_ns)
    ends = np.minimum(until_ns, end_ns)
    return np.asarray(np.maximum(0, ends - begins) / NS_PER_MS)


def _drained_ns(records: Records, begin_ns: int, end_ns: int) -> int:
    """When no more requests were in flight than when it began."""
    started_ns = np.sort(records.instants("started_mono_ns"))
    ended_ns = np.sort(records.instants("ended_mono_ns"))

    def in_flight(at_ns: Instants) -> Instants:
        begun = np.searchsorted(started_ns, at_ns, side="right")
        return np.asarray(begun - np.searchsorted(ended_ns, at_ns, side="right"))

    before = int(in_flight(np.array([begin_ns]))[0])
    after_ns = ended_ns[ended_ns >= end_ns]
    drained_ns = after_ns[in_flight(after_ns) <= before]
    return int(drained_ns[0]) if len(drained_ns) else int(ended_ns[-1]) + 1


def _rows_of_parts(ok: Records) -> list[Flags]:
    """All requests, and those of each part that has figures of its own."""
    parts = [np.ones(len(ok), dtype=np.bool_)]
    for column in PART_COLUMNS:
        names = ok.values_of(column)
        if len(names) > 1:
            parts += [ok.equals(column, name) for name in names]
    return [
        part
        for number, part in enumerate(parts)
        if not number or part.sum() > LEAST_OF_A_PART
    ]


def _middle_shift(values: Values, more: Values) -> float:
    """The share of the mean, or of the median, that goes without `more`."""
    known = ~np.isnan(values)
    if not known.any():
        return 0.0
    without = np.maximum(0.0, (values - more)[known])
    of_mean = _share(values[known].mean(), without.mean())
    of_median = _share(np.median(values[known]), np.median(without))
    return max(of_mean, of_median)


def _share(with_it: np.floating[Any], without: np.floating[Any]) -> float:
    """300 with it, 270 without: 0.1."""
    return float(1 - without / with_it) if with_it > 0 else 0.0


def _upper_shift_by(
    values: Values, more: Values, percentiles: Sequence[float]
) -> float:
    """The largest share of a reported upper percentile that goes without `more`."""
    known = ~np.isnan(values)
    without = np.maximum(0.0, (values - more)[known])
    return upper_shift(values[known], without, percentiles)


def upper_shift(
    with_it: Values, without: Values, percentiles: Sequence[float]
) -> float:
    """The largest share of a reported upper percentile that goes without it.

    P99 of 200 values 2.4 s with two slow ones, 1.3 s without: 0.46.
    """
    shifts = []
    for p in percentiles:
        if p >= LEAST_UPPER and is_enough(len(with_it), p):
            share = _share(np.percentile(with_it, p), np.percentile(without, p))
            shifts.append(share)
    return _largest(shifts)


def _largest(shifts: Sequence[float]) -> float:
    return max(shifts, default=0.0)
