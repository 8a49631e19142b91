"""Arrival schedules for open-loop load: the instants at which requests are scheduled, computed
before the run starts.

With a mean gap of m_i = 1/rate before arrival i and gaps x_i drawn from Gamma(shape b, scale
m_i/b), arrival i comes at

    t_i = (x_0 + … + x_i) / (x_0 + … + x_{N-1}) * (m_0 + … + m_{N-1})

so that N arrivals take N/rate for every seed: the first comes after the first gap, the last at
N/rate. `vllm bench serve` does the same, except that it keeps the drawn sum of gaps while the rate
ramps up; here a ramp also takes its exact time.

    process     gaps                     coefficient of variation
    poisson     exponential (b = 1)      1
    gamma       Gamma(b)                 1/sqrt(b): bursts for b < 1, more even for b > 1
    constant    all equal                0

Source: vLLM benchmarks/serve.py, get_request.
"""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from llama_load.ground.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SEEDS = 2**32  # numpy's limit
ROUNDING = 1e-9  # a schedule longer by at most this fraction still fits


@dataclass(frozen=True, slots=True)
class RateRamp:
    """A rate that changes from `start_rps` at the first arrival to `end_rps` at the last, by
    arrival number.

    At position p = i/(N-1): linear start + (end - start) p, exponential start (end/start)^p. From 1
    to 4 requests per second in three arrivals: 1, 2.5, 4 and 1, 2, 4.
    """

    kind: str  # linear or exponential
    start_rps: float
    end_rps: float

    def rates_rps(self, count: int) -> NDArray[np.float64]:
        """The rate at each of `count` arrivals."""
        import numpy as np

        place = np.arange(count) / max(count - 1, 1)
        if self.kind == "linear":
            return np.asarray(self.start_rps + (self.end_rps - self.start_rps) * place)
        return np.asarray(self.start_rps * (self.end_rps / self.start_rps) ** place)

    def span_s(self, count: int) -> float:
        """Duration of `count` arrivals in s: the sum of their mean gaps."""
        return float((1 / self.rates_rps(count)).sum())


def arrivals_s(
    count: int,
    rate_rps: float,
    *,
    burstiness: float = 1.0,
    process: str = "poisson",
    seed: int,
    ramp: RateRamp | None = None,
) -> NDArray[np.float64]:
    """When each of `count` requests, 1 or more, is scheduled, in s from the start of the run,
    ascending; formula above.

    `burstiness` is the shape b of gamma gaps. A ramp ends at the rate. The same seed gives the same
    instants on every machine and with every numpy version, up to the last digits.
    """
    import numpy as np

    rates_rps = np.full(count, rate_rps) if ramp is None else ramp.rates_rps(count)
    mean_gaps = 1 / rates_rps
    gaps = mean_gaps
    if process != "constant":
        # RandomState's random numbers are frozen; those of numpy's newer generators may change with
        # a version.
        gaps = np.random.RandomState(seed % SEEDS).gamma(
            burstiness, mean_gaps / burstiness
        )
    arrivals = np.cumsum(gaps)
    if arrivals[-1] > 0:  # with extreme bursts all gaps may underflow to 0
        arrivals = arrivals / arrivals[-1] * mean_gaps.sum()
    return np.asarray(arrivals)


def for_time(rate_rps: float, seconds: float, *, ramp: RateRamp | None = None) -> int:
    """Number of requests in a run of `seconds`: round(rate x seconds); with a ramp, those that
    arrive by then.

    10 requests per second for 60 s: 600; with a linear ramp from 1 to 10 that takes these 60 s:
    233. UsageError: the number is 0.
    """
    if ramp is None:
        count = round(rate_rps * seconds)
    else:
        most = math.ceil(max(ramp.start_rps, ramp.end_rps) * seconds)
        count = bisect(range(1, most + 1), seconds * (1 + ROUNDING), key=ramp.span_s)
    if count < 1:
        raise UsageError(
            f"at {rate_rps:g} requests per second no request arrives within {seconds:g} s; raise the rate or the time"
        )
    return count


def probe_times_s(rate_rps: float, seed: int) -> Iterator[float]:
    """The scheduled times of probes (--probe-rate), s, without end: one at a random place of each
    interval of 1 / rate.

    Rate 0.5/s: one between 0 and 2 s, one between 2 and 4 s, … The number of probes in a time is as
    even as with a fixed gap, and every moment is as likely as any other, so that probes see the
    load as it is on average: with a fixed gap they would meet a load of the same rhythm (--arrival
    constant) in the same phase again and again.
    """
    draw = random.Random(f"probes {seed}")
    return ((number + draw.random()) / rate_rps for number in itertools.count())


def drawn_by_weight(weights: Mapping[str, float], seed: int) -> Callable[[int], str]:
    """A function from arrival number to workload, drawn by the weights of the user classes;
    deterministic."""
    names = list(weights)
    shares = list(weights.values())
    if len(names) == 1:
        return lambda _: names[0]

    @lru_cache(1 << 16)
    def drawn(number: int) -> str:
        return random.Random(f"workload {seed} {number}").choices(names, shares)[0]

    return drawn
