"""Whose CPU time is the client's: its own processes, and never those of others."""

from __future__ import annotations

import subprocess
import sys

import gevent
import psutil

from llama_load.loadgen.run.client_cpu import ClientCpu, cpu_s
from tests.waiting import until

BURN = "import time\nwhile time.process_time() < {}: pass\ntime.sleep(9)"


def wait_until_used(pid: int, seconds: float) -> None:
    until(lambda: cpu_s(psutil.Process(pid)) >= seconds)


def test_a_child_is_ours_and_a_stranger_is_named() -> None:
    """A child burns 0.3 s of CPU time; so does another process, which no process of ours started:
    its shell has ended. Seconds are counted in ticks of 10 ms."""
    ours = ClientCpu()
    gevent.sleep(0.2)  # it looks for processes in a thread
    ours.start()
    child = subprocess.Popen([sys.executable, "-c", BURN.format(0.3)])
    shell = [
        "/bin/sh",
        "-c",
        f'"{sys.executable}" -c "$0" >/dev/null 2>&1 & echo $!',
        BURN.format(0.3),
    ]
    stranger = int(
        subprocess.run(shell, capture_output=True, check=True, text=True).stdout
    )
    try:
        wait_until_used(child.pid, 0.25)
        wait_until_used(stranger, 0.25)
        with_child_s, without_s = ours.used_s(), ours.used_s(servers={child.pid})
        assert 0.2 <= with_child_s - without_s <= 0.6
        ours.used_s()
        # 0.3 s are 30 % of one second; nothing says that the machine does nothing else.
        named = {
            text.rpartition(" ")[0] for text in ours.busiest_others(1.0, servers=())
        }
        assert psutil.Process(stranger).name() in named or len(named) == 2
    finally:
        child.kill()
        child.wait()
        psutil.Process(stranger).kill()
