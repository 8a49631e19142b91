"""What is known of a server on this machine before a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from llama_load.servers.address import parse_url
from llama_load.servers.serving.local_process import LocalProcess
from llama_load.servers.serving.local_server import LocalServer
from llama_load.servers.target import Target

WAITS = "import sys, time\nprint('here', flush=True)\ntime.sleep(60)"


@pytest.mark.parametrize(
    ("can_sleep", "words", "expected"),
    [
        (True, ["-c", "512"], False),
        (True, ["--sleep-idle-seconds", "2"], True),
        (True, ["--sleep-idle-seconds=2"], True),
        (False, ["-c", "512"], False),
    ],
)
def test_a_server_sleeps_only_if_its_command_says_so(
    can_sleep: bool, words: list[str], expected: bool, tmp_path: Path
) -> None:
    """Its slots are asked only then: each request keeps it awake."""
    server = subprocess.Popen(
        [sys.executable, "-c", WAITS, *words], stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    server.stdout.readline()
    created_s = psutil.Process(server.pid).create_time()
    process = LocalProcess(server.pid, created_s, "llama-server", ("llama-server",))
    target = Target(
        parse_url("http://127.0.0.1:1"), "llama-server", "m", can_sleep=can_sleep
    )
    try:
        assert LocalServer(target, process).may_sleep is expected
    finally:
        server.kill()
        server.communicate()
    # elsewhere, or gone: whether it sleeps is not known
    assert LocalServer(target).may_sleep is can_sleep
    assert LocalServer(target, process).may_sleep is can_sleep
