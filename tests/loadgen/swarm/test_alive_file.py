"""The file for liveness probes: renewed while the event loop runs, not while it hangs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import gevent
import pytest

from llama_load.loadgen.swarm import alive_file
from tests.waiting import until


def test_a_loop_that_hangs_does_not_renew_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "alive"
    assert alive_file.keep_alive_file() is None
    monkeypatch.setenv(alive_file.VARIABLE, str(file))
    monkeypatch.setattr(alive_file, "RENEW_EVERY_S", 0.01)
    greenlet = alive_file.keep_alive_file()
    assert greenlet is not None
    until(file.exists)
    os.utime(file, (1.0, 1.0))
    time.sleep(0.1)  # the loop stands still
    assert file.stat().st_mtime == 1.0
    until(lambda: file.stat().st_mtime > 1.0)
    file.unlink()
    tmp_path.joinpath("alive").mkdir()
    gevent.sleep(0.03)  # it is not to end
    assert not greenlet.dead
    greenlet.kill()
