"""Leads a run through its phases: a warm-up and a measurement for each stretch of its course, and the users that they need."""

from __future__ import annotations

import math
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

import gevent

from llama_load.load.course import Stretch
from llama_load.runs import StageTold, UsersAsked
from llama_load.swarm.coordinator import Coordinator
from llama_load.swarm.phases import Phase
from llama_load.swarm.prepare import USERS_AHEAD_S, Prepared
from llama_load.units import NS_PER_S, s_to_ns

# How often it is seen what has become due, how far a ramp has come, and whether users are missing.
TICK_S = 0.05
# Stages begin when the users are there that they need, schedules when all workers are; after this time with fewer.
READY_WITHIN_S = 10.0
# How long users may be missing between measurements before others are started: Locust may just be starting them.
SHORT_S = 2.0
# The first arrival must not be due before it can be told to anybody.
LEAD_NS = NS_PER_S // 4


class Conductor:
    """`muster(n)` starts n more users for stages, soon; `asked` gives the number of users that Locust has been asked for;
    `measuring` is called before every measurement, `measured` after it with its stages, `end` with the reason when the course is
    over."""

    def __init__(
        self,
        prepared: Prepared,
        coordinator: Coordinator,
        *,
        muster: Callable[[int], None],
        asked: Callable[[], int],
        measuring: Callable[[], None],
        measured: Callable[[Sequence[StageTold]], None],
        end: Callable[[str], None],
    ) -> None:
        self._prepared = prepared
        self._coordinator = coordinator
        self._muster = muster
        self._asked = asked
        self._measuring = measuring
        self._has_measured = measured
        self._end = end
        self._steps = self._course()
        self._stretch: Stretch | None = None
        self._measured: tuple[Stretch, Phase] | None = None  # what is being measured
        self._stopped_ns: int | None = None
        self._short_since_s: float | None = None  # since when users have been missing that a phase needs to begin or go on
        self._timer: gevent.Greenlet | None = None
        self._ticker: gevent.Greenlet | None = None

    def next_phase(self) -> None:
        """The phase before has ended, or there was none: begin the next one."""
        if self._timer is not None:
            self._timer.kill(block=False)
            self._timer = None
        self._note_the_end()
        step = next(self._steps, None)
        if step is None:
            self._end("complete")
            return
        self._stretch, phase = step
        if phase.warmup:
            self._coordinator.begin(phase)
        else:
            self._measure(self._stretch, phase)
        if self._ticker is None:
            self._ticker = gevent.spawn(self._tick)

    def stopping(self) -> None:
        """The users are being stopped: no stage goes on from now, however long it takes until everything has come in."""
        self._stopped_ns = self._stopped_ns or time.monotonic_ns()
        manifest = self._prepared.writer.manifest
        if self._measured is not None and manifest.cut_mono_ns is None:
            manifest.cut_mono_ns = self._stopped_ns

    def close(self) -> None:
        """The run is over, perhaps before its course was."""
        for greenlet in (self._timer, self._ticker):
            if greenlet is not None:
                greenlet.kill(block=False)
        self._note_the_end()

    @property
    def what(self) -> str:
        """What is going on, in a few words."""
        if self._stretch is None:
            return "preparing"
        what = "measuring" if self._measured else "warm-up"
        told = self._prepared.writer.manifest.stages
        if not told:
            return what
        place = self._stretch.place_at(self._elapsed_s()) if self._measured else 0
        return f"stage {told[self._stretch.first_stage + place].name} {what}"

    # ------------------------------------------------------------------ the course

    def _course(self) -> Iterator[tuple[Stretch, Phase]]:
        warmup, model, weights = self._prepared.options.warmup, self._prepared.model, self._prepared.weights
        for number, stretch in enumerate(self._prepared.stretches):
            workload_of = None if stretch.arrivals_s is None else drawn_by_weight(weights, model.seed + number)
            if warmup:
                yield (
                    stretch,
                    Phase(
                        total=warmup,
                        warmup=True,
                        limit_at=self._limit_of_warmup(stretch),
                        stage_of=stretch.stage_of_warmup,
                        workload_of=workload_of,
                    ),
                )
            yield (
                stretch,
                Phase(
                    total=stretch.total,
                    due_ns=None if stretch.arrivals_s is None else (stretch.arrivals_s * NS_PER_S).astype(int).tolist(),
                    limit_at=self._limit_asked if self._is_plain else stretch.limit_at,
                    stage_of=stretch.stage_of,
                    workload_of=workload_of,
                    drops=model.drops,
                    repeats=model.same_prompts,
                ),
            )

    @property
    def _is_plain(self) -> bool:
        """Whether the run is a closed loop of as many users as Locust was asked for: no stages, no schedule."""
        return not self._prepared.model.stages and not self._prepared.is_open

    def _limit_asked(self, _elapsed_s: float) -> int:
        """However many users there are, when workers were taken for lost and have come back: no more in flight than asked for."""
        return self._asked()

    def _limit_of_warmup(self, stretch: Stretch) -> Callable[[float], int | None]:
        """Of a schedule: as many as it will soon have in flight."""
        if self._is_plain:
            return self._limit_asked
        limit = None if stretch.arrivals_s is None else stretch.users_to_begin(USERS_AHEAD_S)
        return lambda _: limit

    def _is_ready(self, stretch: Stretch) -> bool:
        if stretch.arrivals_s is not None:
            return self._coordinator.all_there
        return self._coordinator.waiting >= (stretch.most_users or 0)

    def _measure(self, stretch: Stretch, phase: Phase) -> None:
        self._measuring()
        with gevent.Timeout(READY_WITHIN_S, False):
            while not self._is_ready(stretch):
                gevent.sleep(TICK_S)
        begun_ns = time.monotonic_ns() + (0 if stretch.arrivals_s is None else LEAD_NS)
        self._measured = stretch, phase
        self._coordinator.begin(phase, begun_ns)
        if stretch.seconds is not None:
            left_s = stretch.seconds + (begun_ns - time.monotonic_ns()) / NS_PER_S
            self._timer = gevent.spawn_later(max(0.0, left_s), self._time_over, phase)

    def _time_over(self, phase: Phase) -> None:
        if self._prepared.model.stages:  # what is in flight ends: it is part of the stage's throughput
            self._coordinator.close_phase()
            return
        manifest, now_ns = self._prepared.writer.manifest, time.monotonic_ns()
        manifest.cut_mono_ns = now_ns
        if phase.due_ns is not None:
            manifest.due = bisect_right(phase.due_ns, now_ns - phase.begun_ns)
        self._end("time")

    def _note_the_end(self) -> None:
        """Say in the manifest when the stages of the stretch that is over have ended."""
        if self._measured is None:
            return
        (stretch, phase), self._measured = self._measured, None
        manifest, now_ns = self._prepared.writer.manifest, self._stopped_ns or time.monotonic_ns()
        manifest.dropped = sum(each.dropped.total() for each in self._coordinator.measured)
        told = self._told(stretch)
        if told:
            self._note_stages(stretch, phase, told, now_ns)
        self._has_measured(told)
        if not told:
            return
        with suppress(OSError):  # it is written again at the end
            gevent.get_hub().threadpool.apply(self._prepared.writer.write_manifest)

    def _note_stages(self, stretch: Stretch, phase: Phase, told: Sequence[StageTold], now_ns: int) -> None:
        manifest = self._prepared.writer.manifest
        by_time = stretch.seconds is not None and phase.book.is_closed
        manifest.cut += (stretch.total or 0) - phase.book.taken if by_time and stretch.total else 0
        is_timed = (by_time and stretch.arrivals_s is None) or len(told) > 1
        over_ns = None
        if phase.book.finished:
            over_ns = phase.begun_ns + s_to_ns(stretch.ends_s[-1]) if is_timed else now_ns
        begins = [phase.begun_ns + s_to_ns(start_s) for start_s in stretch.starts_s]
        ends = [*begins[1:], over_ns]
        for number, (each, begun_ns, end_ns) in enumerate(zip(told, begins, ends, strict=True), start=stretch.first_stage):
            each.begun_mono_ns = begun_ns if begun_ns < now_ns else None
            # What has been sent and answered before its time was over is whole, too.
            is_whole = end_ns is not None and (end_ns <= now_ns or (phase.book.finished and self._stopped_ns is None))
            each.ended_mono_ns = end_ns if is_whole else None
            each.is_timed = is_timed
            each.dropped = phase.dropped[number]
            over_ns = now_ns if end_ns is None else end_ns
            if by_time and stretch.arrivals_s is not None:
                offered_s = min((over_ns - phase.begun_ns) / NS_PER_S, stretch.seconds or math.inf)  # then the rest is waited for
                each.unsent = _unsent(stretch, number - stretch.first_stage, phase.book.taken, offered_s)
            each.lost = sum(heard_ns < over_ns and noticed_ns >= begun_ns for heard_ns, noticed_ns in self._coordinator.departures)

    def _told(self, stretch: Stretch) -> list[StageTold]:
        stages = self._prepared.writer.manifest.stages
        return stages[stretch.first_stage : stretch.first_stage + len(stretch.stages)]

    def _elapsed_s(self) -> float:
        return (time.monotonic_ns() - self._coordinator.phase.begun_ns) / NS_PER_S

    # ------------------------------------------------------------------ as time goes by

    def _tick(self) -> None:
        while True:
            gevent.sleep(TICK_S)
            self._note_what_is_asked()
            self._coordinator.serve()  # what has become due, and where a limit has risen
            if self._measured is None:
                self._see_to_users()
                continue
            stretch, _ = self._measured
            present = self._coordinator.in_flight + self._coordinator.waiting
            if stretch.most_users is not None and present < stretch.most_users:  # some may have gone with a worker
                self._muster(stretch.most_users - present)

    def _note_what_is_asked(self) -> None:
        """Write down how many users a plain closed loop was asked for: an Edit in the web page, or a LoadTestShape."""
        if not self._is_plain:
            return
        manifest, users = self._prepared.writer.manifest, self._asked()
        if not manifest.users_asked or manifest.users_asked[-1].users != users:
            manifest.users_asked.append(UsersAsked(time.monotonic_ns(), users))
        manifest.users = max(manifest.users, users) if self._coordinator.measuring else users

    def _see_to_users(self) -> None:
        """Between measurements: users that a stage needs may be in a long wait_time. Others come in their place, after a while in
        which those that are just being started come."""
        wanted = (self._stretch.most_users or 0) if self._stretch is not None else 0
        missing = wanted - self._coordinator.in_flight - self._coordinator.waiting
        now_s = time.monotonic()
        if missing <= 0:
            self._short_since_s = None
        elif self._short_since_s is None:
            self._short_since_s = now_s
        elif now_s - self._short_since_s > SHORT_S:
            self._short_since_s = None
            self._muster(missing)


def _unsent(stretch: Stretch, place: int, taken: int, offered_s: float) -> int:
    """How many arrivals of one of a stretch's stages were scheduled within `offered_s` and not leased. (Leases are in order.)"""
    assert stretch.arrivals_s is not None
    assert stretch.places is not None
    rest = slice(taken, None)
    return int(((stretch.places[rest] == place) & (stretch.arrivals_s[rest] <= offered_s)).sum())


def drawn_by_weight(weights: Mapping[str, float], seed: int) -> Callable[[int], str]:
    """Of which workload arrival i is: drawn by the weights of the user classes, the same at every question."""
    names, shares = list(weights), list(weights.values())
    if len(names) == 1:
        return lambda _: names[0]

    @lru_cache(1 << 16)
    def drawn(number: int) -> str:
        return random.Random(f"workload {seed} {number}").choices(names, shares)[0]

    return drawn
