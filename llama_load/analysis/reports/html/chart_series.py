"""Series over the time of a run, for its charts.

Load, throughput and latencies in bins of equal width. Seconds since the start of the measurement.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.figures.rates import token_times_ns
from llama_load.analysis.statistics.gap_times import COLUMNS, gap_times
from llama_load.ground.units import NS_PER_S
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.observed.records import Records

MOST_BINS = 120
WIDTHS_S = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    20,
    30,
    60,
    120,
    300,
    600,
    1800,
    3600,
    7200,
    21600,
)
# Values of a bin from which percentiles are drawn.
PER_BIN = 15
# Up to so many starts and ends each change of the number in flight is drawn.
MOST_STEPS = 400
# The resolution of the ITL's percentiles over time: 5 % of their value.
RATIO = 1.05
LEAST_GAP_MS = 1e-3
GAP_BINS = 500  # up to 1e-3 x 1.05^500 ms: 11 hours

Curve = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time from the first start to the last end of the measured requests, in bins."""

    begun_ns: int
    seconds: float
    width_s: float

    @property
    def bins(self) -> int:
        """Their number.

        The last is half to one and a half as wide as the others: rates over a short rest would be
        accidental.
        """
        return max(1, int(self.seconds / self.width_s + 0.5))

    @property
    def edges(self) -> Curve:
        """The begin of each bin, and the end of the last."""
        return np.append(np.arange(self.bins) * np.float64(self.width_s), self.seconds)

    def at(self, instants_ns: NDArray[np.int64]) -> Curve:
        """Instants as seconds on the axis."""
        return (instants_ns - self.begun_ns) / NS_PER_S

    def bin_of(self, instants_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bin of each instant; what lies outside is in the first or the last."""
        bins = (self.at(instants_ns) / self.width_s).astype(np.int64)
        return np.clip(bins, 0, self.bins - 1)


def time_axis(measured: Records) -> TimeAxis | None:
    """The axis of these requests, with at most `MOST_BINS` bins; None where there is no time."""
    if not len(measured):
        return None

    begun_ns = int(measured.instants("started_mono_ns").min())
    seconds = (int(measured.instants("ended_mono_ns").max()) - begun_ns) / NS_PER_S
    if seconds <= 0:
        return None

    # Fewer bins for few requests: one that holds no request at all says nothing.
    most = min(MOST_BINS, max(8, len(measured)))

    return TimeAxis(begun_ns, seconds, _width_s(seconds, most))


def coarser(axis: TimeAxis, values: int) -> TimeAxis | None:
    """The axis with so few bins that each holds some `PER_BIN` of these values.

    For percentiles; None with too few values for three bins.
    """
    most = min(MOST_BINS, values // PER_BIN)
    if most < 3:
        return None
    return TimeAxis(axis.begun_ns, axis.seconds, _width_s(axis.seconds, most))


def _width_s(seconds: float, most: int) -> float:
    """The smallest round width with which there are at most so many bins."""
    return next(
        (width for width in WIDTHS_S if width * most >= seconds), seconds / most
    )


def in_flight(measured: Records, axis: TimeAxis) -> tuple[Curve, Curve]:
    """Requests in flight: instants, and how many from each on.

    Of many requests the mean of each bin, at its begin.
    """
    starts = axis.at(measured.instants("started_mono_ns"))
    ends = axis.at(measured.instants("ended_mono_ns"))
    instants = np.concatenate((ends, starts))
    steps = np.ones(len(instants), dtype=np.int64)
    steps[: len(ends)] = -1
    order = np.lexsort((steps, instants))
    instants = instants[order]
    level = np.cumsum(steps[order]).astype(np.float64)
    if len(instants) <= MOST_STEPS:
        return instants, level

    area = np.zeros(len(instants))
    np.cumsum(level[:-1] * np.diff(instants), out=area[1:])
    at_edges = np.interp(axis.edges, instants, area)

    return axis.edges[:-1], np.diff(at_edges) / np.diff(axis.edges)


def ended_per_s(measured: Records, axis: TimeAxis) -> tuple[Curve, Curve]:
    """Requests per second of each bin that succeeded, and that failed, by their ends."""
    bins = axis.bin_of(measured.instants("ended_mono_ns"))
    lengths_s = np.diff(axis.edges)
    ok = np.bincount(bins[measured.equals("status", OK)], minlength=axis.bins)
    failed = np.bincount(bins[measured.is_failed()], minlength=axis.bins)
    return ok / lengths_s, failed / lengths_s


def output_tokens_per_s(measured: Records, axis: TimeAxis) -> Curve:
    """Output tokens per second of each bin, by their arrival.

    Those of requests cut at the end are included.
    """
    tokens = np.zeros(axis.bins)
    for events_ns, weights in token_times_ns(measured.where(~measured.is_failed())):
        tokens += np.bincount(
            axis.bin_of(events_ns), weights=weights, minlength=axis.bins
        )
    return tokens / np.diff(axis.edges)


def percentiles_by_bin(
    at_s: Curve, values: Curve, axis: TimeAxis, percentiles: tuple[float, ...]
) -> tuple[Curve, list[Curve]]:
    """Percentiles of the values in each bin that has some.

    The middles of these bins, and a curve per percentile.
    """
    known = ~np.isnan(values)
    place = (at_s[known] / axis.width_s).astype(np.int64)
    place = np.clip(place, 0, axis.bins - 1)
    order = np.argsort(place, kind="stable")
    values = values[known][order]
    bins, firsts = np.unique(place[order], return_index=True)
    parts = np.split(values, firsts[1:]) if len(bins) else []

    rows = np.zeros((len(bins), len(percentiles)))
    for row, part in enumerate(parts):
        rows[row] = np.percentile(part, percentiles)

    return _middles(axis, bins), list(rows.T)


def _middles(axis: TimeAxis, bins: NDArray[np.int64]) -> Curve:
    return (axis.edges[bins] + axis.edges[bins + 1]) / 2


def gap_percentiles_by_bin(
    ok: Records, axis: TimeAxis, percentiles: tuple[float, ...]
) -> tuple[Curve, list[Curve]]:
    """Like `percentiles_by_bin`, of the gaps between tokens by their arrival.

    From counts in steps of 5 %, so that memory does not grow with the number of tokens.
    """
    counts = np.zeros((axis.bins, GAP_BINS), dtype=np.int64)
    least_ms = np.float32(LEAST_GAP_MS)
    log_step = np.float32(np.log(RATIO))
    for places, gaps_ms in _gaps(ok, axis):
        sizes = np.log(np.maximum(gaps_ms, least_ms) / least_ms) / log_step
        columns = np.minimum(sizes, GAP_BINS - 1).astype(np.int64)
        cells = places * GAP_BINS + columns
        counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)

    bins = np.flatnonzero(counts.any(axis=1))
    summed = np.cumsum(counts[bins], axis=1)
    curves = []
    for p in percentiles:
        wanted = summed[:, -1:] * p / 100
        size = (summed < wanted).sum(axis=1)
        curves.append(LEAST_GAP_MS * RATIO ** (size + 0.5))

    return _middles(axis, bins), curves


def _gaps(
    ok: Records, axis: TimeAxis
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The gaps of the requests in batches: the bin in which each ends, and its ms."""
    for batch in ok.where(ok.has("first_token_mono_ns")).batches(*COLUMNS):
        _, gaps_ms, ended_ns = gap_times(batch)
        yield axis.bin_of(ended_ns), gaps_ms


@dataclass(frozen=True, slots=True)
class Bars:
    """The requests of a Gantt chart, one entry each.

    Seconds on the axis, NaN where an instant is unknown. In a row there is one request at a time;
    `rows` are needed for all of them.
    """

    row: NDArray[np.int64]
    rows: int
    number: NDArray[np.int64]  # of the request among all, in order of their starts
    scheduled: Curve
    started: Curve
    first_token: Curve
    last_token: Curve
    ended: Curve
    status: list[str]


def bars(measured: Records, axis: TimeAxis, most: int, most_rows: int) -> Bars:
    """At most `most` requests, one after the other from the middle of the run.

    Of these the first `most_rows` rows.
    """
    started_ns = measured.instants("started_mono_ns")
    ended_ns = measured.instants("ended_mono_ns")
    order = np.argsort(started_ns, kind="stable")
    begin = max(0, (len(order) - most) // 2)
    order = order[begin : begin + most]
    row = _free_rows(started_ns[order], ended_ns[order])
    chosen = np.flatnonzero(row < most_rows)
    records = measured.take(order[chosen])

    def seconds(name: str) -> Curve:
        return np.where(
            records.has(name), axis.at(records.optional_instants(name)), np.nan
        )

    return Bars(
        row=row[chosen],
        rows=int(row.max()) + 1,
        number=begin + chosen + 1,
        scheduled=seconds("scheduled_mono_ns"),
        started=seconds("started_mono_ns"),
        first_token=seconds("first_token_mono_ns"),
        last_token=seconds("last_token_mono_ns"),
        ended=seconds("ended_mono_ns"),
        status=records.strings("status"),
    )


def _free_rows(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each request, in order of their starts, the first row that is free.

    There are as many rows as requests were in flight at once.
    """
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    rows = np.zeros(len(starts), dtype=np.int64)
    used = 0
    for place, (start, end) in enumerate(
        zip(starts.tolist(), ends.tolist(), strict=True)
    ):
        while busy and busy[0][0] <= start:
            _, freed = heapq.heappop(busy)
            heapq.heappush(free, freed)

        if free:
            row = heapq.heappop(free)
        else:
            row = used
            used += 1

        rows[place] = row
        heapq.heappush(busy, (end, row))

    return rows


def at_most(count: int, most: int) -> NDArray[np.int64]:
    """Evenly spaced indices of at most `most` of `count` rows: always the same ones.

    The first and the last are included.
    """
    if not count:
        return np.zeros(0, np.int64)
    places = np.linspace(0, count - 1, min(count, most))
    return np.unique(places.round().astype(np.int64))
