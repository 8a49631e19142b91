"""When a figure is known well enough to end a run (--until p99_ttft:5%): a rule that holds for
neighbours in a queue.

Requests that wait in the same queue resemble each other, so intervals for independent values are
several times too narrow: stopping by them covers the truth in 10 to 90 % of runs (docs/search.md).
Here the variance comes from ten batches of consecutive requests, and the rule looks at the run
seldom, since every further look is a chance to stop at a lucky moment.

A run ends if at two looks in a row, of which the wider interval is reported,
- the 95 % interval of the figure is within ± the precision asked for,
- the 95 % interval of the mean latency is within ± 10 % (5 % in an open loop): a queue that has not
  settled shows there first,
- in an open loop, the slots of the servers are not in use for over 85 %: beyond that, queues take
  longer to settle than runs last.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.arithmetic.in_flight import in_flight_at
from llama_load.run_folder.arithmetic.student_t import t_quantile

FIRST_LOOK = 300
GROWTH = 1.4
BATCHES = 10
MEAN_WITHIN = 0.10
MEAN_WITHIN_OPEN = 0.05
MOST_LOAD = 0.85
# A batch must be several times as long as what lies in the queue, or its neighbours resemble it: 64
# users on 8 slots need it.
LEAST_PER_BATCH = 5  # times the requests in flight
# Of the latencies whose values arrive with every record.
E2EL = "e2el"
LATENCIES = ("ttft", "tpot", E2EL)
THROUGHPUT = "throughput"
_PATTERN = re.compile(
    rf"(?:(?P<what>mean|median|p(?P<p>\d{{1,2}}(?:\.\d+)?))_(?P<latency>{'|'.join(LATENCIES)})|{THROUGHPUT})"
    r":(?P<within>\d+(?:\.\d+)?)%"
)
MEDIAN = 50.0
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Until:
    """A figure and the precision at which the run may end."""

    text: str
    within: float  # 0.05 is ± 5 %
    latency: str = ""  # empty: the throughput in requests/s
    percentile: float | None = None  # None: the mean

    @property
    def figure(self) -> str:
        """The figure's name: p99_ttft."""
        return self.text.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at `count` requests showed."""

    count: int
    value: float | None  # of the figure
    within: (
        float | None
    )  # how far its 95 % interval reaches, as a share of it; None: unknown
    obstacle: str = ""  # why that is not good enough; empty: it is
    may_end: bool = False  # the look before was good as well


def parse_until(text: str) -> Until:
    """Parse `p99_ttft:5%`. Raises ValueError with a message for users."""
    match = _PATTERN.fullmatch(text.strip().replace(" ", ""))
    within = float(match["within"]) / 100 if match else 0.0
    if match is None or not 0 < within < 1:
        raise ValueError(
            f"--until takes FIGURE:PERCENT%, such as p99_ttft:5% or throughput:2%, with mean, median or a percentile of "
            f"{', '.join(LATENCIES)}, got {text!r}"
        )
    percentile = (
        None
        if match["what"] in (None, "mean")
        else MEDIAN
        if match["what"] == "median"
        else float(match["p"])
    )
    if percentile == 0:
        raise ValueError(f"--until takes percentiles above 0, got {text!r}")
    return Until(text.strip(), within, match["latency"] or "", percentile)


def next_look(count: int) -> int:
    """The number of requests at the first look after `count`: 300, 420, 588, …"""
    look = FIRST_LOOK
    while look <= count:
        look = math.ceil(look * GROWTH)
    return look


def t_of_batches() -> float:
    """The 97.5 % quantile of Student's t for `BATCHES` means."""
    return t_quantile(0.975, BATCHES - 1)


def batch_means(values: Values) -> Values:
    """The means of ten batches of consecutive values; the first values that do not fill a batch are
    left out."""
    size = len(values) // BATCHES
    return np.asarray(
        values[len(values) - size * BATCHES :].reshape(BATCHES, size).mean(axis=1)
    )


def mean_within(values: Values) -> float | None:
    """How far the mean's 95 % interval from batch means reaches, as a share of the mean: t s /
    sqrt(10) / mean."""
    if len(values) < BATCHES or not (mean := float(values.mean())) > 0:
        return None
    spread = float(batch_means(values).std(ddof=1))
    return t_of_batches() * spread / math.sqrt(BATCHES) / mean


def percentile_within(values: Values, percentile: float) -> float | None:
    """How far the percentile's 95 % interval reaches, on its longer side, as a share of the
    percentile; None where the sample is too small for an end of it.

    The number of values up to the percentile has variance n v, with v = batch size x variance of
    the batch means of the indicator "up to the percentile"; the interval ends at the values of rank
    n p - t sqrt(n v) and n p + t sqrt(n v). Source: Heidelberger and Lewis, Quantile estimation in
    dependent sequences (1984), with batch means for the variance.
    """
    count = len(values)
    p = percentile / 100
    if count < BATCHES:
        return None
    ordered = np.sort(values)
    middle = float(np.percentile(ordered, percentile))
    size = count // BATCHES
    # Values that are independent have p (1 - p); ten batches that agree by chance must not show
    # less.
    variance = max(
        size * float(batch_means((values <= middle).astype(np.float64)).var(ddof=1)),
        p * (1 - p),
    )
    reach = t_of_batches() * math.sqrt(count * variance)
    low = math.floor(count * p - reach)
    high = math.ceil(count * p + reach)
    if low < 1 or high > count or not middle > 0:
        return None
    above = float(ordered[high - 1]) - middle
    below = middle - float(ordered[low - 1])
    return max(above, below) / middle


def load_bound(in_use: Values) -> float | None:
    """The highest share of slots in use that ten batch means of it do not exclude (97.5 %); None
    with too few values."""
    if len(in_use) < BATCHES:
        return None
    spread = float(batch_means(in_use).std(ddof=1))
    return float(in_use.mean()) + t_of_batches() * spread / math.sqrt(BATCHES)


@dataclass(frozen=True, slots=True)
class Requests:
    """The successful requests of a run so far, in order of start: latencies (the one of
    `Until.latency`) and instants in s."""

    latencies: Values
    starts_s: Values
    ends_s: Values

    def rows(self, chosen: slice | NDArray[Any]) -> Requests:
        """Some of them, or all in another order."""
        return Requests(
            self.latencies[chosen], self.starts_s[chosen], self.ends_s[chosen]
        )


class UntilRule:
    """The looks of one run at one figure. `users`: requests in flight in a closed loop, whose first
    ones are left out, because they met an idle server; `slots`: of all servers together, None where
    they are unknown."""

    def __init__(
        self, until: Until, *, is_open: bool, users: int, slots: int | None
    ) -> None:
        self.until = until
        self._is_open = is_open
        self._slots = slots
        self._first = 0 if is_open else users
        self.next_at = FIRST_LOOK  # requests at the next look
        self.last: Look | None = None

    def look(self, requests: Requests) -> Look | None:
        """Look at the run, if enough requests have ended since the last look. `Look.may_end` of the
        second good look in a row."""
        if (count := len(requests.latencies)) < self.next_at:
            return None
        self.next_at = next_look(count)
        before = self.last
        now = self.judge(requests)
        self.last = now
        if before is None or before.obstacle or now.obstacle:
            return now
        return replace(
            now, within=max(now.within or 0.0, before.within or 0.0), may_end=True
        )

    def judge(self, requests: Requests) -> Look:
        """What is known of the figure by these requests."""
        known = ~np.isnan(requests.latencies)
        known[: self._first] = False
        values = requests.latencies[known]
        percentile = self.until.percentile
        if not self.until.latency:
            gaps = np.diff(np.sort(requests.ends_s)[self._first :])
            value = None
            if len(gaps) and gaps.mean() > 0:
                value = 1 / float(gaps.mean())
            within = mean_within(gaps)
        elif percentile is None:
            value = float(values.mean()) if len(values) else None
            within = mean_within(values)
        else:
            value = float(np.percentile(values, percentile)) if len(values) else None
            within = percentile_within(values, percentile)
        return Look(
            len(requests.latencies),
            value,
            within,
            self._obstacle(requests, values, within),
        )

    def _obstacle(
        self, requests: Requests, values: Values, within: float | None
    ) -> str:
        """Why the run may not end at this look; empty if it may."""
        if self._is_open and self._slots is None:
            return "the server's slots are not known, so an open loop cannot be ended early"
        if within is None or within > self.until.within:
            return f"{self.until.figure} is not known to ± {self.until.within:.2g}"
        mean = mean_within(values)
        limit = MEAN_WITHIN_OPEN if self._is_open else MEAN_WITHIN
        if mean is None or mean > limit:
            return f"the mean latency is not known to ± {limit:.0%}"
        in_flight = in_flight_at(requests.starts_s, requests.ends_s, requests.starts_s)
        if len(values) < BATCHES * LEAST_PER_BATCH * float(in_flight.mean()):
            return "a tenth of the run is too short against its requests in flight"
        if self._is_open and self._slots is not None:
            load = load_bound(np.minimum(in_flight, self._slots) / self._slots)
            if load is None or load > MOST_LOAD:
                return f"over {MOST_LOAD:.0%} of the slots may be in use"
        return ""
