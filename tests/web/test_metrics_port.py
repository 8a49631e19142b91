"""--metrics-port: Prometheus reads the figures of a headless swarm; nothing else is served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import requests
from prometheus_client.parser import text_string_to_metric_families

from llama_load.wire.local_ports import free_port
from tests.conftest import Finished, Simulated, environment, locust_command, start_program
from tests.swarms import own_port, wait_until


def samples(url: str) -> dict[str, float]:
    """The sum of each metric's samples."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(requests.get(url, timeout=5).text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def test_live_figures_are_those_of_the_records(simulate: Callable[..., Simulated], tmp_path: Path) -> None:
    port, server = free_port(), simulate("--interval-ms", "8")
    command = locust_command(server.url, tmp_path / "run", "-u", "4", "--num-prompts", "40", "--max-tokens", "20")
    command += ["--metrics-port", str(port), "--at-end", "wait"]
    command += ["--processes", "2", *own_port()]
    url = f"http://127.0.0.1:{port}/metrics"
    process = start_program(command[2:], tmp_path, environment())
    try:
        wait_until(lambda: samples(url).get("llama_load_ttft_seconds_count", 0) > 0)
        seen = samples(url)
        assert seen["llama_load_workers"] == 2
        assert seen["llama_load_requests_in_flight"] <= 4
        assert seen["llama_load_ttft_seconds_count"] == seen["llama_load_requests_completed_total"]
        assert seen["llama_load_itl_seconds_count"] == 19 * seen["llama_load_requests_completed_total"]
        assert requests.get(url.replace("metrics", ""), timeout=5).status_code == 404
        assert requests.get(url, headers={"Host": "evil.example"}, timeout=5).status_code == 403
        err = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    done = Finished(process.wait(), "", err, tmp_path / "run")
    assert done.code == 0, done.err
    assert done.summary["completed"] == 40


def test_a_port_that_is_taken_is_refused(run_locust: Callable[..., Finished], simulate: Callable[..., Simulated]) -> None:
    url = simulate().url
    done = run_locust(url, "--num-prompts", "2", "--metrics-port", url.rpartition(":")[2])
    assert done.code == 2
    assert "--metrics-port: cannot listen" in done.err and "choose another port" in done.err
