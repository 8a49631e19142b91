"""The kernel's account of threads: how long they ran, and waited for a core."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from llama_load.loadgen.run.thread_waits import Waits, account_of, between

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc")
BURN = "import os, time\nos.sched_setaffinity(0, {0})\nwhile True: pass"


@linux
def test_two_programs_on_one_core_wait_for_each_other() -> None:
    """Each gets half of it, or less where others use it, too: it waits as long as it does not
    run."""
    pair = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(2)]
    try:
        time.sleep(0.5)  # both compute
        before = account_of([pair[0].pid])
        began = time.monotonic()
        time.sleep(1.0)  # the span that is measured
        waits = between(before, account_of([pair[0].pid]))
        elapsed_s = time.monotonic() - began
    finally:
        for process in pair:
            process.kill()
            process.wait()
    assert waits is not None
    assert waits.waited_s > 0.3 * elapsed_s
    assert waits.ran_s + waits.waited_s == pytest.approx(elapsed_s, rel=0.2)


@linux
def test_threads_count_together_and_an_ended_one_is_no_negative_time() -> None:
    own = account_of([os.getpid()])
    assert {pid for pid, _ in own} == {os.getpid()}
    assert between(own, own) == Waits(0.0, 0.0)
    gone = {(1, 1): Waits(5.0, 5.0)}
    assert between(gone, {(1, 2): Waits(1.0, 0.5)}) == Waits(1.0, 0.5)


def test_what_cannot_be_seen_is_not_known() -> None:
    assert between({}, account_of([2**31 - 1])) is None
