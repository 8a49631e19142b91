"""Where the time went in real runs: the waits that a set-up must cause are seen, and the parts of
every request sum to its E2EL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_load.analysis.figures.time_parts import KEYS
from llama_load.analysis.results.time_part_sums import time_parts
from llama_load.run_folder import load_run
from llama_load.servers.serving.launch import Server
from tests.conftest import Finished, Simulated, embedded_server

MIXED = """
from locust import task
from llama_load import LlamaUser


class Short(LlamaUser):
    @task
    def ask(self):
        self.chat("Count to one thousand.", max_tokens=100)


class Long(LlamaUser):
    @task
    def read(self):
        self.chat("word " * 2500 + str(id(self)), max_tokens=2)
"""


def shares(done: Finished) -> dict[str, float]:
    """The share of each known part of all time, after a look at the sums."""
    run = load_run(done.folder)
    requests = time_parts(run).requests
    e2el = run.records.numbers("e2el_ms") + np.nan_to_num(
        run.records.numbers("client_queue_ms")
    )
    assert np.nansum([requests[key] for key in KEYS], axis=0) == pytest.approx(
        np.nan_to_num(e2el), abs=0.01
    )
    parts = done.summary["llama_load"]["time_parts"]["total"]["parts"]
    return {key: part["share"] for key, part in parts.items() if part is not None}


@pytest.mark.heavy
def test_four_users_wait_for_one_slot_and_not_for_four(
    llama_server: Server,
    tiny_model: Path,
    tmp_path: Path,
    run_locust: Callable[..., Finished],
) -> None:
    """With one slot three of four users always wait: over half of the time. With four slots none
    does. Catches a wait that is attributed to something else than the slots of a real server."""
    flags = (
        "-u",
        "4",
        "--num-prompts",
        "8",
        "--max-tokens",
        "40",
        "--ignore-eos",
        "--bust-prefix-cache",
    )
    with embedded_server(tiny_model, tmp_path, "-np", "1", "-c", "4096") as server:
        narrow = shares(run_locust(server.url, *flags, folder=tmp_path / "one"))
    wide = shares(run_locust(llama_server.url, *flags, folder=tmp_path / "four"))
    assert narrow["slot_wait"] > 0.3
    assert wide["slot_wait"] == 0
    assert narrow["decode_shared"] < 0.01


def test_short_chats_beside_long_prompts_decode_while_others_are_prefilled(
    llama_server: Server, tmp_path: Path, run_locust: Callable[..., Finished]
) -> None:
    """The gaps of the chats that fall into the prefill of a document are few, and much longer than
    the others."""
    (tmp_path / "mixed.py").write_text(MIXED)
    done = run_locust(
        llama_server.url,
        "-u",
        "2",
        "--num-prompts",
        "5",
        "--bust-prefix-cache",
        locustfile=tmp_path / "mixed.py",
    )
    found = shares(done)
    decode: dict[str, Any] = done.summary["llama_load"]["time_parts"]["by_workload"][
        "Short"
    ]["decode"]
    assert found["decode_shared"] > 0
    assert decode["shared_gaps"] > 0
    assert decode["time_share"] > 2 * decode["gap_share"]
    assert decode["mean_shared_gap_ms"] > 2 * decode["mean_other_gap_ms"]
    assert not decode["includes_queueing"]


def test_a_server_without_times_has_decode_and_the_rest_unattributed(
    simulate: Callable[..., Simulated], run_locust: Callable[..., Finished]
) -> None:
    """10 tokens, one every 20 ms: 180 ms of decode each. Two slots for four users: the wait is in
    what is not attributed."""
    server = simulate("--interval-ms", "20", "--tokens", "10", "--slots", "2")
    done = run_locust(server.url, "-u", "4", "--num-prompts", "6", "--max-tokens", "10")
    found = shares(done)
    assert set(found) <= {"connect", "decode_alone", "decode_shared", "unattributed"}
    parts = done.summary["llama_load"]["time_parts"]["total"]["parts"]
    decode_ms = sum(parts[key]["mean_ms"] for key in ("decode_alone", "decode_shared"))
    # a first token that is read late takes its delay from the rest
    assert decode_ms > 165
    assert parts["unattributed"]["mean_ms"] > 50
    assert done.summary["llama_load"]["time_parts"]["total"]["decode"][
        "includes_queueing"
    ]
