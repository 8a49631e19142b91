"""Whether one replica is slower or faster than the others, all the time.

Compared are the time per output token and the server's own time per prompt token. (TTFT and E2EL
include queues, whose lengths differ between equal replicas for minutes at high load.) Requests that
are neighbours in time share batches, so single values are not independent. The run is cut into
slices of time; in each slice the median of each replica is compared with the median of the others'.
A replica differs where the median ratio of the slices is large and its sign is the same in nearly
all of them (sign test, two-sided, corrected for the number of replicas and latencies: `CHANCE` in
all). With fewer slices than a sign test needs, all of them have to agree, and the median ratio has
to be four times their scatter (of the logarithms). Equal replicas whose time per token grows with
their batch are called different in at most 1 of 100 runs at 50 to 90 % load, with 5 to 9 slices as
well as with 10 and more (tests/analysis/figures/test_replica_speed.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.statistics import median, sign_test
from llama_load.analysis.statistics.trend import rank_sum_z
from llama_load.run_folder.observed.records import Records

CHANCE = 0.01
# Ten slices of ten must have one sign. With 95 % they do where each has it with 99.5 %: at 2.6
# standard deviations of a slice.
SURE_SIGN = 2.6
# With more slices than this a slice is shorter than the memory of a batch; each has this many
# answers of the least used replica.
SHORTEST_MS = 1e-3  # a cache's tokens may come at one instant
MOST_SLICES = 16
LEAST_SLICES = 10
LEAST_IN_SLICE = 3
# Fewer slices, each with as many answers: the median ratio in scatters that is no chance, and that
# a detection limit has. With 5 slices and their scatter known to a factor of 1.5, 7 are needed.
FEWEST_SLICES = 5
FEW_SCATTERS = 4.0
FEW_DETECTED = 7.0


# Answers of one replica are shorter or longer by this factor in the mean, and by so many standard
# errors in their ranks: equal replicas differ so by chance in less than one of a million runs.
LENGTH_FACTOR = 1.5
LENGTH_Z = 5.0
LEAST_ANSWERS = 10


@dataclass(frozen=True, slots=True)
class ReplicaDifference:
    """The replica that differs most: its host, the latency, and its median / the others'. 2.0:
    twice as slow; 0.5: twice as fast. `is_sure`: chance does not explain it."""

    host: str
    latency: str
    ratio: float
    is_sure: bool
    # detection limit: a replica that differs by this would have been called different with 95 %
    detects: float

    @property
    def size(self) -> float:
        """The ratio or its inverse, whichever is above 1."""
        return max(self.ratio, 1 / self.ratio)


def replica_difference(ok: Records, hosts: Sequence[str]) -> ReplicaDifference | None:
    """The largest sure difference, else the largest; None where there are too few answers or one
    replica."""
    with np.errstate(divide="ignore", invalid="ignore"):
        prefill = ok.numbers("server_prompt_ms") / ok.numbers("server_prompt_tokens")
    latencies = {
        "TPOT": ok.numbers("tpot_ms"),
        "time per prompt token": np.where(np.isfinite(prefill), prefill, np.nan),
    }
    place = {host: number for number, host in enumerate(hosts)}
    replica = np.array([place.get(host, -1) for host in ok.strings("host")])
    started = ok.instants("started_mono_ns")
    slices = {
        name: _ratios(values, replica, started, len(hosts))
        for name, values in latencies.items()
    }
    compared = {name: ratios for name, ratios in slices.items() if ratios is not None}
    differences = []
    detects = min((_detected(ratios) for ratios in compared.values()), default=math.inf)
    for name, ratios in compared.items():
        for number, host in enumerate(hosts):
            own = ratios[:, number]
            is_sure = _is_sure(own, looks=len(hosts) * len(compared))
            differences.append(
                ReplicaDifference(
                    host, name, float(np.exp(np.median(own))), is_sure, detects
                )
            )
    return max(
        differences,
        key=lambda difference: (difference.is_sure, difference.size),
        default=None,
    )


@dataclass(frozen=True, slots=True)
class ReplicaLengths:
    """The replica whose answers have another length than the others', all the time: tokens, means."""

    host: str
    tokens: float
    others: float

    @property
    def size(self) -> float:
        """The ratio or its inverse, whichever is above 1."""
        return max(self.tokens / self.others, self.others / max(1e-9, self.tokens))


def replica_lengths(ok: Records, hosts: Sequence[str]) -> ReplicaLengths | None:
    """The replica whose answers differ most in length; None where chance may explain it.

    Replicas get prompts without regard to their answers, so one model gives all of them answers of
    one distribution. 20 answers of 2 tokens, 40 others of 30: 15.
    """
    tokens = ok.numbers("output_tokens")
    known = ~np.isnan(tokens)
    of_host = np.array(ok.strings("host"), dtype=object)
    found = []
    for host in hosts:
        own = tokens[known & (of_host == host)]
        rest = tokens[known & (of_host != host)]
        if min(len(own), len(rest)) < LEAST_ANSWERS:
            continue
        if abs(rank_sum_z(own, rest)) >= LENGTH_Z:
            found.append(ReplicaLengths(host, float(own.mean()), float(rest.mean())))
    largest = max(found, key=lambda each: each.size, default=None)
    return largest if largest is not None and largest.size >= LENGTH_FACTOR else None


def _ratios(
    values: NDArray[np.float64],
    replica: NDArray[np.int64],
    started: NDArray[np.int64],
    count: int,
) -> NDArray[np.float64] | None:
    """Log of each replica's median / the others', by slice; None where the slices would be too few
    or too small."""
    known = ~np.isnan(values) & (replica >= 0)
    values = np.maximum(values[known], SHORTEST_MS)
    replica = replica[known]
    started = started[known]
    least = min((int((replica == number).sum()) for number in range(count)), default=0)
    slices = min(MOST_SLICES, least // LEAST_IN_SLICE)
    if count < 2 or slices < FEWEST_SLICES or started.max() == started.min():
        return None
    if slices >= LEAST_SLICES:
        edges = np.linspace(started.min(), started.max(), slices + 1)[1:-1]
    else:
        edges = np.quantile(started, np.linspace(0, 1, slices + 1)[1:-1])
    number = np.searchsorted(edges, started)
    rows = []
    for part in range(slices):
        medians = [
            median(values[(number == part) & (replica == place)])
            for place in range(count)
        ]
        if None not in medians:
            own = np.array(medians, dtype=np.float64)
            rows.append(
                np.log(
                    own / [np.median(np.delete(own, place)) for place in range(count)]
                )
            )
    return np.array(rows) if len(rows) >= FEWEST_SLICES else None


def _is_sure(logs: NDArray[np.float64], *, looks: int) -> bool:
    """Whether chance does not explain the ratios of one replica's slices, one of so many looks."""
    if len(logs) >= LEAST_SLICES:
        return _chance(logs) * looks <= CHANCE
    agree = bool((logs > 0).all() or (logs < 0).all())
    return agree and bool(abs(np.median(logs)) >= FEW_SCATTERS * logs.std(ddof=1))


def _detected(ratios: NDArray[np.float64]) -> float:
    """The smallest ratio that would have been sure with 95 %, by the scatter of the slices."""
    if len(ratios) >= LEAST_SLICES:
        return float(np.exp(SURE_SIGN * ratios.std(axis=0).max()))
    return float(np.exp(FEW_DETECTED * ratios.std(axis=0, ddof=1).max()))


def _chance(logs: NDArray[np.float64]) -> float:
    """P(at least this many equal signs by chance), two-sided."""
    above = int((logs > 0).sum())
    below = int((logs < 0).sum())
    return min(1.0, 2 * sign_test(max(above, below), len(logs)))
