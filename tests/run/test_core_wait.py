"""Waiting for a core, by the kernel's account, against a thread that has to share one."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from llama_load.run.core_wait import CoreWait

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="the kernel's account of threads")

SHARES_A_CORE = """
import os, subprocess, sys, time
core = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {core})
hog = subprocess.Popen([sys.executable, "-c", "import os\\nparent = os.getppid()\\nwhile os.getppid() == parent: pass"])
from llama_load.run.core_wait import CoreWait
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
    """Two processes that never sleep on one core: time on the core and time waiting are all the time there is."""
    done = subprocess.run([sys.executable, "-c", SHARES_A_CORE], capture_output=True, text=True, timeout=60, check=True)
    both_s, elapsed_s, share, longest_ms, total_ms = map(float, done.stdout.split())
    assert both_s == pytest.approx(elapsed_s, rel=0.15)
    assert share > 0.2  # fair scheduling gives it about a half
    assert 0 < longest_ms <= total_ms


def test_a_thread_that_sleeps_waits_for_nothing() -> None:
    wait = CoreWait()
    wait.start()
    began = time.monotonic()
    time.sleep(0.1)
    wait.sample()
    assert wait.total_ms is not None
    assert wait.total_ms / 1e3 < time.monotonic() - began - 0.09
    assert wait.longest_ms is not None and wait.share is not None


def test_without_the_kernels_account_nothing_is_known() -> None:
    """No account at all, and one that the kernel does not keep."""
    wait = CoreWait(lambda: 0.0)
    wait.sample()
    assert (wait.total_ms, wait.longest_ms, wait.share) == (None, None, None)
