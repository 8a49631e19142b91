"""Whether one replica is slower or faster than the others, all the time.

Compared are the time per output token and the server's own time per prompt token. (TTFT and E2EL include queues, whose lengths
differ between equal replicas for minutes at high load.) Requests that are neighbours in time share batches, so single values are
not independent. The run is cut into slices of time; in each slice the median of each replica is compared with the median of the
others'. A replica differs where the median ratio of the slices is large and its sign is the same in nearly all of them (sign
test, two-sided, corrected for the number of replicas and latencies: `CHANCE` in all). Equal replicas whose time per token grows
with their batch are called different in at most 1 of 100 runs at 50 to 90 % load (tests/metrics/test_replica_speed.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.statistics import median, sign_test
from llama_load.observed.records import Records

CHANCE = 0.01
# Ten slices of ten must have one sign. With 95 % they do where each has it with 99.5 %: at 2.6 standard deviations of a slice.
SURE_SIGN = 2.6
# With more slices than this a slice is shorter than the memory of a batch; each has this many answers of the least used replica.
SHORTEST_MS = 1e-3  # a cache's tokens may come at one instant
MOST_SLICES, LEAST_SLICES, LEAST_IN_SLICE = 16, 10, 3


@dataclass(frozen=True, slots=True)
class ReplicaDifference:
    """The replica that differs most: its host, the latency, and its median / the others'. 2.0: twice as slow; 0.5: twice as fast.
    `is_sure`: chance does not explain it."""

    host: str
    latency: str
    ratio: float
    is_sure: bool
    detects: float  # detection limit: a replica that differs by this would have been called different with 95 %

    @property
    def size(self) -> float:
        """The ratio or its inverse, whichever is above 1."""
        return max(self.ratio, 1 / self.ratio)


def replica_difference(ok: Records, hosts: Sequence[str]) -> ReplicaDifference | None:
    """The largest sure difference, else the largest; None where there are too few answers or one replica."""
    with np.errstate(divide="ignore", invalid="ignore"):
        prefill = ok.numbers("server_prompt_ms") / ok.numbers("server_prompt_tokens")
    latencies = {"TPOT": ok.numbers("tpot_ms"), "time per prompt token": np.where(np.isfinite(prefill), prefill, np.nan)}
    place = {host: number for number, host in enumerate(hosts)}
    replica = np.array([place.get(host, -1) for host in ok.strings("host")])
    started = ok.instants("started_mono_ns")
    slices = {name: _ratios(values, replica, started, len(hosts)) for name, values in latencies.items()}
    compared = {name: ratios for name, ratios in slices.items() if ratios is not None}
    differences = []
    scatters = [float(ratios.std(axis=0).max()) for ratios in compared.values()]
    detects = float(np.exp(SURE_SIGN * min(scatters))) if scatters else math.inf
    for name, ratios in compared.items():
        for number, host in enumerate(hosts):
            own = ratios[:, number]
            is_sure = _chance(own) * len(hosts) * len(compared) <= CHANCE
            differences.append(ReplicaDifference(host, name, float(np.exp(np.median(own))), is_sure, detects))
    return max(differences, key=lambda difference: (difference.is_sure, difference.size), default=None)


def _ratios(
    values: NDArray[np.float64], replica: NDArray[np.int64], started: NDArray[np.int64], count: int
) -> NDArray[np.float64] | None:
    """Log of each replica's median / the others', by slice; None where the slices would be too few or too small."""
    known = ~np.isnan(values) & (replica >= 0)
    values, replica, started = np.maximum(values[known], SHORTEST_MS), replica[known], started[known]
    least = min((int((replica == number).sum()) for number in range(count)), default=0)
    slices = min(MOST_SLICES, least // LEAST_IN_SLICE)
    if count < 2 or slices < LEAST_SLICES or started.max() == started.min():
        return None
    edges = np.linspace(started.min(), started.max(), slices + 1)[1:-1]
    number = np.searchsorted(edges, started)
    rows = []
    for part in range(slices):
        medians = [median(values[(number == part) & (replica == place)]) for place in range(count)]
        if None not in medians:
            own = np.array(medians, dtype=np.float64)
            rows.append(np.log(own / [np.median(np.delete(own, place)) for place in range(count)]))
    return np.array(rows) if rows else None


def _chance(logs: NDArray[np.float64]) -> float:
    """P(at least this many equal signs by chance), two-sided."""
    return min(1.0, 2 * sign_test(max(int((logs > 0).sum()), int((logs < 0).sum())), len(logs)))
