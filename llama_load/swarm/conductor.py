"""Leads a run through its phases: a warm-up and a measurement for each stretch of its course, and the users that they need."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import count

import gevent

from llama_load.load.course import Stretch
from llama_load.runs import StageTold
from llama_load.swarm.coordinator import Coordinator
from llama_load.swarm.phases import Phase
from llama_load.swarm.prepare import USERS_AHEAD_S, Prepared
from llama_load.units import NS_PER_S, s_to_ns

# How often it is seen what has become due, how far a ramp has come, and whether users are missing.
TICK_S = 0.05
# Stages and schedules begin when the users are there that they need, in a swarm on all workers; after this time with fewer.
READY_WITHIN_S = 10.0
# The first arrival must not be due before it can be told to anybody.
LEAD_NS = NS_PER_S // 4


class Conductor:
    """`muster(n)` starts n more users, at once or soon; `measuring` is called before every measurement, `end` with the reason when
    the course is over."""

    def __init__(
        self,
        prepared: Prepared,
        coordinator: Coordinator,
        *,
        muster: Callable[[int], None],
        measuring: Callable[[], None],
        end: Callable[[str], None],
    ) -> None:
        self._prepared = prepared
        self._coordinator = coordinator
        self._muster = muster
        self._measuring = measuring
        self._end = end
        self._steps = self._course()
        self._stretch: Stretch | None = None
        self._timer: gevent.Greenlet | None = None
        self._ticker: gevent.Greenlet | None = None

    def next_phase(self) -> None:
        """The phase before has ended, or there was none: begin the next one."""
        self._note_the_end()
        if self._timer is not None:
            self._timer.kill(block=False)
            self._timer = None
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
        what = "measuring" if self._coordinator.measuring else "warm-up"
        told = self._prepared.writer.manifest.stages
        if not told:
            return what
        place = self._stretch.place_at(self._elapsed_s()) if self._coordinator.measuring else 0
        return f"stage {told[self._stretch.first_stage + place].name} {what}"

    # ------------------------------------------------------------------ the course

    def _course(self) -> Iterator[tuple[Stretch, Phase]]:
        warmup, model, weights = self._prepared.options.warmup, self._prepared.model, self._prepared.weights
        for number, stretch in enumerate(self._prepared.stretches):
            if warmup:
                yield stretch, Phase(total=warmup, warmup=True, stage_of=stretch.stage_of_warmup)
            yield (
                stretch,
                Phase(
                    total=stretch.total,
                    due_ns=None if stretch.arrivals_s is None else (stretch.arrivals_s * NS_PER_S).astype(int).tolist(),
                    limit_at=stretch.limit_at,
                    stage_of=stretch.stage_of,
                    workload_of=None if stretch.arrivals_s is None else drawn_by_weight(weights, model.seed + number),
                    drops=model.drops,
                    repeats=model.same_prompts,
                ),
            )

    def _measure(self, stretch: Stretch, phase: Phase) -> None:
        self._measuring()
        with gevent.Timeout(READY_WITHIN_S, False):
            while self._coordinator.waiting < stretch.users_to_begin(USERS_AHEAD_S):
                gevent.sleep(TICK_S)
        begun_ns = time.monotonic_ns() + (0 if stretch.arrivals_s is None else LEAD_NS)
        self._coordinator.begin(phase, begun_ns)
        if stretch.seconds is not None:
            self._timer = gevent.spawn_later(stretch.seconds, self._time_over, stretch)

    def _time_over(self, stretch: Stretch) -> None:
        if stretch is self._prepared.stretches[-1]:
            self._end("time")
        else:
            self._coordinator.close_phase()

    def _note_the_end(self) -> None:
        """Say in the manifest when the stages of the stretch that is over have ended."""
        stretch, manifest = self._stretch, self._prepared.writer.manifest
        if stretch is None or not self._coordinator.measuring:
            return
        phase, now_ns = self._coordinator.phase, time.monotonic_ns()
        manifest.dropped = sum(each.dropped.total() for each in self._coordinator.measured)
        told = self._told(stretch)
        if not told:
            return
        timed = stretch.arrivals_s is None and stretch.seconds is not None
        over_ns = phase.begun_ns + s_to_ns(stretch.seconds or 0) if timed else now_ns if phase.book.finished else None
        begins = [phase.begun_ns + s_to_ns(start_s) for start_s in stretch.starts_s]
        for each, begun_ns, end_ns, number in zip(told, begins, [*begins[1:], over_ns], count(stretch.first_stage), strict=False):
            each.begun_mono_ns = begun_ns if begun_ns < now_ns else None
            each.ended_mono_ns = end_ns if end_ns is not None and end_ns <= now_ns else None
            each.dropped = phase.dropped[number]
        with suppress(OSError):  # it is written again at the end
            gevent.get_hub().threadpool.apply(self._prepared.writer.write_manifest)

    def _told(self, stretch: Stretch) -> list[StageTold]:
        stages = self._prepared.writer.manifest.stages
        return stages[stretch.first_stage : stretch.first_stage + len(stretch.stages)]

    def _elapsed_s(self) -> float:
        return (time.monotonic_ns() - self._coordinator.phase.begun_ns) / NS_PER_S

    # ------------------------------------------------------------------ as time goes by

    def _tick(self) -> None:
        while True:
            gevent.sleep(TICK_S)
            if self._stretch is None or not (self._stretch.arrivals_s is not None or self._stretch.limits_change):
                continue
            self._coordinator.serve()
            if self._coordinator.missing_users(s_to_ns(USERS_AHEAD_S / 2)):
                missing = self._coordinator.missing_users(s_to_ns(USERS_AHEAD_S))
                weights = self._prepared.weights
                share = {name: weight / sum(weights.values()) for name, weight in weights.items()}
                self._muster(max(math.ceil(count / share[name]) for name, count in missing.items()))


def drawn_by_weight(weights: Mapping[str, float], seed: int) -> Callable[[int], str]:
    """Of which workload arrival i is: drawn by the weights of the user classes, the same at every question."""
    names, shares = list(weights), list(weights.values())
    if len(names) == 1:
        return lambda _: names[0]

    @lru_cache(1 << 16)
    def drawn(number: int) -> str:
        return random.Random(f"workload {seed} {number}").choices(names, shares)[0]

    return drawn
