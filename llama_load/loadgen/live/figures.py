"""The registry of a run's live figures.

Every measured request that has ended, by workload, stage and host, and over time. Its memory does
not grow with the run: latencies are counts of a sketch (`llama_load.loadgen.live.sketch`), time has
steps that get wider (`llama_load.loadgen.live.live_series`), and groups are limited. Warm-up and
cancelled requests are in no figure, as in the reports. Records are counted in portions of some
hundred, which costs a tenth of counting each; reading counts what is left.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.live.drawn_tokens import (
    DrawnTokens,
    places_in,
    token_instants_ns,
)
from llama_load.loadgen.live.groups import OF_REQUEST, OTHERS, Group, GroupKey, added
from llama_load.loadgen.live.live_series import OVER_TIME, TimeSeries
from llama_load.loadgen.live.sketch import BUCKETS, Floats, Integers, bucket_of
from llama_load.run_folder.observed.new_tokens import LOOK_EVERY_S, NewTokens
from llama_load.run_folder.observed.record import OK, UNFINISHED, RequestRecord

if TYPE_CHECKING:
    import pyarrow as pa

# Records that wait to be counted: 512 of 100 bytes each are counted in under 2 ms.
PORTION = 512

# Combinations of workload, stage and host. All further ones are counted as one.
MOST_GROUPS = 256
# How long a lateness counts as the present one.
LATE_FOR_S = 10.0
# Answers under way may last as long as any that ended in this time.
LONG_FOR_S = 120.0
# Tokens that are reported as they arrive are complete so long after a look of `TokenWatch`.
SHOWN_AFTER_S = 0.15
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


# `_NUMBERS` of several records.
_Columns = Mapping[str, Floats]


class _Ended(NamedTuple):
    """What is counted of a record.

    Its group, status, `_NUMBERS` (None: not known), its gaps, and how many of its events are
    drawn already.
    """

    key: GroupKey
    status: str
    numbers: tuple[float | None, ...]
    itl_ms: Sequence[float]
    drawn: int


class LiveFigures:
    """See above. Records may be added in any order, all from one thread."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._pending: list[_Ended] = []
        self._groups: dict[GroupKey, Group] = {}
        # The largest recent lateness in ms, and when it was.
        self._late: list[tuple[float, int]] = []
        # The longest recent answers in ns, and when they were noted.
        self._long: list[tuple[float, int]] = []
        self._series = TimeSeries(now_ns())
        self.gauges: dict[str, float] = {}  # the latest of each
        self.in_flight: Mapping[GroupKey, int] = {}
        self.phase = "preparing"
        # The stages that have begun, with the instants in s since the begin.
        self.stages: dict[int, float] = {}
        self._drawn = DrawnTokens(self._series)
        self.looks_every_s = LOOK_EVERY_S  # at answers that go on

    # ------------------------------------------------------------------ writing

    def add(self, record: RequestRecord) -> None:
        """Count a record."""
        if record.warmup:
            return
        drawn = self._drawn.take(record.prompt_index)
        if record.status in UNFINISHED:
            return
        key = GroupKey(record.workload, record.stage, record.host)
        numbers = tuple(getattr(record, name) for name in _NUMBERS)
        ended = _Ended(key, record.status, numbers, record.itl_ms, drawn)
        self._keep([ended])

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Count records in packed columns."""
        numbers = [batch.column(name).to_pylist() for name in _NUMBERS]
        rows = zip(
            batch.column("workload").to_pylist(),
            batch.column("stage").to_pylist(),
            batch.column("host").to_pylist(),
            batch.column("status").to_pylist(),
            batch.column("warmup").to_pylist(),
            batch.column("prompt_index").to_pylist(),
            zip(*numbers, strict=True),
            strict=True,
        )
        gaps = batch.column("itl_ms")
        gaps_ms = gaps.values.to_numpy(zero_copy_only=False)
        offsets = gaps.offsets.to_numpy()
        entries = []
        for place, row in enumerate(rows):
            workload, stage, host, status, warmup, index, own_numbers = row
            if warmup:
                continue
            drawn = self._drawn.take(index)
            if status in UNFINISHED:
                continue

            first_gap = offsets[place]
            after_gaps = offsets[place + 1]
            own_gaps_ms = gaps_ms[first_gap:after_gaps]
            key = GroupKey(workload, stage, host)
            ended = _Ended(key, status, own_numbers, own_gaps_ms, drawn)
            entries.append(ended)

        self._keep(entries)

    def add_tokens(self, arrived: Sequence[NewTokens]) -> None:
        """Draw tokens of answers that go on, each event as one token.

        The record corrects that: it has the number of tokens. An answer whose earlier events were
        not all drawn waits for its record.
        """
        self._drawn.add(arrived, self._now_ns())

    def sample(
        self, phase: str, in_flight: Mapping[GroupKey, int], gauges: Mapping[str, float]
    ) -> None:
        """Note the present phase, the requests in flight, and other gauges.

        Gauges also become series.
        """
        self._fold()
        self.phase = phase
        self.in_flight = dict(in_flight)
        self.gauges = dict(gauges)
        self._series.sample(gauges, self._now_ns())

    def stage_begins(self, stage: int) -> None:
        """Note when a stage has begun, unless that is noted already."""
        if stage not in self.stages:
            begun_s = self._series.seconds_of(self._now_ns())
            self.stages[stage] = begun_s

    def _keep(self, ended: Iterable[_Ended]) -> None:
        self._pending += ended
        if len(self._pending) >= PORTION:
            self._fold()

    def _fold(self) -> None:
        """Count the pending records."""
        pending = self._pending
        self._pending = []
        if not pending:
            return

        table = np.array([entry.numbers for entry in pending], float)
        columns = table.T
        numbers = dict(zip(_NUMBERS, columns, strict=True))
        ok = np.array([entry.status == OK for entry in pending])
        # Of requests that failed no token counts, as in the reports: a refused prompt was never
        # processed.
        for name in _TOKENS:
            tokens = np.nan_to_num(numbers[name])
            numbers[name] = np.where(ok, tokens, 0.0)

        now_ns = self._now_ns()
        ended_ns = numbers["ended_mono_ns"]
        steps = self._steps_of(ended_ns, now_ns)
        self._series.add_requests(steps, ~ok)
        self._note_lateness(numbers["late_ms"], now_ns)

        places: dict[GroupKey, list[int]] = {}
        for place, entry in enumerate(pending):
            of_group = places.setdefault(entry.key, [])
            of_group.append(place)

        for key, own in places.items():
            group = self._group(key)
            chosen = np.array(own)
            ended = [pending[place] for place in own]
            self._count(group, ended, _rows_of(numbers, chosen))

            good = chosen[ok[chosen]]
            if not len(good):
                continue

            gaps_ms = []
            drawn = []
            for place in good:
                answer = pending[place]
                gaps_ms.append(np.asarray(answer.itl_ms, float))
                drawn.append(answer.drawn)

            answers = _rows_of(numbers, good)
            self._count_answers(group, answers, gaps_ms, np.array(drawn), now_ns)

    def _steps_of(self, instants_ns: Floats, now_ns: int) -> Integers:
        whole_ns = instants_ns.astype(np.int64)
        return self._series.steps_of(whole_ns, now_ns)

    def _count_answers(
        self,
        group: Group,
        numbers: _Columns,
        gaps_ms: Sequence[Floats],
        drawn: Integers,
        now_ns: int,
    ) -> None:
        """Latencies of these answers, and their tokens over the time in which they came.

        The first `drawn` events of each are in the series already, each as one token.
        """
        first_ns, came_ns, lengths = token_instants_ns(numbers, gaps_ms)
        first_steps = self._steps_of(first_ns, now_ns)
        gap_steps = self._steps_of(came_ns, now_ns)
        is_first_drawn = drawn > 0
        for name in OF_REQUEST:
            values_ms = numbers[f"{name}_ms"]
            self._count_latency(group, name, values_ms, first_steps, is_first_drawn)

        all_gaps_ms = np.concatenate(gaps_ms)
        is_gap_drawn = places_in(lengths) + 1 < np.repeat(drawn, lengths)
        self._count_latency(group, "itl", all_gaps_ms, gap_steps, is_gap_drawn)

        ttft_ms = numbers["ttft_ms"]
        is_new = np.isfinite(ttft_ms) & ~is_first_drawn
        self._series.add_first_tokens(first_ns[is_new], ttft_ms[is_new])

        # Every event of an answer has the same share of its tokens.
        of_event = numbers["output_tokens"] / (1 + lengths)
        first_tokens = of_event - is_first_drawn
        gap_tokens = np.repeat(of_event, lengths) - is_gap_drawn
        steps = np.concatenate([first_steps, gap_steps])
        tokens = np.concatenate([first_tokens, gap_tokens])
        self._series.add_tokens(steps, tokens)

        took_ns = numbers["ended_mono_ns"] - numbers["started_mono_ns"]
        longest_ns = float(took_ns.max())
        self._note_length(longest_ns, now_ns)

    def _group(self, key: GroupKey) -> Group:
        is_full = len(self._groups) >= MOST_GROUPS
        if is_full and key not in self._groups:
            key = OTHERS
        return self._groups.setdefault(key, Group())

    def _count(self, group: Group, ended: Sequence[_Ended], numbers: _Columns) -> None:
        statuses = Counter(entry.status for entry in ended)
        group.completed += statuses.pop(OK, 0)
        group.failures += statuses
        group.prompt_tokens += int(numbers["prompt_tokens"].sum())
        group.cached_tokens += int(numbers["cached_tokens"].sum())
        group.output_tokens += int(numbers["output_tokens"].sum())
        first_ns = int(numbers["started_mono_ns"].min())
        last_ns = int(numbers["ended_mono_ns"].max())
        group.note_time(first_ns, last_ns)

    def _count_latency(
        self,
        group: Group,
        name: str,
        values_ms: Floats,
        steps: Integers,
        is_drawn: NDArray[np.bool_],
    ) -> None:
        """Count these values; those that are drawn are in the series already."""
        known = np.isfinite(values_ms)
        values_ms = values_ms[known]
        group.sums_ms[name] += float(values_ms.sum())
        buckets = bucket_of(values_ms)
        # np.add.at takes fifty times as long
        counts = np.bincount(buckets, minlength=BUCKETS)
        group.sketches[name] += counts
        if name in OVER_TIME:
            is_new = ~is_drawn[known]
            self._series.add_latencies(name, steps[known][is_new], buckets[is_new])

    def _note_length(self, longest_ns: float, now_ns: int) -> None:
        """Answers this long have just ended, so those under way may be as old."""
        longer = []
        for length_ns, noted_ns in self._long:
            is_recent = now_ns - noted_ns < LONG_FOR_S * NS_PER_S
            if is_recent and length_ns > longest_ns:
                longer.append((length_ns, noted_ns))

        self._long = [*longer, (longest_ns, now_ns)]

    def _note_lateness(self, values_ms: Floats, now_ns: int) -> None:
        known = values_ms[np.isfinite(values_ms)]
        if not len(known):
            return

        latest_ms = float(known.max())
        later = []
        for late_ms, noted_ns in self._recent(now_ns):
            if late_ms > latest_ms:
                later.append((late_ms, noted_ns))

        self._late = [*later, (latest_ms, now_ns)]

    def _recent(self, now_ns: int) -> list[tuple[float, int]]:
        """What is noted in `_late` and counts as the present lateness."""
        recent = []
        for late_ms, noted_ns in self._late:
            if now_ns - noted_ns < LATE_FOR_S * NS_PER_S:
                recent.append((late_ms, noted_ns))

        return recent

    # ------------------------------------------------------------------ reading

    def groups(self) -> dict[GroupKey, Group]:
        """A copy of each group."""
        self._fold()
        copies = {}
        for key, group in self._groups.items():
            copies[key] = added([group])

        return copies

    @property
    def lateness_ms(self) -> float | None:
        """The largest lateness of a scheduled request in the last ten seconds; None without any."""
        self._fold()
        now_ns = self._now_ns()
        recent = self._recent(now_ns)
        if not recent:
            return None

        latest_ms, _ = max(recent)

        return latest_ms

    def series(self, version: int, width_s: int) -> dict[str, Any]:
        """The steps changed since a version (see `TimeSeries.since`).

        All of them if the steps have another width by now.
        """
        self._fold()
        if width_s != self._series.width_s:
            version = 0

        changed = self._series.since(version)

        return {
            "version": self._series.version,
            "width_s": self._series.width_s,
            "settled_s": self._settled_s,
            **changed,
        }

    def last_output(self, steps: int) -> list[float]:
        """Output tokens/s in each of the last steps whose tokens are complete.

        See `TimeSeries.last_output`. Steps are 1 s wide in the first 12 minutes.
        """
        self._fold()
        return self._series.last_output(steps, self._settled_s)

    @property
    def _settled_s(self) -> float:
        """Until when the tokens are complete, s since the begin.

        Those of answers under way are counted when they end, unless they are drawn as they arrive.
        """
        if self._drawn.is_used:
            after_s = self.looks_every_s + SHOWN_AFTER_S
            return max(0.0, self._series.seconds_of(self._now_ns()) - after_s)

        longest_s = 0.0
        if self._long and sum(self.in_flight.values()):
            longest_ns, _ = max(self._long)
            longest_s = longest_ns / NS_PER_S

        return max(0.0, self._series.reached_s - longest_s)


def _rows_of(numbers: _Columns, chosen: Integers) -> dict[str, Floats]:
    rows = {}
    for name, column in numbers.items():
        rows[name] = column[chosen]

    return rows
