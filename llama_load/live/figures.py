"""The registry of a run's live figures: every measured request that has ended, by workload, stage and host, and over time.

Its memory does not grow with the run: latencies are counts of a sketch (`llama_load.live.sketch`), time has steps that get
wider (`llama_load.live.live_series`), and groups are limited. Warm-up and cancelled requests are in no figure, as in the reports.
Records are counted in portions of some hundred, which costs a tenth of counting each; reading counts what is left.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_load.live.live_series import OVER_TIME, TimeSeries
from llama_load.live.sketch import BUCKETS, bucket_of, quantiles_ms
from llama_load.metrics.statistics import is_enough
from llama_load.observed.record import OK, UNFINISHED, RequestRecord
from llama_load.units import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

# The latencies of each group: of a request, and its gaps.
OF_REQUEST = ("ttft", "tpot", "e2el")
LATENCIES = (*OF_REQUEST, "itl")
PERCENTILES = (50.0, 90.0, 99.0)
# Records that wait to be counted: at 100 bytes each they are small, and 512 are counted in under 2 ms.
PORTION = 512
# Combinations of workload, stage and host. All further ones are counted as one.
MOST_GROUPS = 256
# How long a lateness counts as the present one.
LATE_FOR_S = 10.0
# How long the length of an answer counts as that of those under way.
LONG_FOR_S = 120.0
_TOKENS = ("prompt_tokens", "output_tokens", "cached_tokens")
_NUMBERS = (
    "started_mono_ns",
    "ended_mono_ns",
    *_TOKENS,
    "ttft_ms",
    "tpot_ms",
    "e2el_ms",
    "late_ms",
)


class GroupKey(NamedTuple):
    """What a request belongs to. `stage` is the stage's number."""

    workload: str
    stage: int
    host: str


OTHERS = GroupKey("(others)", 0, "(others)")


@dataclass(slots=True)
class Group:
    """The requests of one workload, stage and host, or of several added up.

    Instants are on the run's monotonic clock; `sums_ms` and `sketches` have the keys of `LATENCIES`.
    """

    completed: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    first_ns: int | None = None  # the first started
    last_ns: int | None = None  # the last ended
    sums_ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LATENCIES, 0.0))
    sketches: dict[str, NDArray[np.int64]] = field(
        default_factory=lambda: {name: np.zeros(BUCKETS, np.int64) for name in LATENCIES}
    )

    @property
    def failed(self) -> int:
        """How many requests failed."""
        return self.failures.total()

    @property
    def failure_ratio(self) -> float | None:
        """Failed requests of all that ended; None before the first."""
        ended = self.completed + self.failed
        return self.failed / ended if ended else None

    @property
    def seconds(self) -> float | None:
        """From the first request's start to the last one's end."""
        return None if self.first_ns is None or self.last_ns is None else max(self.last_ns - self.first_ns, 1) / NS_PER_S

    @property
    def request_throughput(self) -> float | None:
        """Completed requests per second."""
        return self.completed / self.seconds if self.seconds else None

    @property
    def output_throughput(self) -> float | None:
        """Output tokens per second."""
        return self.output_tokens / self.seconds if self.seconds else None

    @property
    def tok_per_s_per_user(self) -> float | None:
        """Output tokens/s that one user sees: 1000 / mean TPOT in ms. Mean TPOT 20 ms: 50.0."""
        mean = self.mean_ms("tpot")
        return 1000 / mean if mean else None

    def count(self, latency: str) -> int:
        """The number of values of a latency."""
        return int(self.sketches[latency].sum())

    def mean_ms(self, latency: str) -> float | None:
        """The mean of a latency in ms, exact."""
        count = self.count(latency)
        return self.sums_ms[latency] / count if count else None

    def percentiles_ms(self, latency: str) -> list[float | None]:
        """`PERCENTILES` of a latency, off by less than 1 %; None with too few values (p99: 100)."""
        count, quantiles = self.count(latency), quantiles_ms(self.sketches[latency], PERCENTILES)
        return [value if is_enough(count, p) else None for p, value in zip(PERCENTILES, quantiles, strict=True)]

    def add(self, other: Group) -> None:
        """Add another group's requests."""
        self.completed += other.completed
        self.failures += other.failures
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.output_tokens += other.output_tokens
        self.first_ns = min((ns for ns in (self.first_ns, other.first_ns) if ns is not None), default=None)
        self.last_ns = max((ns for ns in (self.last_ns, other.last_ns) if ns is not None), default=None)
        for name in LATENCIES:
            self.sums_ms[name] += other.sums_ms[name]
            self.sketches[name] += other.sketches[name]


class _Ended(NamedTuple):
    """What is counted of a record: its group, status, `_NUMBERS` (None: not known), and its gaps."""

    key: GroupKey
    status: str
    numbers: tuple[float | None, ...]
    itl_ms: Sequence[float]


class LiveFigures:
    """See above. Records may be added in any order, all from one thread."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._pending: list[_Ended] = []
        self._groups: dict[GroupKey, Group] = {}
        self._late: list[tuple[float, int]] = []  # the largest recent lateness, and when it was
        self._long: list[tuple[float, int]] = []  # the longest recent answers in ns, and when they were noted
        self._series = TimeSeries(now_ns())
        self.gauges: dict[str, float] = {}  # the latest of each
        self.in_flight: Mapping[GroupKey, int] = {}
        self.phase = "preparing"

    # ------------------------------------------------------------------ writing

    def add(self, record: RequestRecord) -> None:
        """Count a record."""
        if record.warmup or record.status in UNFINISHED:
            return
        key = GroupKey(record.workload, record.stage, record.host)
        numbers = tuple(getattr(record, name) for name in _NUMBERS)
        self._keep([_Ended(key, record.status, numbers, record.itl_ms)])

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Count records in packed columns."""
        columns = [batch.column(name).to_pylist() for name in ("workload", "stage", "host", "status", "warmup")]
        numbers = zip(*(batch.column(name).to_pylist() for name in _NUMBERS), strict=True)
        gaps = batch.column("itl_ms")
        values, offsets = gaps.values.to_numpy(zero_copy_only=False), gaps.offsets.to_numpy()
        entries = []
        for place, (workload, stage, host, status, warmup, number) in enumerate(zip(*columns, numbers, strict=True)):
            if not warmup and status not in UNFINISHED:
                entries.append(_Ended(GroupKey(workload, stage, host), status, number, values[offsets[place] : offsets[place + 1]]))
        self._keep(entries)

    def sample(self, phase: str, in_flight: Mapping[GroupKey, int], gauges: Mapping[str, float]) -> None:
        """Note the present phase, the requests in flight, and other gauges, which also become series."""
        self._fold()
        self.phase, self.in_flight, self.gauges = phase, dict(in_flight), dict(gauges)
        self._series.sample(gauges, self._now_ns())

    def _keep(self, ended: Iterable[_Ended]) -> None:
        self._pending += ended
        if len(self._pending) >= PORTION:
            self._fold()

    def _fold(self) -> None:
        """Count the pending records."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        table = np.array([entry.numbers for entry in pending], float)
        numbers = dict(zip(_NUMBERS, table.T, strict=True))
        ok = np.array([entry.status == OK for entry in pending])
        # Of requests that failed no token counts, as in the reports: a refused prompt was never processed.
        for name in _TOKENS:
            numbers[name] = np.where(ok, np.nan_to_num(numbers[name]), 0.0)
        now_ns = self._now_ns()
        self._series.add_requests(self._steps_of(numbers["ended_mono_ns"], now_ns), ~ok)
        self._note_lateness(numbers["late_ms"], now_ns)
        places: dict[GroupKey, list[int]] = {}
        for place, entry in enumerate(pending):
            places.setdefault(entry.key, []).append(place)
        for key, own in places.items():
            group = self._group(key)
            chosen = np.array(own)
            self._count(group, [pending[place] for place in own], {name: column[chosen] for name, column in numbers.items()})
            good = chosen[ok[chosen]]
            if len(good):
                answered = {name: column[good] for name, column in numbers.items()}
                self._count_answers(group, answered, [np.asarray(pending[place].itl_ms, float) for place in good], now_ns)

    def _steps_of(self, instants_ns: NDArray[np.float64], now_ns: int) -> NDArray[np.int64]:
        return self._series.steps_of(instants_ns.astype(np.int64), now_ns)

    def _count_answers(
        self, group: Group, numbers: Mapping[str, NDArray[np.float64]], gaps_ms: Sequence[NDArray[np.float64]], now_ns: int
    ) -> None:
        """Latencies of answers with these numbers, and their tokens over the time in which they came."""
        first_ns, came_ns, lengths = token_instants_ns(numbers, gaps_ms)
        first_steps, gap_steps = self._steps_of(first_ns, now_ns), self._steps_of(came_ns, now_ns)
        for name in OF_REQUEST:
            self._count_latency(group, name, numbers[f"{name}_ms"], first_steps)
        self._count_latency(group, "itl", np.concatenate(gaps_ms), gap_steps)
        share = numbers["output_tokens"] / (1 + lengths)  # of each event of an answer
        self._series.add_tokens(np.concatenate([first_steps, gap_steps]), np.concatenate([share, np.repeat(share, lengths)]))
        self._note_length(float((numbers["ended_mono_ns"] - numbers["started_mono_ns"]).max()), now_ns)

    def _group(self, key: GroupKey) -> Group:
        if key not in self._groups and len(self._groups) >= MOST_GROUPS:
            key = OTHERS
        return self._groups.setdefault(key, Group())

    def _count(self, group: Group, ended: Sequence[_Ended], numbers: Mapping[str, NDArray[np.float64]]) -> None:
        statuses = Counter(entry.status for entry in ended)
        group.completed += statuses.pop(OK, 0)
        group.failures += statuses
        group.prompt_tokens += int(numbers["prompt_tokens"].sum())
        group.cached_tokens += int(numbers["cached_tokens"].sum())
        group.output_tokens += int(numbers["output_tokens"].sum())
        first_ns, last_ns = int(numbers["started_mono_ns"].min()), int(numbers["ended_mono_ns"].max())
        group.first_ns = first_ns if group.first_ns is None else min(group.first_ns, first_ns)
        group.last_ns = last_ns if group.last_ns is None else max(group.last_ns, last_ns)

    def _count_latency(self, group: Group, name: str, values_ms: NDArray[np.float64], steps: NDArray[np.int64]) -> None:
        known = np.isfinite(values_ms)
        values_ms, steps = values_ms[known], steps[known]
        buckets = bucket_of(values_ms)
        group.sums_ms[name] += float(values_ms.sum())
        group.sketches[name] += np.bincount(buckets, minlength=BUCKETS)  # np.add.at takes fifty times as long
        if name in OVER_TIME:
            self._series.add_latencies(name, steps, buckets)

    def _note_length(self, longest_ns: float, now_ns: int) -> None:
        """Answers this long have just ended, so those under way may be as old."""
        self._long = [pair for pair in self._long if now_ns - pair[1] < LONG_FOR_S * NS_PER_S and pair[0] > longest_ns]
        self._long.append((longest_ns, now_ns))

    def _note_lateness(self, late_ms: NDArray[np.float64], now_ns: int) -> None:
        known = late_ms[np.isfinite(late_ms)]
        if len(known):
            self._late = [pair for pair in self._recent(now_ns) if pair[0] > known.max()] + [(float(known.max()), now_ns)]

    def _recent(self, now_ns: int) -> list[tuple[float, int]]:
        return [pair for pair in self._late if now_ns - pair[1] < LATE_FOR_S * NS_PER_S]

    # ------------------------------------------------------------------ reading

    def groups(self) -> dict[GroupKey, Group]:
        """A copy of each group."""
        self._fold()
        return {key: added([group]) for key, group in self._groups.items()}

    @property
    def lateness_ms(self) -> float | None:
        """The largest lateness of a scheduled request in the last ten seconds; None without any."""
        self._fold()
        return max((late_ms for late_ms, _ in self._recent(self._now_ns())), default=None)

    def series(self, version: int, width_s: int) -> dict[str, Any]:
        """The steps changed since a version (see `TimeSeries.since`), or all if the steps have another width by now."""
        self._fold()
        since = version if width_s == self._series.width_s else 0
        changed = self._series.since(since)
        return {"version": self._series.version, "width_s": self._series.width_s, "settled_s": self._settled_s, **changed}

    @property
    def _settled_s(self) -> float:
        """Until when the tokens are complete, s since the begin: those of answers under way are counted when they end."""
        longest_ns = max((length for length, _ in self._long), default=0.0) if sum(self.in_flight.values()) else 0.0
        return max(0.0, self._series.reached_s - longest_ns / NS_PER_S)


def token_instants_ns(
    numbers: Mapping[str, NDArray[np.float64]], gaps_ms: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """When answers' first tokens came, when those after each gap came, and the number of gaps of each answer; ns.

    Started at 0 s, TTFT 500 ms, gaps 100 and 200 ms: 0.5 s; 0.6 and 0.8 s. Without a TTFT (whole answers) all came at the end.
    """
    ended_ns = numbers["ended_mono_ns"]
    first_ns = numbers["started_mono_ns"] + numbers["ttft_ms"] * NS_PER_MS
    first_ns = np.where(np.isfinite(first_ns), np.minimum(first_ns, ended_ns), ended_ns)
    lengths = np.array([len(gaps) for gaps in gaps_ms])
    sums_ms = np.cumsum(np.nan_to_num(np.concatenate(gaps_ms)))
    before = np.concatenate([[0.0], sums_ms])[np.cumsum(lengths) - lengths]  # the sum before each answer's first gap
    since_first_ms = sums_ms - np.repeat(before, lengths)
    came_ns = np.minimum(np.repeat(first_ns, lengths) + since_first_ms * NS_PER_MS, np.repeat(ended_ns, lengths))
    return first_ns, came_ns, lengths


def added(groups: Iterable[Group]) -> Group:
    """All groups in one."""
    total = Group()
    for group in groups:
        total.add(group)
    return total
