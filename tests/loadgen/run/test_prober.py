"""When probes are sent: on the idle server, while requests are measured, and at no other time. No
process, no waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.run.hang_ups_watcher import HangUpsWatcher
from llama_load.loadgen.run.prober import Prober
from llama_load.loadgen.run.run_clock import RunClock
from llama_load.loadgen.run.watcher import Watcher
from llama_load.loadgen.schedule.schedule import probe_times_s
from llama_load.run_folder import StageRecord
from llama_load.run_folder.observed.probe_names import ALONE, BESIDE, SETTLING
from llama_load.run_folder.observed.record import ABORTED, RequestRecord
from llama_load.servers.address import parse_url
from llama_load.servers.target import Target
from llama_load.servers.work_counts import WorkCount
from tests.make_records import MS, manifest, record
from tests.virtual_run import VirtualRun, staged


def test_one_probe_in_each_interval() -> None:
    times = list(islice(probe_times_s(0.5, 3), 1000))
    assert [int(at // 2) for at in times] == list(range(1000))
    assert (
        times
        == list(islice(probe_times_s(0.5, 3), 1000))
        != list(islice(probe_times_s(0.5, 4), 1000))
    )
    # Every moment of an interval is as likely: the mean of 1000 places has a standard deviation of
    # 2 / sqrt(12 000) s.
    assert sum(at % 2 for at in times) / 1000 == pytest.approx(1, abs=0.08)


class Server:
    """Answers each probe after `takes_s`, or when it is cut."""

    def __init__(self, run: VirtualRun) -> None:
        self.time = run.time
        # name, server, start and scheduled, ns
        self.sent: list[tuple[str, int, int, int | None]] = []
        self.kept: list[RequestRecord] = []
        self.takes_s, self.is_cut, self.ends = 0.1, False, 0
        self.most_in_flight = self.in_flight = 0

    def send(
        self, number: int, replica: int, name: str, scheduled_ns: int | None
    ) -> RequestRecord:
        begun_ns = self.time.now_ns
        self.sent.append((name, replica, begun_ns, scheduled_ns))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.is_cut = False
        while self.time.now_ns < begun_ns + self.takes_s * NS_PER_S and not self.is_cut:
            self.time.sleep(0.01)  # of virtual time
        self.in_flight -= 1
        return record(
            number,
            start_ms=begun_ns / MS,
            name=name,
            status="cancelled" if self.is_cut else "ok",
        )

    def close(self) -> None:
        self.is_cut = True
        self.ends += 1


class Edges(Watcher):
    """What the server had counted when the counters were read."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.read: list[tuple[int, int]] = []  # sent, in flight

    def before_measuring(self) -> None:
        self.read.append((len(self.server.sent), self.server.in_flight))

    def after_measuring(self, _stages: Sequence[StageRecord]) -> None:
        self.before_measuring()


class Probed:
    def __init__(self, rate: float = 2.0, servers: int = 1, **about: Any) -> None:
        def watchers(run: VirtualRun, controller: Any) -> list[Watcher]:
            self.server = Server(run)
            server: Any = self.server
            journal: Any = SimpleNamespace(add=server.kept.append, close=lambda: 0)
            self.prober = Prober(
                controller, rate, 1, servers, sender=server, journal=journal
            )
            self.edges = Edges(server)
            return [self.prober, self.edges]

        self.run = VirtualRun(watchers=watchers, **about)

    def sent(self, name: str) -> list[tuple[str, int, int, int | None]]:
        return [each for each in self.server.sent if each[0] == name]


def test_ten_probes_alone_between_warmup_and_load() -> None:
    """Both users send their warm-up first. One probe at a time; the first is discarded; then the
    counters are read."""
    probed = Probed(requests=20, warmup=2)
    probed.run.begin().over()
    assert [name for name, *_ in probed.server.sent[:11]] == [
        SETTLING,
        *[ALONE] * 9,
        BESIDE,
    ]
    warmups, measured = (
        [sent for sent in probed.run.sent if sent[0].warmup is flag]
        for flag in (True, False)
    )
    alone = probed.server.sent[:10]
    assert max(end_ns for _, _, end_ns in warmups) <= alone[0][2]
    assert alone[-1][2] + NS_PER_S // 10 <= min(start_ns for _, start_ns, _ in measured)
    assert probed.edges.read[0] == (10, 0)


def test_probes_are_sent_beside_requests_and_counted_in_nothing() -> None:
    """Ten seconds at 2/s: twenty, at their scheduled times, and no count of the run has them."""
    probed = Probed(requests=20)
    probed.run.begin().over()
    beside = probed.sent(BESIDE)
    assert 19 <= len(beside) <= 21
    assert all(begun_ns == scheduled_ns for _, _, begun_ns, scheduled_ns in beside)
    assert len(probed.server.kept) == len(probed.server.sent)
    assert probed.run.controller.progress.counts().done == 20
    # None is in flight when the counters are read, and none is sent afterwards.
    assert probed.edges.read[-1] == (len(probed.server.sent), 0)


def test_warmups_of_later_stages_are_not_probed() -> None:
    """Each stage has a warm-up of 3 s and a measurement of 6 s; only the first has probes alone."""
    probed = Probed(rate=10.0, model=staged("1:6,2:12"), users=2, warmup=3)
    probed.run.begin().over()
    assert Counter(name for name, *_ in probed.server.sent) == {
        SETTLING: 1,
        ALONE: 9,
        BESIDE: len(probed.sent(BESIDE)),
    }
    stages = probed.run.manifest.stages
    spans = [(stage.begun_mono_ns, stage.ended_mono_ns) for stage in stages]
    for _, _, begun_ns, _ in probed.sent(BESIDE):
        assert any(
            begun and ended and begun <= begun_ns <= ended for begun, ended in spans
        )
    assert all(
        sum(begun <= each[2] < ended for each in probed.sent(BESIDE)) > 50
        for begun, ended in spans
    )


def test_probes_do_not_wait_for_each_other() -> None:
    """An open loop: with answers of 3 s at 2/s up to six are in flight."""
    probed = Probed(requests=30)
    probed.run.begin()
    probed.run.after(2)
    probed.server.takes_s = 3.0
    probed.run.after(6)
    assert 4 <= probed.server.most_in_flight <= 7
    assert probed.prober.in_flight(0) == probed.server.in_flight
    probed.run.over()


def test_servers_are_probed_in_turn() -> None:
    probed = Probed(servers=3, requests=60)
    probed.run.begin().over()
    assert Counter(replica for _, replica, *_ in probed.sent(ALONE)) == {
        0: 9,
        1: 9,
        2: 9,
    }
    turns = [replica for _, replica, *_ in probed.sent(BESIDE)]
    assert all(
        later == (earlier + 1) % 3
        for earlier, later in zip(turns, turns[1:], strict=False)
    )


def test_a_server_that_hangs_does_not_hold_up_the_run() -> None:
    """The probes alone end after 30 s, those in flight at the end of a measurement after 5 s, and
    the last are cut."""
    probed = Probed(requests=4)
    hung = 1000.0
    probed.run.begin()
    probed.server.takes_s = hung
    probed.run.after(31)
    assert probed.run.sent  # the load has begun
    assert (
        probed.server.kept[-1].name == SETTLING or probed.server.kept[-1].name == ALONE
    )
    assert probed.server.kept[-1].status == "cancelled"
    probed.run.after(10)
    assert probed.run.controller.end_reason == "complete"
    probed.run.time.spawn(probed.run.controller.close, [])
    probed.run.after(5)
    assert probed.server.in_flight == 0 and probed.prober.in_flight(0) == 0
    assert len(probed.server.kept) == len(probed.server.sent)
    assert probed.server.kept[-1].status == "cancelled"


def test_a_process_that_stood_still_sends_no_burst() -> None:
    """The clock jumps by 10 s: twenty probes whose time has passed, of which only the newest is
    sent."""
    probed = Probed(requests=60)
    probed.run.begin().after(3)
    before = len(probed.sent(BESIDE))
    probed.run.time.now_ns += 10 * NS_PER_S
    probed.run.after(0.05)
    assert len(probed.sent(BESIDE)) - before <= 2
    probed.run.over()
    assert 17 <= probed.run.manifest.probes_skipped <= 20


@pytest.mark.parametrize(("busy", "for_nobody"), [(1, 0), (2, 1)])
def test_probes_are_no_requests_of_users_who_hung_up(
    busy: int, for_nobody: int
) -> None:
    """A user hung up a second ago and a probe is in flight: a server that works on two has one too
    many."""
    at_work = [busy]
    ledger = SimpleNamespace(requests_under_way=list)
    run: Any = SimpleNamespace(
        clock=RunClock(), dispatcher=SimpleNamespace(ledger=ledger)
    )
    target = Target(parse_url("http://127.0.0.1:1"), "openai", None)
    watcher = HangUpsWatcher(
        run,
        [target],
        lambda _: False,
        lambda _: WorkCount(at_work[0], is_all=True),
        lambda _: True,
        probes=lambda _: 1,
    )
    ended_ms = run.clock.now_ns() / MS - 1000
    watcher.add_record(
        replace(
            record(0, start_ms=ended_ms - 140), status=ABORTED, host=target.address.url
        )
    )
    watcher.look()
    at_work[0] = 0
    watcher.stop()
    writer: Any = SimpleNamespace(manifest=manifest())
    watcher.facts(writer)
    assert [check.freeing.most_at_work for check in writer.manifest.hang_ups] == [
        for_nobody
    ]
