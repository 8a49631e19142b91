"""The master's side of a swarm, with workers made of messages."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from locust import runners

from llama_load.loadgen.run.sender import SenderConfig
from llama_load.loadgen.schedule.segments import LoadModel, Segment
from llama_load.loadgen.schedule.stages import Stage
from llama_load.loadgen.swarm import messages, presence
from llama_load.loadgen.swarm.clock_sync import ENOUGH
from llama_load.loadgen.swarm.master import MasterRun, _redact_config
from llama_load.loadgen.swarm.own_keys import with_own_keys
from llama_load.loadgen.swarm.presence import (
    LOST_AFTER_S,
    NO_HEARTBEAT,
    Presence,
    introduction,
)
from llama_load.loadgen.swarm.user_scaler import UserScaler
from llama_load.loadgen.users.session import SessionSettings
from llama_load.loadgen.users.session_tokens import NO_SESSIONS
from llama_load.loadgen.wire.request import Timeouts
from llama_load.loadgen.workloads.prompt_plan import Traffic
from llama_load.outside.bound_headers import bound
from llama_load.run_folder.observed.foreign_records import check_integers
from llama_load.run_folder.observed.new_tokens import NewTokens
from llama_load.run_folder.observed.record import to_batch
from llama_load.servers.address import parse_url
from llama_load.servers.body import BodyOptions
from llama_load.servers.target import Target
from llama_load.servers.weighted_choice import ONE_FOR_ALL
from tests.containers import contained
from tests.make_records import MS, record
from tests.waiting import until

AHEAD_NS = 864_000 * 1_000_000_000  # a machine that has been up for ten days longer


class Swarm:
    """A run of two requests on a master, and one worker, whose clock is ahead."""

    def __init__(self, requests: int = 2, users: int = 1) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.written: list[pa.RecordBatch] = []
        runner = SimpleNamespace(
            target_user_count=users,
            clients={"w": SimpleNamespace(state="ready")},
            send_message=self._take,
        )
        prepared: Any = SimpleNamespace(
            options=SimpleNamespace(
                bust_prefix_cache=False, hang_ups=None, probe_rate_rps=None, models=ONE_FOR_ALL, adapters=ONE_FOR_ALL, session_headers=NO_SESSIONS, traffic=Traffic(), timeouts=Timeouts(), save_texts=False, retries=0, reset_prefix_cache=False, profile_server=False, client_priority="normal", warmup=0, wait_at_end_s=0, server_grace_s=0, balance="round-robin", goals=SimpleNamespace(abort_if=(), until=None, end_below=None), telemetry=SimpleNamespace(interval_s=0), tls=None
            ),
            load=SimpleNamespace(
                segments=[Segment(stages=(Stage(name="all"),), total=requests, seconds=None)], warmup=0, model=LoadModel(), weights={}, run_time_s=None
            ),
            targets=[Target(parse_url("http://127.0.0.1:1"), "openai", None)], body_options=BodyOptions(), plans={}, local_servers=[], ends_matter=False, checks_answers=False, beginning=None,
            probes=[], writer=SimpleNamespace(path=Path(), append_batch=lambda batch, **_: self.written.append(batch), manifest=SimpleNamespace(stages=[])),
        )  # fmt: skip
        self.run = MasterRun(
            SimpleNamespace(runner=runner, user_classes=[], web_ui=None),
            prepared,
            UserScaler(None),
        )
        self.run._welcome("w")

    def _take(self, kind: str, data: dict[str, Any], _: str) -> None:
        self.sent.append((kind, data))

    def hear(self, kind: str, **data: Any) -> None:
        self.run.on_message(kind, "w", data)
        self.settle()

    def settle(self) -> None:
        """Until all that has arrived is written and acknowledged."""
        gevent.sleep(0.02)  # the ingest takes its queue in a turn of its own
        until(lambda: not self.run._ingest._queue)

    def pong(self, round_trip_ms: float, **holds: Any) -> None:
        """An answer to a ping that was under way this long, all of it on the way there. A short one
        makes the clock known: on a busy machine it takes longer, and is repeated."""
        while True:
            now_ns = time.monotonic_ns()
            self.hear(
                messages.PONG,
                asked_ns=now_ns - round(round_trip_ms * MS),
                worker_ns=now_ns + AHEAD_NS,
                **holds,
            )
            if round_trip_ms >= 1 or self.run._workers["w"].clock.is_known:
                break

    def deliver(self, number: int) -> None:
        """The record of request 0 in a batch: it starts now, by the worker's clock."""
        started_ms = (time.monotonic_ns() + AHEAD_NS) / MS
        self.hear(
            messages.RECORDS,
            number=number,
            batch=to_batch([record(0, start_ms=started_ms)]).serialize().to_pybytes(),
        )

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.sent]


def test_no_record_is_taken_in_before_its_workers_clock_is_known() -> None:
    """It is not acknowledged, so it comes again; then it is written, on the master's axis."""
    swarm = Swarm()
    swarm.run.controller.dispatcher.want("w", "sharegpt", 1)
    swarm.deliver(1)
    assert messages.ACK not in swarm.kinds()
    assert swarm.written == []
    swarm.pong(0.2)
    swarm.deliver(1)
    assert messages.ACK in swarm.kinds()


def test_nothing_is_leased_to_a_worker_whose_clock_is_not_known() -> None:
    """In a closed loop, too: what it sends could not be put on record. What it wants comes with the
    answer that makes it known."""
    swarm = Swarm()
    swarm.run.controller._phase_runner.begin_next()
    gevent.sleep(0.05)  # the controller begins its phase, which nothing shows
    swarm.hear(messages.REPORT, started=[], ended=[], wants={"sharegpt": 1})
    swarm.pong(
        80, delivered=0, holds=[], wants={"sharegpt": 1}
    )  # one late answer is not enough
    assert messages.LEASES not in swarm.kinds()
    swarm.pong(0.2, delivered=0, holds=[], wants={"sharegpt": 1})
    # the measurement begins at the next tick
    until(lambda: messages.LEASES in swarm.kinds())
    swarm.deliver(1)
    (batch,) = swarm.written
    # and not ten days
    assert abs(batch.column("started_mono_ns")[0].as_py() - time.monotonic_ns()) < 60e9


def test_a_worker_that_stands_still_at_first_is_asked_again() -> None:
    """Pings do not pile up before it: answered all at once after 5 s, they would agree on a clock
    that is 2.5 s off."""
    swarm = Swarm()
    watching = gevent.spawn(swarm.run._watch)
    gevent.sleep(0.3)  # no second one is to come
    assert swarm.kinds().count(messages.PING) == 1
    swarm.pong(5000)
    until(lambda: swarm.kinds().count(messages.PING) == 2)
    assert not swarm.run._workers["w"].clock.is_known
    swarm.pong(0.2)
    assert swarm.run._workers["w"].clock.is_known
    assert swarm.run._workers["w"].clock.now(time.monotonic_ns()).uncertainty_ns < MS
    watching.kill()


def test_the_uncertainty_shown_is_that_of_the_worst_shift_used() -> None:
    """Records were shifted by a reading of 60 ms before a better one came: 60 ms is shown."""
    swarm = Swarm()
    for _ in range(ENOUGH):
        swarm.pong(120)
    assert swarm.run._workers["w"].clock.is_known
    swarm.deliver(1)
    swarm.pong(0.2)
    swarm.deliver(2)
    (health,) = swarm.run._health()
    assert health.clock_uncertainty_ms == pytest.approx(60, abs=1)
    assert health.clock_offset_ms == pytest.approx(-AHEAD_NS / MS, abs=1)


def test_a_process_that_has_ended_is_noticed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A killed child that nobody has waited for (as --processes leaves it); one that lives, one of
    another machine and one that says nothing of itself keep their heartbeats. Elsewhere, closed
    connections tell."""
    monkeypatch.setattr(presence, "LOOK_EVERY_S", 0.02)
    nodes = {
        name: SimpleNamespace(heartbeat=30)
        for name in ("killed", "alive", "elsewhere", "silent", "closed")
    }
    server = SimpleNamespace(
        closed_for_s=lambda client_id: 2.0 if client_id == "closed" else 0.0
    )
    watch = Presence(
        SimpleNamespace(clients=nodes, server=server, worker_count=len(nodes))
    )
    killed, alive = (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        for _ in range(2)
    )
    try:
        for name, process in (("killed", killed), ("alive", alive)):
            watch.introduce(name, introduction() | {"pid": process.pid})
        watch.introduce("elsewhere", {"pid": killed.pid, "machine": "another"})
        watch.introduce("silent", {})
        killed.kill()
        until(lambda: nodes["killed"].heartbeat == NO_HEARTBEAT)
        gevent.sleep(0.1)  # no other one is to be lost
        assert {name: node.heartbeat for name, node in nodes.items()} == {
            "killed": NO_HEARTBEAT, "alive": 30, "elsewhere": 30, "silent": 30, "closed": NO_HEARTBEAT,
        }  # fmt: skip
    finally:
        for process in (killed, alive):
            process.kill()
            process.communicate()


def test_locust_takes_no_worker_for_lost_that_is_only_slow() -> None:
    """Locust's own limit is three heartbeats."""
    from llama_load import LlamaUser  # hooks itself into Locust

    assert LlamaUser
    assert runners.HEARTBEAT_LIVENESS * runners.HEARTBEAT_INTERVAL == LOST_AFTER_S == 30


def test_one_bad_delivery_fails_alone() -> None:
    """Damaged, or with a number out of all bounds: what came with it is written. (One poisoned
    batch made 2,380 errors.)"""
    swarm = Swarm()
    swarm.run.controller.dispatcher.want("w", "sharegpt", 2)
    swarm.pong(0.2)
    good = to_batch(
        [record(0, start_ms=(time.monotonic_ns() + AHEAD_NS) / MS, status="cancelled")]
    )
    huge = to_batch([record(1, prompt_tokens=2**62 + 1, status="cancelled")])
    for number, data in enumerate(
        (b"x" * 100, huge.serialize().to_pybytes(), good.serialize().to_pybytes()), 1
    ):
        swarm.run.on_message(
            messages.RECORDS,
            "w",
            {"number": number, "batch": data, "run": swarm.run._name},
        )
    swarm.settle()
    assert [batch.num_rows for batch in swarm.written] == [1]
    assert swarm.kinds().count(messages.ACK) == 1


def test_numbers_out_of_all_bounds_cost_their_message_alone() -> None:
    """A worker's last word with such a number ended the report of the whole run; an answer from the
    future made its clock known at once, and shifted records beyond 64 bits."""
    swarm = Swarm()
    for asked_ns in (2**60, -1):
        with pytest.raises(ValueError, match="ping that was not sent"):
            swarm.hear(messages.PONG, asked_ns=asked_ns, worker_ns=-(2**60))
    assert not swarm.run._workers["w"].clock.is_known
    swarm.pong(0.2)
    beyond: list[dict[str, Any]] = [
        {"longest_pause_mono_ns": 2**64 - 1},
        {"loop_lag_p99_ms": float("nan")},
        {"late_wakeups": [(1, float("inf"))]},
    ]
    for fields in beyond:
        with pytest.raises(ValueError, match="a number"):
            swarm.hear(
                messages.FLUSHED,
                batches=0,
                open=[],
                gave_up=False,
                health={"worker": "w", **fields},
            )
    swarm.hear(
        messages.FLUSHED,
        batches=0,
        open=[],
        gave_up=False,
        health={"worker": "\x1b[31m", "longest_pause_mono_ns": 7},
    )
    (health,) = swarm.run._health()
    assert health.worker == messages.short_name("w")


def test_instants_stay_within_bounds_when_they_are_shifted() -> None:
    swarm = Swarm()
    swarm.run.controller.dispatcher.want("w", "sharegpt", 1)
    swarm.hear(messages.PONG, asked_ns=time.monotonic_ns() - 1000, worker_ns=-(2**60))
    for number, start_ms in enumerate(
        ((2**62 - 10**12) / MS, (2**61 - 10**12) / MS), 1
    ):
        batch = to_batch([record(0, start_ms=start_ms, status="cancelled")])
        swarm.hear(
            messages.RECORDS, number=number, batch=batch.serialize().to_pybytes()
        )
    (batch,) = swarm.written
    check_integers(batch.columns)
    assert batch.column("started_mono_ns")[0].as_py() > 0


def test_a_report_of_a_start_that_comes_after_the_record_is_forgotten() -> None:
    """Records have a connection of their own, and in a large swarm starts are reported together:
    the set of requests that are being sent would grow for as long as the run lasts."""
    swarm = Swarm()
    swarm.run.controller._phase_runner.begin_next()
    swarm.pong(0.2, delivered=0, holds=[], wants={"sharegpt": 2})
    until(lambda: messages.LEASES in swarm.kinds())
    # of an earlier lease of the same request, which was cancelled
    swarm.hear(messages.REPORT, started=[[False, 0, 0]], ended=[], wants={})
    assert swarm.run.sending() == 0
    swarm.hear(messages.REPORT, started=[[False, 0, 1]], ended=[], wants={})
    assert swarm.run.sending() == 1
    swarm.deliver(1)
    until(lambda: not swarm.run.sending())
    swarm.hear(messages.REPORT, started=[[False, 0, 1]], ended=[], wants={})
    assert swarm.run.sending() == 0


def test_a_request_without_a_record_is_named_when_its_worker_has_ended() -> None:
    """By the worker's last word, or by its earlier report that it had begun. Its other lease, which
    it did not begin, goes to others."""
    for reported in (True, False):
        swarm = Swarm(requests=3, users=3)
        swarm.run.controller._phase_runner.begin_next()
        swarm.pong(0.2, delivered=0, holds=[], wants={"sharegpt": 3})
        begun = [[False, 0, 1], [False, 1, 1]]
        swarm.hear(
            messages.REPORT,
            started=begun if reported else begun[:1],
            ended=[],
            wants={},
        )
        swarm.deliver(1)
        swarm.hear(
            messages.FLUSHED,
            batches=1,
            open=[] if reported else [[False, 1]],
            gave_up=False,
            health={"worker": "w"},
        )
        swarm.run._find_lost()
        (gone,) = swarm.run.controller.dispatcher.ledger.lost
        assert (gone.possibly_sent, gone.gave_up) == ([1], True)
        assert swarm.run.controller.dispatcher.assigner.phase.pool.peek() == 2


def test_a_start_is_on_the_masters_wall_clock() -> None:
    """That of a worker may be off by years: what a run sent before, and exports, would be placed by
    it."""
    swarm = Swarm()
    swarm.run.controller._phase_runner.begin_next()
    swarm.pong(0.2, delivered=0, holds=[], wants={"sharegpt": 1})
    swarm.deliver(1)
    (batch,) = swarm.written
    apart_ns = batch.column("started_wall_ns")[0].as_py() - time.time_ns()
    assert abs(apart_ns) < 60e9


def test_tokens_of_a_worker_are_drawn_on_the_masters_clock() -> None:
    """Until their record has come. Instants that no tokens have are refused."""
    swarm = Swarm()
    swarm.run.controller._phase_runner.begin_next()
    swarm.pong(0.2, delivered=0, holds=[], wants={"sharegpt": 1})
    live = swarm.run.controller.live
    now_ns = time.monotonic_ns() + AHEAD_NS
    token_ns = np.array([now_ns - 5_000_000, now_ns])
    new = NewTokens(0, 0, now_ns - 30_000_000, token_ns)
    swarm.hear(messages.TOKENS, answers=messages.pack_tokens([new]))
    first = live.series(0, 0)["first_tokens"]
    assert first["ttft_ms"] == [25.0]
    assert 0 <= first["t_s"][0] < 60  # and not ten days
    swarm.deliver(1)
    late = NewTokens(0, 2, now_ns - 30_000_000, np.array([now_ns, now_ns + 1]))
    before = live.series(0, 0)["version"]
    swarm.hear(messages.TOKENS, answers=messages.pack_tokens([late]))
    assert live.series(0, 0)["version"] == before
    for instants in (b"", bytes(7), b"\xff" * 7 + b"\x7f"):
        with pytest.raises(ValueError):
            messages.unpack_tokens([(0, 0, 0, instants)], 0)


def test_a_worker_that_has_given_up_is_not_waited_for() -> None:
    """It was cut off at its end, and has spooled what it had: no more will come, also with --at-end
    wait. Its requests are named."""
    swarm = Swarm(requests=1)
    swarm.run.controller._phase_runner.begin_next()
    swarm.pong(0.2, delivered=0, holds=[], wants={"sharegpt": 1})
    swarm.hear(
        messages.FLUSHED, batches=1, open=[], gave_up=False, health={"worker": "w"}
    )
    swarm.run._wait_s = 900
    waiting = gevent.spawn(swarm.run._await_last_words)
    gevent.sleep(0.1)  # it is not to end
    assert not waiting.dead
    swarm.hear(
        messages.FLUSHED, batches=1, open=[], gave_up=True, health={"worker": "w"}
    )
    waiting.join(5)
    assert waiting.dead


def test_the_masters_memory_does_not_grow_with_the_run() -> None:
    """Requests in batches of one record, all of whose messages come: what the master keeps of them
    after 600 is what it kept after
    200. (The numbers of all batches were kept: 3 MiB per worker and hour.)"""
    swarm = Swarm(requests=10_000, users=50)
    run, sizes = swarm.run, []
    run.controller._phase_runner.begin_next()
    while not run._workers["w"].clock.is_known:
        swarm.pong(0.2, delivered=0, holds=[], wants={"sharegpt": 50})
    for index in range(600):
        started_ms = (time.monotonic_ns() + AHEAD_NS) / MS
        batch = to_batch([record(index, start_ms=started_ms)]).serialize().to_pybytes()
        run.on_message(
            messages.REPORT,
            "w",
            {"started": [(False, index, index + 1)], "ended": [], "wants": {}},
        )
        run.on_message(messages.RECORDS, "w", {"number": index + 1, "batch": batch})
        run.on_message(
            messages.REPORT,
            "w",
            {"started": [], "ended": [(False, index, False)], "wants": {"sharegpt": 1}},
        )
        if index % 50 == 49:
            with gevent.Timeout(10):
                while len(run._workers["w"].received) < index + 1 or run.sending():
                    # a machine that stood still for 3 s: the clock is asked for again
                    if run._workers["w"].early:
                        swarm.pong(0.2)
                    gevent.sleep(0.005)  # between two looks
            swarm.sent.clear()
            swarm.written.clear()
        if index in (199, 599):
            sizes.append(
                contained(
                    run._workers,
                    run._ingest._queue,
                    run._ingest._waiting,
                    run.controller.dispatcher.ledger.workers,
                )
            )
    assert sizes[1] <= sizes[0] + 20


def test_batches_are_rarer_the_more_workers_there_are() -> None:
    """0.1 s for up to 25 workers, then 4 ms for each, at most 2 s: the page must not lag more, nor
    the verdict accuse the master."""
    swarm = Swarm()
    for count, expected_s in ((25, 0.1), (50, 0.2), (500, 2.0), (5000, 2.0)):
        while len(swarm.run._workers) < count:
            swarm.run._workers[f"x{len(swarm.run._workers)}"] = swarm.run._workers["w"]
        swarm.run._ping("w", swarm.run._workers["w"])
        assert swarm.sent[-1][1]["batch_every_s"] == pytest.approx(expected_s)


def test_keys_do_not_travel_and_a_worker_adds_its_own() -> None:
    """Neither a header nor a field of --extra-body with a key is in the configuration; with its own
    the worker has the master's."""
    headers, extra = (
        (("Authorization", "Bearer geheim"),),
        {"api_key": "geheim", "top_k": 1},
    )
    target = Target(
        parse_url("http://127.0.0.1:1"),
        "openai",
        None,
        headers=bound("http://127.0.0.1:1", headers),
    )
    settings = SessionSettings(BodyOptions(extra=extra), Timeouts(), save_texts=False)
    config = SenderConfig(
        [target], settings, None, 0.0, takes_priority=False, checks_answers=False
    )
    sent = msgspec.msgpack.encode(
        messages.RunConfig(
            "r", _redact_config(config), False, 0.0, [], ["authorization"], 0
        )
    )
    assert b"geheim" not in sent
    own: Any = SimpleNamespace(headers=headers, extra_body=extra)
    with_keys = with_own_keys(
        msgspec.msgpack.decode(sent, type=messages.RunConfig), own
    )
    assert (with_keys.targets[0].headers.fields, with_keys.settings) == (
        headers,
        settings,
    )
