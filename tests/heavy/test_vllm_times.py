"""vLLM's own times of each answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from llama_load.servers.serving.launch import Server
from tests.conftest import Finished

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]
FLAG = "--enable-per-request-metrics"


def test_its_own_times_are_in_where_the_time_went(
    run_locust: Callable[..., Finished], start_vllm: Callable[..., Server]
) -> None:
    """Twice as many users as it answers at a time: half of them wait in its queue. Catches times
    that vLLM reports by another name or in another unit."""
    server = start_vllm(FLAG, "--max-num-seqs", "4")
    flags = ("-u", "8", "--num-prompts", "32", "--max-tokens", "32")
    run = run_locust(server.url, *flags)
    ok = run.records.measured().ok()
    assert len(ok) == 32, run.err
    own_ms = {}
    for name in ("queue", "prompt", "predict"):
        own_ms[name] = ok.numbers(f"server_{name}_ms")
        assert not np.isnan(own_ms[name]).any()
    # Within the client's: what the server had of the request when its first token came.
    assert (own_ms["queue"] + own_ms["prompt"] <= ok.numbers("ttft_ms")).all()
    assert own_ms["queue"].mean() > own_ms["prompt"].mean()

    ours = run.summary["llama_load"]
    parts = ours["time_parts"]["total"]["parts"]
    assert parts["slot_wait"]["mean_ms"] == pytest.approx(own_ms["queue"].mean(), 0.05)
    assert parts["unattributed"]["share"] < 0.3
    pairs = {pair["name"]: pair for pair in ours["client_server"]}
    assert not pairs["TTFT (ms)"]["coarse"]
    assert len(run.summary["server_queue_times"]) == 32
    assert len(run.summary["server_ttfts"]) == 32
    assert FLAG not in run.out


def test_without_the_flag_the_preflight_names_it(
    run_locust: Callable[..., Finished], vllm: Server
) -> None:
    """Catches a vLLM that reports them without being asked."""
    run = run_locust(vllm.url, "--num-prompts", "4", "--max-tokens", "8")
    printed = " ".join(run.err.split())
    assert f"{FLAG} reports those of each answer" in printed
    assert "server_ttfts" not in run.summary
