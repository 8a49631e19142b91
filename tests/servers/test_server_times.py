"""The server's own times in an answer."""

from __future__ import annotations

import os

import psutil
import pytest

from llama_load.loadgen.preflight.server_rows import server_rows
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.servers.address import parse_url
from llama_load.servers.kinds.vllm_kind import VLLM
from llama_load.servers.serving.local_process import LocalProcess
from llama_load.servers.serving.local_server import LocalServer
from llama_load.servers.target import ServerFacts, Target
from llama_load.servers.usage import ServerTimes, Timings, server_times, speculated


def test_vllms_times_of_an_answer() -> None:
    metrics = (
        b'{"queue_time_ms":300.0,"time_to_first_token_ms":80,"generation_time_ms":230}'
    )
    assert server_times(None, metrics) == ServerTimes(300.0, 80.0, 230.0)
    timings = Timings(prompt_ms=5.0, predicted_ms=7.0)
    assert server_times(timings, metrics) == ServerTimes(None, 5.0, 7.0)


@pytest.mark.parametrize(
    "metrics",
    [None, b"null", b"[]", b"1", b'{"queue_time_ms":"3"}', b'{"queue_time_ms":-1}'],
)
def test_times_that_are_none_are_not_known(metrics: bytes | None) -> None:
    assert server_times(None, metrics) == ServerTimes()


def test_odd_times_leave_the_counts_of_speculation() -> None:
    metrics = b'{"queue_time_ms":"3","speculative_decoding":{"num_draft_tokens":4}}'
    found = speculated(metrics)
    assert found is not None
    assert found.num_draft_tokens == 4


@pytest.mark.parametrize(
    ("is_here", "build", "levels"),
    [(True, "0.33.0", ["note"]), (False, "0.33.0", ["ok"]), (True, "0.24.0", [])],
)
def test_the_flag_that_reports_them_is_named(
    is_here: bool, build: str, levels: list[str]
) -> None:
    """As a note where the server was started without it. (This process stands for it.)"""
    process = None
    if is_here:
        created_s = psutil.Process().create_time()
        process = LocalProcess(os.getpid(), created_s, "vllm", ("vllm",))
    facts = ServerFacts(build=build)
    target = Target(parse_url("http://127.0.0.1:1"), VLLM.name, "m", facts=facts)
    server = LocalServer(target, process)
    description = ServerDescription(url="http://127.0.0.1:1")
    embeds = server_rows([server], [description], generates=False)
    assert all(row.name != "times" for row in embeds)
    rows = server_rows([server], [description], generates=True)
    times = [row for row in rows if row.name == "times"]
    assert [row.level for row in times] == levels
    assert all("--enable-per-request-metrics" in row.value for row in times)
