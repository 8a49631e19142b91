"""Runs the phases of a run: a warm-up and a measurement per segment, with the users they need."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress

from llama_load.ground.units import NS_PER_S, s_to_ns
from llama_load.loadgen.dispatch.phases import Phase
from llama_load.loadgen.preflight.prepare import Prepared
from llama_load.loadgen.run.host import RunHost
from llama_load.loadgen.run.in_thread import in_thread
from llama_load.loadgen.run.phase_plan import is_plain, planned_phases
from llama_load.loadgen.run.run_clock import Task
from llama_load.loadgen.run.watcher import RunUnderWay, Watcher
from llama_load.loadgen.schedule.segments import Segment
from llama_load.run_folder import StageRecord
from llama_load.run_folder.manifest import UsersAsked

# How often scheduled requests, ramps and users are checked.
TICK_S = 0.05
# A measurement begins when all workers have joined (over a slow network it takes seconds until
# their clocks are known), a stage when its users wait as well. After this time they begin anyway.
READY_WITHIN_S = 10.0
# Users may be missing this long between measurements before more are started: Locust may still be
# starting them.
SHORT_S = 2.0
# The first arrival is scheduled late enough to be leased first.
LEAD_NS = NS_PER_S // 4


class PhaseRunner:
    """Runs the phases one after the other, calls the watchers at the edges of measurements, and
    ends the run after the last one."""

    def __init__(
        self,
        prepared: Prepared,
        host: RunHost,
        run: RunUnderWay,
        watchers: Sequence[Watcher],
    ) -> None:
        self._prepared = prepared
        self._host = host
        self._run = run
        self._dispatcher = run.dispatcher
        self._clock = run.clock
        self._watchers = watchers
        self._tasks: list[Task] = []
        self._steps = planned_phases(prepared, host.users_asked)
        self._segment: Segment | None = None
        self._measured: tuple[Segment, Phase] | None = None  # what is being measured
        self._is_over = False
        self._stopped_ns: int | None = None
        self._short_since_s: float | None = None  # since when a phase has lacked users
        self._timer: Task | None = None
        self._ticker: Task | None = None

    def begin_next(self) -> None:
        """Begin the first phase, or the next one after the last request of a phase. (Spawned,
        because the calling user's greenlet may be killed or have a timeout.)"""
        self._tasks.append(self._clock.spawn(self._next_phase))

    def _next_phase(self) -> None:
        if self._timer is not None:
            self._timer.kill(block=False)
            self._timer = None
        self._record_end()
        step = next(self._steps, None)
        if step is None:
            self._is_over = True
            self._run.end("complete")
            return
        self._segment, phase = step
        if phase.warmup and phase.then is not None:
            self._measure(self._segment, phase, phase.then)
        elif phase.warmup:
            self._dispatcher.begin(phase, self.begin_next)
        else:
            self._measure(self._segment, phase, phase)
        if self._ticker is None:
            self._ticker = self._clock.spawn(self._tick)

    def stopping(self) -> None:
        """The users are being stopped: the present stage ends now, although records still
        arrive."""
        self._stopped_ns = self._stopped_ns or self._clock.now_ns()
        manifest = self._prepared.writer.manifest
        if self._measured is not None and manifest.cut_mono_ns is None:
            manifest.cut_mono_ns = self._stopped_ns

    def close(self) -> None:
        """The run is over, perhaps before its last phase."""
        self._is_over = True
        for task in (*self._tasks, self._timer, self._ticker):
            if task is not None:
                task.kill(block=False)
        self._record_end()

    @property
    def what(self) -> str:
        """The present phase in a few words: `stage 8 measuring`."""
        if self._is_over:
            return "finishing"
        if self._segment is None:
            return "preparing"

        what = "warm-up"
        if self._measured and self._dispatcher.assigner.measuring:
            what = "measuring"
        records = self._prepared.writer.manifest.stages
        if not records:
            return what

        stage_index = 0
        if self._measured:
            stage_index = self._segment.stage_index_at(self._elapsed_s())
        return f"stage {records[self._segment.first_stage + stage_index].name} {what}"

    @property
    def segment(self) -> tuple[int, int]:
        """Which of the run's loads is the present one, from 0 on, and how many there are."""
        segments = self._prepared.load.segments
        if self._segment is None:
            return 0, len(segments)
        return segments.index(self._segment), len(segments)

    @property
    def left_s(self) -> float | None:
        """Seconds left of this measurement: from its time limit, or estimated from the rate at
        which requests have ended."""
        if self._measured is None or not self._dispatcher.assigner.measuring:
            return None
        segment, phase = self._measured
        elapsed_s = self._elapsed_s()
        if segment.seconds is not None:
            return max(0.0, segment.seconds - elapsed_s)

        scheduled_s = 0.0
        if segment.scheduled_s is not None:
            scheduled_s = float(segment.scheduled_s[-1]) - elapsed_s
        ended = phase.pool.ended
        if not ended or not segment.total:
            return scheduled_s or None
        return max(scheduled_s, elapsed_s / ended * (segment.total - ended))

    # ------------------------------------------------------------------ phases

    def _is_ready(self, segment: Segment) -> bool:
        ledger = self._dispatcher.ledger
        if not ledger.workers.all_there:
            return False
        if segment.scheduled_s is not None:
            return True
        return ledger.wants.count >= (segment.most_users or 0)

    def _measure(self, segment: Segment, phase: Phase, measured: Phase) -> None:
        """Begin a phase: the measurement, or a warm-up that hands its slots over to it."""
        for watcher in self._watchers:
            watcher.before_measuring()
        begin_at_s = self._clock.now_s + READY_WITHIN_S
        while not self._is_ready(segment) and self._clock.now_s < begin_at_s:
            self._clock.sleep(TICK_S)

        begun_ns = self._clock.now_ns()
        if segment.scheduled_s is not None:
            begun_ns += LEAD_NS
        self._measured = segment, measured
        self._dispatcher.begin(phase, self.begin_next, begun_ns)
        if segment.seconds is not None:
            self._timer = self._clock.spawn(
                self._end_by_time, phase, begun_ns + s_to_ns(segment.seconds)
            )

    def _end_by_time(self, phase: Phase, end_ns: int) -> None:
        self._clock.sleep(max(0.0, (end_ns - self._clock.now_ns()) / NS_PER_S))
        self._time_over(phase)

    def _time_over(self, phase: Phase) -> None:
        # requests in flight are completed: they are part of the stage's throughput
        if self._prepared.load.model.stages:
            self._dispatcher.close_phase()
            return

        manifest = self._prepared.writer.manifest
        now_ns = self._clock.now_ns()
        manifest.cut_mono_ns = now_ns
        if phase.scheduled_ns is not None:
            manifest.due = bisect_right(phase.scheduled_ns, now_ns - phase.begun_ns)
        self._run.end("time")

    def end_early(self) -> None:
        """Enough is known: end the measurement as its time would."""
        if self._measured is not None:
            self._time_over(self._measured[1])

    def give_up_arrivals(self) -> None:
        """No user takes the remaining arrivals: if all were scheduled before now, end the run as
        its run time would."""
        if self._measured is None:
            return
        _, phase = self._measured
        if not phase.scheduled_ns:
            return
        last_ns = phase.begun_ns + phase.scheduled_ns[-1]
        if last_ns < self._clock.now_ns():
            self._time_over(phase)

    def _record_end(self) -> None:
        """Write into the manifest when the stages of the segment that is over ended."""
        if self._measured is None:
            return

        segment, phase = self._measured
        self._measured = None
        manifest = self._prepared.writer.manifest
        now_ns = self._stopped_ns or self._clock.now_ns()
        manifest.dropped = 0
        for counts in self._dispatcher.assigner.measured:
            manifest.dropped += counts.dropped.total()

        records = self._stage_records(segment)
        if records:
            self._note_stages(segment, phase, records, now_ns)
        for watcher in self._watchers:
            watcher.after_measuring(records)
        if not records:
            return
        with suppress(OSError):  # it is written again at the end
            in_thread(self._prepared.writer.write_manifest)

    def _note_stages(
        self,
        segment: Segment,
        phase: Phase,
        records: Sequence[StageRecord],
        now_ns: int,
    ) -> None:
        manifest = self._prepared.writer.manifest
        by_time = segment.seconds is not None and phase.pool.is_closed
        if by_time and segment.total:
            manifest.cut += segment.total - phase.pool.taken

        is_timed = (by_time and segment.scheduled_s is None) or len(records) > 1
        over_ns = None
        if phase.pool.finished and is_timed:
            over_ns = phase.begun_ns + s_to_ns(segment.ends_s[-1])
        elif phase.pool.finished:
            over_ns = now_ns

        begins = [phase.begun_ns + s_to_ns(start_s) for start_s in segment.starts_s]
        ends = [*begins[1:], over_ns]
        departures = self._dispatcher.ledger.departures
        for number, (record, begun_ns, end_ns) in enumerate(
            zip(records, begins, ends, strict=True), start=segment.first_stage
        ):
            record.begun_mono_ns = begun_ns if begun_ns < now_ns else None
            # A stage whose requests were all answered before its time was over is complete, too.
            is_complete = end_ns is not None and (
                end_ns <= now_ns or (phase.pool.finished and self._stopped_ns is None)
            )
            record.ended_mono_ns = end_ns if is_complete else None
            record.is_timed = is_timed
            record.dropped = phase.dropped[number]
            over_ns = now_ns if end_ns is None else end_ns
            if by_time and segment.scheduled_s is not None:
                # then the rest is waited for
                offered_s = min(
                    (over_ns - phase.begun_ns) / NS_PER_S, segment.seconds or math.inf
                )
                record.unsent = _unsent(
                    segment, number - segment.first_stage, phase.pool.taken, offered_s
                )

            record.lost = 0
            for heard_ns, noticed_ns in departures:
                record.lost += heard_ns < over_ns and noticed_ns >= begun_ns

    def _stage_records(self, segment: Segment) -> list[StageRecord]:
        stages = self._prepared.writer.manifest.stages
        return stages[segment.first_stage : segment.first_stage + len(segment.stages)]

    def _elapsed_s(self) -> float:
        return (
            self._clock.now_ns() - self._dispatcher.assigner.phase.begun_ns
        ) / NS_PER_S

    # ------------------------------------------------------------------ regular checks

    def _tick(self) -> None:
        while True:
            self._clock.sleep(TICK_S)
            self._note_target_users()
            # arrivals whose time has come, and requests that a higher limit allows
            self._dispatcher.serve()
            if self._measured is None:
                self._replace_missing_users()
                continue
            segment, _ = self._measured
            present = (
                self._dispatcher.ledger.in_flight + self._dispatcher.ledger.wants.count
            )
            # some may have gone with a worker
            if segment.most_users is not None and present < segment.most_users:
                self._host.add_users(segment.most_users - present)

    def _note_target_users(self) -> None:
        """Record a changed number of users in a plain closed loop: the web UI's Edit or a
        LoadTestShape sets it."""
        if not is_plain(self._prepared):
            return

        manifest = self._prepared.writer.manifest
        users = self._host.users_asked()
        if not manifest.users_asked or manifest.users_asked[-1].users != users:
            manifest.users_asked.append(UsersAsked(self._clock.now_ns(), users))
        if self._dispatcher.assigner.measuring:
            users = max(manifest.users, users)
        manifest.users = users

    def _replace_missing_users(self) -> None:
        """Between measurements: replace users that a stage needs and that may be in a long
        wait_time. Wait a while first, because users that are just being started arrive in it."""
        needed = (self._segment.most_users or 0) if self._segment is not None else 0
        missing = (
            needed
            - self._dispatcher.ledger.in_flight
            - self._dispatcher.ledger.wants.count
        )
        now_s = self._clock.now_s
        if missing <= 0:
            self._short_since_s = None
        elif self._short_since_s is None:
            self._short_since_s = now_s
        elif now_s - self._short_since_s > SHORT_S:
            self._short_since_s = None
            self._host.add_users(missing)


def _unsent(segment: Segment, place: int, taken: int, offered_s: float) -> int:
    """Arrivals of one stage of the segment that were scheduled within `offered_s` and not leased.
    (Leases are in order.)"""
    assert segment.scheduled_s is not None
    assert segment.stage_index is not None
    rest = slice(taken, None)
    return int(
        (
            (segment.stage_index[rest] == place)
            & (segment.scheduled_s[rest] <= offered_s)
        ).sum()
    )
