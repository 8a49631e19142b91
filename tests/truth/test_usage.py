"""What the processes of a client cost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from truth import usage as module
from truth.log import Entry, Log
from truth.usage import Machine, ProcessGroup, Usage

S = 1_000_000_000
# Burns 0.3 s of CPU in itself and in a child, which leaves the session.
BURN = """
import os, time
child = os.fork()
if child == 0:
    os.setsid()
begin = time.process_time()
while time.process_time() - begin < 0.3:
    pass
"""


def test_cpu_time_between_two_instants_is_interpolated() -> None:
    """A second of CPU in 2 s, then none."""
    usage = Usage([(0, 0), (2 * S, S), (4 * S, S)])
    assert usage.cpu_s(0, 4 * S) == 1
    assert usage.cpu_s(0, S) == 0.5
    assert usage.cpu_s(2 * S, 3 * S) == 0
    assert usage.cpu_s(-S, 9 * S) == 1


def test_a_token_costs_what_is_used_while_the_server_has_requests() -> None:
    """From 1 to 2 s half of the second; the start before it is in all alone. Of the machine's 3 s
    the client used 1, or with what no sample saw 1.2, and the server 0.4."""
    machine = Machine(busy_s=3.0, stolen_s=0.4, waited_s=1.0, children_s=1.2)
    usage = Usage([(0, 0), (2 * S, S), (4 * S, S)], memory_mib=9.0, machine=machine)
    request = Entry(1, received_ns=S, sent_ns=(S,) * 100, ended_ns=2 * S)
    log = Log((request,), {"cpu_s": 0.4})
    cost = usage.cost(log)
    assert cost is not None
    assert cost.cpu_us_per_token == pytest.approx(5_000)
    assert (cost.cpu_s, cost.memory_mib) == (1.0, 9.0)
    assert cost.other_cores == pytest.approx(1.4 / 4)
    assert (cost.stolen_cores, cost.wait_ratio) == (0.1, 0.25)
    assert usage.cost(Log((Entry(1, received_ns=S),))) is None
    assert Usage().cost(log) is None


def burnt() -> float:
    """CPU seconds of the program and its child, as they are counted."""
    with ProcessGroup() as group:
        command = [sys.executable, "-c", BURN]
        process = subprocess.Popen(command, preexec_fn=group.join)
        with group.measure(process.pid) as usage:
            process.wait(20)
            deadline = time.monotonic() + 20
            while group.counted and group.pids(0) and time.monotonic() < deadline:
                time.sleep(0.01)  # between two looks
    return usage.cpu_s(usage.cpu[0][0], usage.cpu[-1][0])


def test_the_cpu_time_of_a_child_that_its_parent_left_is_counted() -> None:
    """With control groups, of which none is left."""
    with ProcessGroup() as group:
        if not group.counted:
            pytest.skip("control groups cannot be made here")
    assert burnt() > 0.55
    left = Path("/sys/fs/cgroup").glob(f"**/truth-{os.getpid()}-*")
    assert not list(left)


def test_without_control_groups_descendants_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At least while their parent lives."""
    monkeypatch.setattr(module, "GROUPS", tmp_path / "none")
    assert burnt() > 0.25


def test_what_is_left_of_a_client_is_killed() -> None:
    with ProcessGroup() as group:
        if not group.counted:
            pytest.skip("control groups cannot be made here")
        process = subprocess.Popen(["sleep", "60"], preexec_fn=group.join)
    assert process.wait(5) < 0
