"""What servers report of the requests that they work on."""

from __future__ import annotations

from typing import Any

import pytest

from llama_load.servers.address import parse_url
from llama_load.servers.target import Target
from llama_load.servers.tls import TlsOptions
from llama_load.servers.work_counts import WorkCount, is_healthy, working_on
from tests.json_server import json_server

SLOTS = [
    {"id": 0, "is_processing": True},
    {"id": 1, "is_processing": False},
    "odd",
    {"id": 2, "is_processing": "yes"},
]
LLAMA = "# TYPE llamacpp:requests_deferred gauge\nllamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n"
VLLM = 'vllm:num_requests_running{engine="0",model_name="m"} 3.0\nvllm:num_requests_waiting{engine="0"} 1.0\nvllm:num_requests_swapped 9\n'


@pytest.mark.parametrize(
    ("backend", "pages", "has_counters", "expected"),
    [
        ("llama-server", {"/slots": SLOTS}, False, WorkCount(1, True)),
        (
            "llama-server",
            {"/slots": SLOTS, "/metrics": LLAMA},
            True,
            WorkCount(3, True),
        ),
        (
            "llama-server",
            {"/slots": SLOTS[:1]},
            False,
            WorkCount(1, False),
        ),  # more may wait
        ("llama-server", {"/slots": {"error": "disabled"}}, False, None),
        ("llama-server", {}, False, None),
        ("vllm", {"/metrics": VLLM}, True, WorkCount(4, True)),
        ("vllm", {"/metrics": "nothing 1\n"}, True, None),
        ("openai", {}, False, None),
    ],
)
def test_busy_slots_and_waiting_requests(
    backend: str, pages: dict[str, Any], has_counters: bool, expected: WorkCount | None
) -> None:
    with json_server(pages) as server:
        target = Target(parse_url(server.url), backend, None, has_counters=has_counters)
        assert working_on(target, TlsOptions()) == expected
        assert is_healthy(target, TlsOptions())  # no page of health, but an answer
    assert not is_healthy(target, TlsOptions())
    assert working_on(target, TlsOptions()) is None
