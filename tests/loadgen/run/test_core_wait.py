"""Waiting for a core, by the kernel's account, against a thread that has to share one."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from llama_load.loadgen.run.core_wait import CoreWait

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="the kernel's account of threads"
)

SHARES_A_CORE = """
import os, subprocess, sys, time
core = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {core})
hog = subprocess.Popen([sys.executable, "-c", "import os\\nparent = os.getppid()\\nwhile os.getppid() == parent: pass"])
from llama_load.loadgen.run.core_wait import CoreWait
wait = CoreWait()
time.sleep(0.2)
wait.start()
begun = time.thread_time(), time.monotonic()
while time.monotonic() - begun[1] < 0.5:
    wait.sample()
used = time.thread_time() - begun[0]
wait.sample()
hog.kill()
elapsed = time.monotonic() - begun[1]
print(wait.total_ms / 1e3 + used, elapsed, wait.share, wait.longest_ms, wait.total_ms)
"""


def test_what_a_busy_thread_does_not_get_it_has_waited_for() -> None:
    """Two processes that never sleep on one core: time on the core and time waiting are all the
    time there is."""
    done = subprocess.run(
        [sys.executable, "-c", SHARES_A_CORE],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    both_s, elapsed_s, share, longest_ms, total_ms = map(float, done.stdout.split())
    assert both_s == pytest.approx(elapsed_s, rel=0.15)
    assert share > 0.2  # fair scheduling gives it about a half
    assert 0 < longest_ms <= total_ms


@pytest.mark.timing
def test_a_thread_that_sleeps_waits_for_nothing() -> None:
    wait = CoreWait()
    wait.start()
    began = time.monotonic()
    time.sleep(0.1)  # it waits for nothing
    wait.sample()
    assert wait.total_ms is not None
    assert wait.total_ms / 1e3 < time.monotonic() - began - 0.09
    assert wait.longest_ms is not None and wait.share is not None


def test_without_the_kernels_account_nothing_is_known() -> None:
    wait = CoreWait(lambda: None)
    wait.sample()
    assert (wait.total_ms, wait.longest_ms, wait.share) == (None, None, None)


def test_a_sample_without_a_descriptor_is_no_wait() -> None:
    """The account says 30 s, cannot be read for a while, and has grown by 1 s afterwards: 1 s of
    waiting, not 30, and nothing present in between."""
    accounts = iter([30.0, 30.5, None, None, 31.0])
    wait = CoreWait(lambda: next(accounts))
    wait.sample()
    wait.sample()
    assert wait.total_ms == pytest.approx(500)
    assert wait.present_ms is None
    wait.sample()
    wait.sample()
    assert wait.total_ms == pytest.approx(1000)
    assert wait.present_ms == pytest.approx(1000)
    assert wait.longest_ms == pytest.approx(500)


def test_no_descriptor_at_the_start_makes_no_long_wait() -> None:
    """What was waited before the first reading is not of this run."""
    accounts = iter([None, 30.0, 30.25])
    wait = CoreWait(lambda: next(accounts))
    wait.sample()
    wait.sample()
    assert wait.total_ms == pytest.approx(250)


NO_DESCRIPTOR = """
import os, resource
from llama_load.loadgen.run.core_wait import CoreWait
from llama_load.loadgen.wire import priority
wait = CoreWait(lambda: priority.WaitAccount().waited_s())
assert wait.total_ms == 0
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
assert (priority.WaitAccount().waited_s(), priority.idle_s()) == (None, None)
wait.sample()
os.close(held.pop())
wait.sample()
print(wait.total_ms, wait.longest_ms)
"""


def test_a_process_without_descriptors_knows_no_wait_instead_of_none() -> None:
    """An unreadable account was taken for 0 s, and the next reading for one long wait."""
    done = subprocess.run(
        [sys.executable, "-c", NO_DESCRIPTOR],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    total_ms, longest_ms = map(float, done.stdout.split())
    assert 0 <= longest_ms <= total_ms
