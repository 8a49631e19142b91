"""Ends of real swarms: what becomes of requests whose records never come, and workers on another
Python."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Finished, Simulated

pytestmark = pytest.mark.heavy

# Cancelled requests of which no record can be made.
BROKEN = """
from locust import task
from llama_load import LlamaUser, ShareGPT
from llama_load.loadgen.users import turn

make_record = turn.make_record

def broken(*arguments, **keywords):
    record = make_record(*arguments, **keywords)
    assert record.status != "cancelled"
    return record

turn.make_record = broken

class Broken(LlamaUser):
    workload = ShareGPT()

    @task
    def ask(self):
        self.chat()
"""


@pytest.mark.parametrize("processes", [[], ["--processes", "2"]])
def test_requests_that_never_become_records_are_named(
    run_locust: Callable[..., Finished],
    simulate: Callable[..., Simulated],
    tmp_path: Path,
    processes: list[str],
) -> None:
    """In a run that is limited by time, where no number of requests is expected: they were missing
    in silence, with exit code 0. Catches records that a real process keeps to itself."""
    locustfile = tmp_path / "broken.py"
    locustfile.write_text(BROKEN)
    server = simulate(
        "--first-token-ms", "10", "--interval-ms", "1000", "--tokens", "100"
    )
    done = run_locust(
        server.url,
        "-u",
        "4",
        "-t",
        "3s",
        "--warmup",
        "0",
        *processes,
        locustfile=locustfile,
    )
    assert done.code == 3, done.err
    named = [index for gone in done.manifest["lost"] for index in gone["possibly_sent"]]
    assert sorted(named) == [0, 1, 2, 3]
    texts = [
        check["text"]
        for check in done.summary["llama_load"]["verdict"]["checks"]
        if check["name"] == "lost_requests"
    ]
    assert all("had sent and has no record of" in text for text in texts)


def test_another_python_has_the_same_fingerprint(tmp_path: Path) -> None:
    """A worker on 3.13 was refused by a master on 3.11, because docstrings are indented in another
    way. (3.12 agrees with both.) Catches fingerprints that differ between versions of Python."""
    version = "3.13"
    python = shutil.which(f"python{version}")
    code = "from llama_load.loadgen.swarm.messages import fingerprint; print(fingerprint())"
    if (
        python is None
        or subprocess.run(
            [python, "-c", ""], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip(f"there is no Python {version}")
    subprocess.run([python, "-m", "venv", str(tmp_path / "venv")], check=True)
    theirs = tmp_path / "venv" / "bin" / "python"
    install = subprocess.run(
        [theirs, "-m", "pip", "install", "-q", str(REPOSITORY)],
        capture_output=True,
        text=True,
        check=False,
    )
    if install.returncode:
        pytest.skip(f"no index has the packages: {install.stderr[-200:]}")
    from llama_load.loadgen.swarm.messages import fingerprint

    other = subprocess.run(
        [theirs, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert other.stdout.strip() == fingerprint()
