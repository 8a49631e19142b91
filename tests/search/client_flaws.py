"""Flaws of the client: pauses, late sending, late reading, a clock that jumps, records that are
lost."""

from __future__ import annotations

from llama_load.run_folder import Manifest
from tests.search.answers import Answer
from tests.search.asks import Ask
from tests.search.case import Case, Change
from tests.search.effect import BEGIN_NS, Effect, Reads

MS, NS_PER_S = 1_000_000, 1_000_000_000
LATE = (
    "loop_lag_p99_ms",
    "own_delay_p99_ms",
    "late_p99_ms",
    "merged_ratio",
    "first_merged_shift",
    "buffered_ratio",
)


class Paused(Effect):
    """The client does nothing for `size` s in the middle of the run; the kernel keeps what comes,
    and when its last byte came."""

    checks = ("client_pause_ms", "changed_ratio", *LATE)
    sizes = (0.5, 3.0)

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.begin_ns = BEGIN_NS + round(0.4 * case.nominal_s * NS_PER_S)
        self.end_ns = self.begin_ns + round(self.size * NS_PER_S)

    def start_delay_ns(self, ask: Ask, ready_ns: int) -> int:
        """See `Effect.start_delay_ns`."""
        return self.end_ns - ready_ns if self.begin_ns <= ready_ns < self.end_ns else 0

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        return merged(reads, self.begin_ns, self.end_ns)

    def note(self, manifest: Manifest) -> None:
        """See `Effect.note`."""
        for worker in manifest.workers:
            worker.loop_lag_max_ms = worker.longest_pause_ms = 1e3 * self.size
            worker.longest_pause_mono_ns = self.begin_ns
            worker.late_wakeups = [(self.begin_ns, 1e3 * self.size)]


class Busy(Effect):
    """The client's event loop is late by up to `size` ms, all the time: it sends late, and reads
    together what came meanwhile."""

    checks = (*LATE, "core_busy")
    sizes = (10.0, 50.0, 200.0)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        late_ns = round(self.rng(answer.ask).random() * self.size * MS)
        answer.own_delay_ns += late_ns
        answer.begin_ns += late_ns

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        step_ns = round(self.size * MS)
        phase_ns = round(self.rng(answer.ask).random() * step_ns)
        last_ns = reads[-1][0]
        for begin_ns in range(reads[0][0] - phase_ns, last_ns, step_ns):
            reads = merged(reads, begin_ns, begin_ns + step_ns)
        return reads

    def note(self, manifest: Manifest) -> None:
        """See `Effect.note`."""
        for worker in manifest.workers:
            worker.loop_lag_p99_ms = 0.99 * self.size
            worker.loop_lag_max_ms = worker.longest_pause_ms = self.size
            worker.core_busy = 0.95


class ClockJumps(Effect):
    """Arrival times are `size` ms too late in a part of the run."""

    checks = (
        "changed_ratio",
        "cold_start_ratio",
        "backlog_ratio",
        "unexplained_ratio",
        "second_group_ratio",
    )
    sizes = (30.0, 200.0)
    in_part = True

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        if not self.hits(answer.ask):
            return reads
        return [(at_ns + round(self.size * MS), data) for at_ns, data in reads]


class RecordsLost(Effect):
    """Some records never reach the disk."""

    checks = ("missing_records", "damaged_records", "lost_requests")
    shares = (0.02, 0.1)

    def keeps(self, answer: Answer) -> bool:
        """See `Effect.keeps`."""
        return not self.hits(answer.ask)


def merged(reads: Reads, begin_ns: int, end_ns: int) -> Reads:
    """Reads between two instants come as one, with the arrival time of the last."""
    before = [read for read in reads if read[0] < begin_ns]
    within = [read for read in reads if begin_ns <= read[0] < end_ns]
    after = [read for read in reads if read[0] >= end_ns]
    if len(within) < 2:
        return reads
    return [*before, (within[-1][0], b"".join(data for _, data in within)), *after]


CLIENT_FLAWS: dict[str, type[Effect]] = {
    "client paused": Paused,
    "client busy": Busy,
    "clock jumps": ClockJumps,
    "records lost": RecordsLost,
}
