"""Two swarms on one machine: each has its own port, and no worker serves a master of another
locustfile."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llama_load.ground.errors import UsageError
from llama_load.loadgen.swarm.ports import LOCUSTS_PORT, port_instead
from tests.conftest import Finished, Simulated
from tests.swarms import swarm

PROCESSES = ["locust", "-f", "x.py", "--processes", "4"]


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("", 0)) as listener:
        yield listener.getsockname()[1]


def test_processes_take_a_port_of_their_own() -> None:
    """Unless somebody has named one. Also where Locust's is free: another swarm may be about to
    take it."""
    ports = {port_instead(PROCESSES, {}, lambda _: True) for _ in range(5)}
    assert None not in ports
    assert LOCUSTS_PORT not in ports
    assert len(ports) > 1
    # the other one is this port too, and not Locust's
    for flag in ("--master-bind-port", "--master-port"):
        assert port_instead([*PROCESSES, flag, "6000"], {}, lambda _: True) == 6000
    with pytest.raises(UsageError, match="the same port"):
        port_instead(
            [*PROCESSES, "--master-bind-port", "6000", "--master-port", "6001"],
            {},
            lambda _: True,
        )
    assert port_instead([], {"LOCUST_PROCESSES": "2"}, lambda _: False) is not None
    for named in (["--master-port", "6000"], ["--master-bind-port=6000"]):
        with pytest.raises(
            UsageError, match="--master-bind-port N on the master, --master-port N"
        ):
            port_instead([*PROCESSES, *named], {}, lambda _: False)


def test_a_master_alone_must_name_its_port() -> None:
    """Its workers are started by hand; a run of one process and a worker need none."""
    with pytest.raises(UsageError, match=f"port {LOCUSTS_PORT} is taken"):
        port_instead(["--master"], {}, lambda _: False)
    for words in ([], ["--worker"], ["--worker", "--processes", "2"], ["--processes"]):
        assert port_instead(words, {}, lambda _: False) is None


def test_a_taken_port_is_named_before_anything_starts(
    run_locust: Callable[..., Finished], taken: int
) -> None:
    """By the process itself, with no workers that could join the other master."""
    port = str(taken)
    done = run_locust(
        "http://127.0.0.1:9",
        "--processes",
        "2",
        "--master-bind-port",
        port,
        "--master-port",
        port,
    )
    assert done.code == 2
    assert f"port {port} is taken" in done.err
    assert "Traceback" not in done.err


def test_a_worker_with_another_locustfile_is_refused(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Locust would fail to start its users."""
    other = tmp_path / "other.py"
    other.write_text(
        "from llama_load import LlamaUser, ShareGPT\nclass Other(LlamaUser):\n    workload = ShareGPT()\n    tasks = [print]\n"
    )
    with swarm(
        tmp_path / "swarm",
        simulate("--interval-ms", "1").url,
        0,
        "-u",
        "1",
        "--num-prompts",
        "2",
        expect=1,
    ) as running:
        running.locustfile = other
        running.add_worker()
        done = running.finish()
    assert done.code == 2
    assert "has no user class" in done.err
    assert "--master-bind-port" in done.err
