"""The arrival process and the concurrency at the server, from its log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from truth.log import OK, Entry
from truth.matching import own_entries
from truth.result import Seen
from truth.units import NS_PER_MS, NS_PER_S, mean, percentile, variance

WINDOW_S = 1.0  # of the counts of arrivals


def arrivals(
    requests: Sequence[Seen],
    entries: Sequence[Entry],
    rate_rps: float,
    window_s: float = WINDOW_S,
) -> dict[str, float]:
    """The arrivals of the requests that the client reports.

    `rate_error`: rate over the one asked for, minus 1. Of the gaps `gap_cv`, the coefficient of
    variation (Poisson: 1, even: 0), and `gap_autocorrelation` at lag 1 (0). `count_dispersion`:
    variance over mean of the counts per window (Poisson: 1, even: 0). `mean_instant`: mean place of
    the arrivals between the first (0) and the last (1): 0.5 at a rate that stays. `gap_distance`:
    the largest between the distribution of the gaps and an exponential one with their mean (the
    statistic of Lilliefors). Empty below four arrivals or two windows.
    """
    own = own_entries(requests, entries)
    received = sorted(entry.received_ns / NS_PER_S for entry in own)
    gaps = [later - earlier for earlier, later in pairwise(received)]
    counts = counts_per_window(received, window_s)
    if len(gaps) < 3 or len(counts) < 2:
        return {}

    middle = mean(gaps)
    return {
        "count": float(len(received)),
        "windows": float(len(counts)),
        "rate_error": 1 / middle / rate_rps - 1,
        "gap_cv": variance(gaps) ** 0.5 / middle,
        "gap_autocorrelation": autocorrelation(gaps),
        "count_dispersion": variance(counts) / mean(counts),
        "mean_instant": (mean(received) - received[0]) / (received[-1] - received[0]),
        "gap_distance": distance_to_exponential(gaps),
    }


def distance_to_exponential(gaps: Sequence[float]) -> float:
    """The largest difference of the two distribution functions, 0 to 1."""
    middle = mean(gaps)
    count = len(gaps)
    largest = 0.0
    for place, gap in enumerate(sorted(gaps)):
        below = 1 - math.exp(-gap / middle)
        largest = max(largest, below - place / count, (place + 1) / count - below)
    return largest


def off_schedule_ms(due_ns: Sequence[int], rate_rps: float) -> list[float]:
    """How far each instant is from its place in an even schedule of this rate, whose begin is that
    of half of them."""
    gap_ms = 1000 / rate_rps
    places = [ns / NS_PER_MS - n * gap_ms for n, ns in enumerate(sorted(due_ns))]
    begin = percentile(places, 50)
    return [place - begin for place in places]


def lateness_ms(received_ns: Sequence[int], rate_rps: float) -> list[float]:
    """How far each arrival lies behind an even schedule of this rate, which begins so that none is
    ahead of it. Empty without arrivals."""
    gap_ms = 1000 / rate_rps
    places = [ns / NS_PER_MS - n * gap_ms for n, ns in enumerate(sorted(received_ns))]
    if not places:
        return []
    begin = min(places)
    return [place - begin for place in places]


def counts_per_window(received_s: Sequence[float], window_s: float) -> list[float]:
    """Arrivals in each whole window since the first of them."""
    if not received_s:
        return []
    begin = received_s[0]
    windows = int((received_s[-1] - begin) / window_s)
    counts = [0.0] * windows
    for instant in received_s:
        place = int((instant - begin) / window_s)
        if place < windows:
            counts[place] += 1
    return counts


def autocorrelation(values: Sequence[float]) -> float:
    """At lag 1; 0 where all values are the same."""
    middle = mean(values)
    centred = [value - middle for value in values]
    spread = sum(value * value for value in centred)
    if spread == 0:
        return 0.0
    return sum(earlier * later for earlier, later in pairwise(centred)) / spread


@dataclass(frozen=True, slots=True)
class InFlight:
    """Requests at the server at a time: the most, and the mean over the time in which it had any
    but the last ones: from the first receipt to the last."""

    most: int
    mean: float


def _ended_ns(entry: Entry) -> int:
    if entry.outcome == OK and entry.sent_ns:
        return entry.sent_ns[-1]
    return entry.ended_ns or entry.received_ns


def in_flight(entries: Sequence[Entry]) -> InFlight:
    """A request is in flight from its receipt to just before its last token is sent: a client that
    has it may send the next."""
    if not entries:
        return InFlight(0, 0.0)
    changes = [(entry.received_ns, 1) for entry in entries]
    changes += [(_ended_ns(entry), -1) for entry in entries]
    changes.sort()

    begin = changes[0][0]
    end = max(entry.received_ns for entry in entries)
    most = 0
    now = 0
    area = 0.0
    last = begin
    for instant, change in changes:
        area += now * (min(instant, end) - min(last, end))
        now += change
        most = max(most, now)
        last = instant
    if end == begin:
        return InFlight(most, float(most))
    return InFlight(most, area / (end - begin))
