"""--metrics-port: Prometheus reads the figures of a headless swarm; nothing else is served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from llama_load.servers.local_ports import free_port
from tests.conftest import (
    Finished,
    Simulated,
    environment,
    locust_command,
    start_program,
)
from tests.swarms import own_port, wait_until


def samples(url: str) -> dict[str, float]:
    """The sum of each metric's samples."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(requests.get(url, timeout=30).text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


@pytest.mark.heavy
def test_live_figures_are_those_of_the_records(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Catches a counter of --metrics-port that drifts from the records over a run."""
    port, server = free_port(), simulate("--interval-ms", "8")
    command = locust_command(
        server.url,
        tmp_path / "run",
        "-u",
        "4",
        "--num-prompts",
        "40",
        "--max-tokens",
        "20",
    )
    command += ["--metrics-port", str(port), "--at-end", "wait"]
    command += ["--processes", "2", *own_port()]
    url = f"http://127.0.0.1:{port}/metrics"
    process = start_program(command[2:], tmp_path, environment())
    try:
        wait_until(lambda: samples(url).get("llama_load_ttft_seconds_count", 0) > 0)
        seen = samples(url)
        assert seen["llama_load_workers"] == 2
        assert seen["llama_load_requests_in_flight"] <= 4
        assert (
            seen["llama_load_ttft_seconds_count"]
            == seen["llama_load_requests_completed_total"]
        )
        assert (
            seen["llama_load_itl_seconds_count"]
            == 19 * seen["llama_load_requests_completed_total"]
        )
        assert requests.get(url.replace("metrics", ""), timeout=30).status_code == 404
        assert (
            requests.get(url, headers={"Host": "evil.example"}, timeout=30).status_code
            == 403
        )
        err = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    done = Finished(process.wait(), "", err, tmp_path / "run")
    assert done.code == 0, done.err
    assert done.summary["completed"] == 40


def test_a_port_that_is_taken_is_refused(
    run_locust: Callable[..., Finished], simulate: Callable[..., Simulated]
) -> None:
    url = simulate().url
    done = run_locust(
        url, "--num-prompts", "2", "--metrics-port", url.rpartition(":")[2]
    )
    assert done.code == 2
    assert (
        "--metrics-port: cannot listen" in done.err
        and "choose another port" in done.err
    )


# What anybody who reaches a port without a token reads, besides figures.
NAMES = {
    "run",
    "label",
    "workload",
    "model",
    "server",
    "stage",
    "host",
    "class",
    "series",
    "le",
}


def test_without_a_token_it_tells_figures_and_names_alone(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """SECURITY.md says so: no keys, texts or paths."""
    port, server = free_port(), simulate("--interval-ms", "8")
    key = "sk-0123456789-of-the-server"
    flags = (
        "-u",
        "2",
        "--num-prompts",
        "40",
        "--max-tokens",
        "20",
        "--header",
        f"X-Team: {key}",
    )
    command = locust_command(server.url, tmp_path / "run", *flags)
    command += ["--metrics-port", str(port)]
    url = f"http://127.0.0.1:{port}/metrics"
    process = start_program(
        command[2:], tmp_path, environment() | {"LLAMA_LOAD_API_KEY": key}
    )
    try:
        wait_until(lambda: samples(url).get("llama_load_ttft_seconds_count", 0) > 0)
        text = requests.get(url, timeout=30).text
    finally:
        process.kill()
        process.communicate()
    names = {
        name
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        for name in sample.labels
    }
    assert "host" in names and names <= NAMES
    assert key not in text and str(tmp_path) not in text


def test_with_a_token_only_who_sends_it_reads_it(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    port, server, token = (
        free_port(),
        simulate("--interval-ms", "8"),
        "0123456789abcdef-token",
    )
    command = locust_command(
        server.url, tmp_path / "run", "-u", "2", "--num-prompts", "40"
    )
    command += ["--metrics-port", str(port)]
    given = environment() | {"LLAMA_LOAD_WEB_TOKEN": token}
    url = f"http://127.0.0.1:{port}/metrics"
    process = start_program(command[2:], tmp_path, given)
    try:
        with_it = {"Authorization": f"Bearer {token}"}
        wait_until(lambda: requests.get(url, headers=with_it, timeout=30).ok)
        for wrong in (
            {},
            {"Authorization": f"Bearer {token}x"},
            {"Authorization": token},
        ):
            assert requests.get(url, headers=wrong, timeout=30).status_code == 401
        assert requests.get(f"{url}?token={token}", timeout=30).status_code == 401
    finally:
        process.kill()
        process.communicate()


def test_a_token_that_can_be_guessed_is_refused(
    run_locust: Callable[..., Finished], simulate: Callable[..., Simulated]
) -> None:
    """As the page refuses it: a headless run took any."""
    flags = ("--num-prompts", "2", "--metrics-port", str(free_port()))
    done = run_locust(simulate().url, *flags, LLAMA_LOAD_WEB_TOKEN="short")
    assert done.code == 2
    assert "--web-token must have at least 16 characters" in done.err
