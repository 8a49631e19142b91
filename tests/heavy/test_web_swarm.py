"""The page on a master: workers that join, die in a run, and come anew; keys that cannot be
typed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from llama_load.servers.local_ports import free_port
from tests.conftest import Simulated
from tests.page.web_pages import LlmPage
from tests.swarms import swarm, wait_until

pytestmark = pytest.mark.heavy


def test_no_order_of_workers_and_clicks_sticks(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Without a worker a start is refused; a run that loses all of them ends INCOMPLETE; the next
    one is complete. Catches an order of clicks, deaths and joins of real workers after which the
    page starts no run."""
    server, port = simulate("--interval-ms", "5"), free_port()
    short = {"num_users": "4", "num_prompts": "30", "max_tokens": "5", "run_dir": ""}
    with swarm(tmp_path, server.url, 0, web_port=port) as running:
        page = LlmPage(f"http://127.0.0.1:{port}/llm", tmp_path, running.master)
        wait_until(lambda: page.get("/").ok)
        assert (
            "no worker is connected"
            in page.post("/api/start", **short)["faults"][0]["text"]
        )
        assert page.live()["workers"] == 0
        assert "api_key" not in page.get("/api/form").json()["values"]

        workers = [running.add_worker() for _ in range(2)]
        wait_until(lambda: page.live()["workers"] == 2)
        first = page.start(**short | {"num_prompts": "", "run_time": "5m"})
        wait_until(lambda: page.completed() > 10)
        for worker in workers:
            worker.kill()
        page.wait_for("idle", timeout_s=60)
        outcome = page.live()["outcome"]
        assert (
            outcome["run"] == first
            and outcome["exit_code"] == 3
            and "INCOMPLETE" in outcome["headline"]
        )
        recorded = msgspec.json.decode(
            (tmp_path / "runs" / first / "summary.json").read_bytes()
        )
        assert recorded["completed"] == page.completed() > 10, (
            "what was seen is in the report"
        )

        wait_until(lambda: page.live()["workers"] == 0, 60)
        running.add_worker()
        wait_until(lambda: page.live()["workers"] == 1)
        second = page.start(**short | {"run_time": ""})
        page.wait_for("idle", timeout_s=60)
        assert second != first and page.live()["outcome"]["exit_code"] == 0
        assert page.completed() == 30
