"""A run's core without processes, sockets or waiting: a clock that moves when a test moves it, and
users that only sleep."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from types import SimpleNamespace
from typing import Any

import gevent
from gevent.event import Event

from llama_load.ground.units import NS_PER_S, s_to_ns
from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.run.controller import RunController
from llama_load.loadgen.run.run_clock import RunClock
from llama_load.loadgen.run.watcher import Watcher
from llama_load.loadgen.schedule.segments import LoadModel, plan_segments
from llama_load.loadgen.schedule.stages import parse_stages
from llama_load.run_folder import StageRecord
from llama_load.run_folder.observed.record import OK, RequestRecord
from llama_load.servers.address import parse_url
from llama_load.servers.target import Target
from tests.make_records import MS, manifest, record

WORKER, WORKLOAD = "local", "sharegpt"


class VirtualClock:
    """Time stands still until `advance`; then whoever sleeps wakes up in order, and all that
    follows at that instant is done."""

    def __init__(self) -> None:
        self.now_ns = 10**12
        self.spawned: list[gevent.Greenlet] = []
        self._sleepers: list[tuple[int, int, Event]] = []
        self._asleep: dict[gevent.Greenlet, Event] = {}
        self._number = 0
        self.clock = RunClock(lambda: self.now_ns, self.sleep, self.spawn)

    def sleep(self, seconds: float) -> None:
        self._number += 1
        event, me = Event(), gevent.getcurrent()
        heappush(self._sleepers, (self.now_ns + s_to_ns(seconds), self._number, event))
        self._asleep[me] = event
        try:
            event.wait()
        finally:
            self._asleep.pop(me, None)

    def spawn(
        self, function: Callable[..., object], *arguments: object
    ) -> gevent.Greenlet:
        self.spawned = [each for each in self.spawned if not each.dead]
        self.spawned.append(gevent.spawn(function, *arguments))
        return self.spawned[-1]

    def settle(self) -> None:
        """Until everything sleeps or has ended. (What a thread does takes real time.)"""
        gives_up_s = time.monotonic() + 10
        while busy := [
            each for each in self.spawned if not each.dead and self._is_awake(each)
        ]:
            assert time.monotonic() < gives_up_s, busy
            gevent.sleep(0)

    def advance(self, seconds: float) -> None:
        end_ns = self.now_ns + s_to_ns(seconds)
        self.settle()
        while self._sleepers and self._sleepers[0][0] <= end_ns:
            at_ns, _, event = heappop(self._sleepers)
            self.now_ns = max(self.now_ns, at_ns)
            event.set()
            self.settle()
        self.now_ns = end_ns

    def _is_awake(self, greenlet: gevent.Greenlet) -> bool:
        event = self._asleep.get(greenlet)
        return event is None or event.is_set()


class VirtualRun:
    """A run with these flags, on users whose every request takes `service_s` and whose leases take
    `delivery_s` to come. It is its own `RunHost`."""

    def __init__(
        self,
        model: LoadModel | None = None,
        *,
        users: int = 2,
        requests: int | None = None,
        run_time_s: float | None = None,
        warmup: int = 0,
        filling: int = 0,
        service_s: float = 1.0,
        delivery_s: float = 0.0,
        watchers: Callable[
            [VirtualRun, Any], Sequence[Watcher]
        ] = lambda _run, _controller: (),
        **changed: Any,
    ) -> None:
        model = model or LoadModel()
        segments = plan_segments(model, requests, run_time_s)
        self.time = VirtualClock()
        self.users, self.service_s, self.delivery_s = users, service_s, delivery_s
        self.sent: list[tuple[Lease, int, int]] = []  # with start and end, ns
        self.started_users, self.stops, self.manifests_written = 0, 0, 0
        self.status = OK
        self.is_idle = False  # users take no further requests
        self.starts_users = True
        self.begun_ns = self.time.now_ns
        stages = [
            StageRecord(stage.name, stage.users, stage.rate_rps, start=stage.start)
            for stage in model.stages
        ]
        self.manifest = manifest(end=None, users=users, stages=stages)
        self.prepared: Any = SimpleNamespace(
            options=SimpleNamespace(balance="round-robin"),
            load=SimpleNamespace(
                model=model,
                segments=segments,
                warmup=warmup,
                filling=filling,
                weights={WORKLOAD: 1.0},
                run_time_s=run_time_s,
            ),
            plans={},
            targets=[Target(parse_url("http://127.0.0.1:1"), "openai", None)],
            writer=SimpleNamespace(
                manifest=self.manifest, write_manifest=self._write_manifest
            ),
        )
        for name, value in changed.items():
            setattr(self.prepared, name, value)
        self.controller = RunController(
            self.prepared,
            self,
            self.time.clock,
            lambda _prepared, _host, run: list(watchers(self, run)),
        )
        self.dispatcher = self.controller.dispatcher

    def begin(self, users: int | None = None) -> VirtualRun:
        """Start the run, and its users' waiting for requests."""
        self.dispatcher.ledger.join(WORKER)
        self.controller.open()
        self.ask(self.users if users is None else users)
        self.time.settle()
        return self

    def ask(self, users: int) -> None:
        """This many users wait for requests."""
        self.started_users += users
        self.dispatcher.want(WORKER, WORKLOAD, users)

    def after(self, seconds: float) -> VirtualRun:
        self.time.advance(seconds)
        return self

    def over(self) -> VirtualRun:
        """Go on until the run ends, an hour at most, and close it."""
        for _ in range(36_000):
            if self.controller.end_reason is not None:
                break
            self.time.advance(0.1)
        self.controller.stopping("stopped")
        self.controller.close([])
        return self

    @property
    def elapsed_s(self) -> float:
        return (self.time.now_ns - self.begun_ns) / NS_PER_S

    def of_stage(
        self, number: int, *, warmup: bool = False
    ) -> list[tuple[Lease, int, int]]:
        return [
            sent
            for sent in self.sent
            if sent[0].stage == number and sent[0].warmup == warmup
        ]

    @property
    def measured(self) -> list[int]:
        """Indices of the measured requests that have ended."""
        return sorted(
            lease.index for lease, _, end_ns in self.sent if not lease.warmup and end_ns
        )

    # ------------------------------------------------------------------ the host

    def deliver(self, worker: str, leases: list[Lease]) -> None:
        for lease in leases:
            self.time.spawn(self._send, lease)

    def _send(self, lease: Lease) -> None:
        if self.delivery_s:
            self.time.sleep(self.delivery_s)
        if lease.scheduled_ns is not None:
            self.time.sleep(max(0, lease.scheduled_ns - self.time.now_ns) / NS_PER_S)
        start_ns = self.time.now_ns
        self.sent.append((lease, start_ns, 0))
        place = len(self.sent) - 1
        self.time.sleep(self.service_s)
        self.sent[place] = (lease, start_ns, self.time.now_ns)
        self.controller.add_record(self.record_of(lease, start_ns))
        self.dispatcher.record_stored(WORKER, lease.key)
        if not lease.unasked and not self.is_idle:
            self.dispatcher.want(WORKER, lease.workload, 1)

    def record_of(self, lease: Lease, start_ns: int) -> RequestRecord:
        took_ms = self.service_s * 1000
        return record(
            lease.index, start_ms=start_ns / MS, first_ms=took_ms / 2, gaps_ms=(took_ms / 4, took_ms / 4), warmup=lease.warmup,
            stage=lease.stage, status=self.status,
        )  # fmt: skip

    def users_asked(self) -> int:
        return self.users

    def sending(self) -> int:
        return sum(not end_ns for _, _, end_ns in self.sent)

    def workers(self) -> int:
        return 1

    def gauges(self) -> dict[str, float]:
        return {}

    def add_users(self, count: int) -> None:
        if self.starts_users:
            self.ask(count)

    def stop(self) -> None:
        self.stops += 1

    def _write_manifest(self) -> None:
        self.manifests_written += 1


def staged(text: str, **changed: Any) -> LoadModel:
    """The load of --stages."""
    return LoadModel(stages=parse_stages(text), **changed)


def most_at_once(sent: Sequence[tuple[Lease, int, int]]) -> int:
    """The most requests in flight; one that ends when another begins is not counted with it."""
    steps = sorted(
        [(end_ns, -1) for _, _, end_ns in sent if end_ns]
        + [(start_ns, 1) for _, start_ns, _ in sent]
    )
    level = most = 0
    for _, step in steps:
        level += step
        most = max(most, level)
    return most
