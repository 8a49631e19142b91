"""Single requests that move a mean, though they are too few for any test of groups: a model that
loads, a cold cache.

The slowest request of an honest queue moves the mean of 40 requests by 5 % and more, too. So it
counts only where its quotient at equal work (see `analysis.statistics.equal_work`) is far from the next one. Of
lognormal quotients with sigma 0.5, the largest of 40 is 6 x the next in less than one of 1000 runs,
with sigma 1 in less than one of 100.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.statistics import log_chosen

Values = NDArray[np.float64]
Instants = NDArray[np.int64]

# The slowest requests, at most this share (one at least), are outliers if they are this many times
# as slow as the next. More of them count where all waited at one time, in which no other one was
# served (a server that stood still), or where all others started before or after them (a server
# that was slow then), or where none had been served when they began (the start of a server).
MOST_SHARE = 0.02
LEAST_FACTOR = 6.0
MOST_AT_ONCE = 0.2
# A smaller factor is enough where the others scatter little: in logarithms, this
# many times as far from the next one as that is from the median; and where it makes this part of
# the mean. False alarms: benchmarks/two_groups.py.
FAR_APART = 4
LEAST_ALONE = 2.5
LEAST_SHIFT = 0.05
FEWEST = 12
# Several slow requests among the first ones, as where each new length of prompt is compiled: none
# after this part of the run is as slow, by this factor; they are this slow in the median; and that
# they are the first ones is as unlikely by chance as this (logarithm).
LATEST_START = 0.4
LEAST_STEP = 1.15
LEAST_SLOW = 1.5
LEAST_LOG_CHANCE = -14.0


@dataclass(frozen=True, slots=True)
class Outliers:
    """The places of requests that stand alone, and the mean with and without them."""

    places: NDArray[np.int64]
    factor: float  # the least of their quotients / the next
    mean: float
    mean_without: float

    @property
    def shift(self) -> float:
        """The share of the mean that they make: 750 with, 300 without: 0.6."""
        return 1 - self.mean_without / self.mean


def outliers(
    values: Values,
    quotients: Values,
    begun: Instants,
    until: Instants,
    *,
    are_alike: bool = False,
) -> Outliers | None:
    """The slowest requests, if their quotients stand alone; None where they do not. All in order of
    their start; `begun`, `until`: when each value was measured. `are_alike`: a smaller factor is
    enough where the others scatter little (times of few steps do by chance).

    39 of 300 ms, one of 18 s, equal work: it, 60.
    """
    count = len(values)
    if count < FEWEST:
        return None
    order = np.argsort(-quotients)
    most = max(1, int(MOST_SHARE * count), int(MOST_AT_ONCE * count))
    slowest = order[:most]
    factors = quotients[slowest] / quotients[order[1 : most + 1]]
    latest_begun = np.maximum.accumulate(begun[slowest])
    earliest_until = np.minimum.accumulate(until[slowest])
    ended = np.sort(until)
    ended_meanwhile = np.searchsorted(ended, earliest_until) - np.searchsorted(
        ended, latest_begun, side="right"
    )
    at_once = (latest_begun < earliest_until) & (ended_meanwhile == 0)
    before_any_ended = latest_begun < ended[0]
    numbers = np.arange(most)
    span = np.maximum.accumulate(slowest) - np.minimum.accumulate(slowest)
    few = numbers < max(1, int(MOST_SHARE * count))
    is_one_time = at_once | (span == numbers) | before_any_ended
    factors = np.where(few | is_one_time, factors, 0.0)
    number = int(np.argmax(factors)) + 1
    factor = float(factors[number - 1])
    found = _outliers(values, order[:number], factor)
    if factor >= LEAST_FACTOR:
        return found
    if not are_alike:
        return None
    at_start = _slow_at_start(values, quotients, order)
    if at_start is not None:
        return at_start
    others = quotients[order[number:]]
    scatter = float((others[0] / np.median(others)) ** FAR_APART)
    is_of_few = number <= max(1, MOST_SHARE * count)
    stands_alone = is_of_few and factor >= max(LEAST_ALONE, scatter)
    return found if stands_alone and found.shift > LEAST_SHIFT else None


def _slow_at_start(
    values: Values, quotients: Values, order: Instants
) -> Outliers | None:
    """The slowest requests, where these are nearly all among the first ones, and no later one is as
    slow. `order`: from the slowest on.

    7 of the first 13 of 200 are the slowest: by chance, 13 over 7 / 200 over 7 = 10^-9.
    """
    count = len(values)
    most = 0
    least = LEAST_LOG_CHANCE
    until = 0
    for number, place in enumerate(order[: int(MOST_AT_ONCE * count)].tolist(), 1):
        until = max(until, place + 1)
        if until > LATEST_START * count:
            break
        factor = quotients[place] / quotients[order[number]]
        chance = log_chosen(until, number) - log_chosen(count, number)
        if factor >= LEAST_STEP and chance < least:
            least = chance
            most = number
    if not most:
        return None

    factor = float(quotients[order[most - 1]] / quotients[order[most]])
    found = _outliers(values, order[:most], factor)
    slow = float(np.median(quotients[found.places])) / float(np.median(quotients))
    return found if found.shift > LEAST_SHIFT and slow >= LEAST_SLOW else None


def _outliers(values: Values, places: Instants, factor: float) -> Outliers:
    rest = np.delete(values, places)
    return Outliers(places, factor, float(values.mean()), float(rest.mean()))
