"""What a worker notices of itself: pauses of its event loop, a suspended machine, and who takes the
CPU."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import gevent
import numpy as np
import psutil
import pytest
from gevent import monkey

from llama_load.loadgen.live.gauges import CORE_WAIT, LOOP_LAG, OTHERS
from llama_load.loadgen.run import health
from llama_load.loadgen.run.health import HealthMonitor
from llama_load.loadgen.run.present_health import PresentHealth
from llama_load.loadgen.run.server_cpu import ServerCpu
from llama_load.servers.address import parse_url
from tests.waiting import until

stand_still = monkey.get_original("time", "sleep")  # the whole process, as with SIGSTOP


def test_the_longest_pause_is_found_with_its_time() -> None:
    """One of 0.4 s in the middle; it began after the sample before it."""
    check = HealthMonitor("w")
    check.start()
    gevent.sleep(0.1)  # samples before the pause
    began_ns = time.monotonic_ns()
    stand_still(0.4)
    gevent.sleep(0.1)  # and behind it
    check.stop()
    found = check.health()
    assert found.longest_pause_ms is not None
    assert found.longest_pause_mono_ns is not None
    assert found.longest_pause_ms >= 380
    assert found.longest_pause_ms == found.loop_lag_max_ms
    assert found.longest_pause_mono_ns >= began_ns - 20_000_000


def test_what_the_client_feels_at_present_is_that_of_the_last_window() -> None:
    """1 s on 4 cores: 0.05 s of waits; of 4 s 1 idle, 0.5 ours, 0.9 the server's, so 1.6 of others.
    Lags: the last ten seconds."""
    present = PresentHealth()
    assert present.gauges() == {}
    for _ in range(900):
        present.lag(9.0)
    for _ in range(500):
        present.lag(1.0)
    present.window(
        now_s=10.0, waited_ms=100.0, all_s=500.0, idle_s=300.0, own_s=3.0, server_s=7.0
    )
    assert present.gauges() == {LOOP_LAG: 1.0}, "a share needs two readings"
    present.window(
        now_s=11.0, waited_ms=150.0, all_s=504.0, idle_s=301.0, own_s=3.5, server_s=7.9
    )
    assert present.gauges() == pytest.approx(
        {LOOP_LAG: 1.0, CORE_WAIT: 5.0, OTHERS: 40.0}
    )
    present.window(
        now_s=12.0, waited_ms=None, all_s=508.0, idle_s=305.0, own_s=3.5, server_s=7.9
    )
    assert present.gauges() == pytest.approx({LOOP_LAG: 1.0, OTHERS: 0.0})


def test_every_sample_after_a_short_turn_is_late() -> None:
    """Turns of 15 ms: each sample is due within one, and comes at its end or that of the next."""
    check = HealthMonitor("w")
    check.start()
    until_ns = time.monotonic_ns() + 1_000_000_000
    while time.monotonic_ns() < until_ns:
        stand_still(0.015)
        gevent.sleep(0.0001)  # the rest of a turn
    check.stop()
    assert np.median(check._lags_ms) >= 8


def test_a_sample_that_raises_is_the_last(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    check = HealthMonitor("w")
    monkeypatch.setattr(check, "_note_lag", lambda: 1 / 0)
    check.start()
    gevent.sleep(0.2)  # no second one is to come
    assert capfd.readouterr().err.count("ZeroDivisionError: ") == 1


def test_late_wakeups_are_kept_with_their_times_the_longest_of_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three pauses, of which two may be kept."""
    monkeypatch.setattr(health, "MOST_LATE", 2)
    check = HealthMonitor("w")
    check.start()
    began_ns = time.monotonic_ns()
    for pause_s in (0.3, 0.2, 0.4):
        gevent.sleep(0.03)  # samples before the pause
        stand_still(pause_s)
    gevent.sleep(0.03)  # and behind the last one
    check.stop()
    (first_ns, first_ms), (last_ns, last_ms) = check.health().late_wakeups
    assert 280 <= first_ms < last_ms
    assert began_ns < first_ns + 500_000_000 <= last_ns + 1


@pytest.mark.parametrize("where", ["beginning", "end"])
def test_a_pause_at_the_edge_of_the_measurement_counts(where: str) -> None:
    """Before the first sample is taken, and after the last one."""
    check = HealthMonitor("w")
    check.start()
    if where == "end":
        gevent.sleep(0.1)  # samples before the pause
    stand_still(0.4)
    if where == "beginning":
        gevent.sleep(0.1)  # samples behind it
    check.stop()
    assert (check.health().longest_pause_ms or 0) >= 380


@pytest.mark.parametrize(
    ("asleep_ns", "expected_ms"), [(5_000_000_000, 5000.0), (40_000, 0.0)]
)
def test_a_suspended_machine_is_noticed(
    monkeypatch: pytest.MonkeyPatch, asleep_ns: int, expected_ms: float
) -> None:
    """CLOCK_BOOTTIME goes on while CLOCK_MONOTONIC stands still, so that no lag shows it. That two
    clocks are not read in the same instant is no suspension."""
    ahead_ns = 7_000_000_000  # of an earlier time
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(
        time, "clock_gettime_ns", lambda _: time.monotonic_ns() + ahead_ns
    )
    check = HealthMonitor("w")
    check.start()
    ahead_ns += asleep_ns
    check.stop()
    assert check.health().suspended_ms == pytest.approx(expected_ms, abs=10)


def test_who_takes_the_cpu() -> None:
    """This process works for 0.3 s of CPU: that is its share of all cores, and the machine was at
    least as busy."""
    check = HealthMonitor("w")
    until(lambda: check._client.is_known)  # it looks for its processes in a thread
    check.start()
    begun = time.monotonic()
    used_up_s = time.process_time() + 0.3
    while time.process_time() < used_up_s:
        pass
    check.stop()
    health = check.health()
    expected = 0.3 / (time.monotonic() - begun) / (psutil.cpu_count() or 1)
    assert health.own_share == pytest.approx(expected, rel=0.3)
    assert health.machine_busy is not None
    assert health.machine_busy >= health.own_share * 0.8
    assert health.server_share is None


def test_who_takes_the_cpu_is_unknown_before_processes_are_found() -> None:
    """All that they used since they were born would count, which may be more than the machine."""
    check = HealthMonitor("w")
    check.start()
    stand_still(0.05)
    check.stop()
    health = check.health()
    assert health.stolen_ratio is not None
    assert (health.machine_busy, health.client_share) == (None, None)


LISTENS_AND_ITS_CHILD_WORKS = """
import os, socket, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
parent = os.getpid()
if os.fork():
    time.sleep(60)  # until it is killed
while os.getppid() == parent:
    pass
"""


def test_the_servers_share_is_that_of_its_whole_tree() -> None:
    """The process that listens sleeps, its child works. A port at which nobody listens, or on
    another machine, is unknown."""
    server = subprocess.Popen(
        [sys.executable, "-c", LISTENS_AND_ITS_CHILD_WORKS],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        port = int(server.stdout.readline())
        with socket.create_server(("127.0.0.1", 0)) as closed:
            unused = closed.getsockname()[1]
        found = ServerCpu([parse_url(f"http://127.0.0.1:{port}").resolved()])
        nobody = ServerCpu([parse_url(f"http://127.0.0.1:{unused}").resolved()])
        elsewhere = ServerCpu([parse_url(f"http://192.0.2.1:{port}").resolved()])
        deadline = time.monotonic() + 20
        share = 0.0  # since the last look
        while share < 0.05 and time.monotonic() < deadline:
            gevent.sleep(0.05)  # between two looks
            share = found.share() or 0.0
        assert 0.05 <= share <= 1
        assert nobody.share() is None
        assert elsewhere.share() is None
    finally:
        server.kill()
        server.wait()
