"""A real Prometheus (Debian's) reads a run, and every expression of the Grafana dashboard has data
in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from llama_load.servers.local_ports import free_port
from tests.conftest import (
    REPOSITORY,
    end_with_parent,
    environment,
    locust_command,
    simulated_server,
)
from tests.swarms import wait_until

pytestmark = pytest.mark.heavy

GRAFANA = REPOSITORY / "docker" / "grafana"
# What Grafana puts in for a dashboard that shows all, with samples every 0.2 s.
VARIABLES = {"$workload": ".*", "$stage": ".*", "$host": ".*", "$__rate_interval": "3s"}


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """Prometheus with our configuration, but for the target and a shorter interval."""
    path = shutil.which("prometheus")
    assert path is not None, "scripts/debian.sh installs prometheus"
    config = (GRAFANA / "prometheus.yml").read_text().replace("localhost:9646", target)
    assert target in config
    (folder / "prometheus.yml").write_text(
        re.sub(r"scrape_interval: \w+", "scrape_interval: 200ms", config)
    )
    port = free_port()
    command = [
        path,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
    ]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, preexec_fn=end_with_parent
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def expressions() -> list[str]:
    """Every PromQL expression of the dashboard, its variables filled in."""
    found = []
    for panel in json.loads((GRAFANA / "dashboards" / "llama-load.json").read_text())[
        "panels"
    ]:
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            assert "$" not in expression, panel["title"]
            found.append(expression)
    return found


def values(url: str, expression: str) -> list[float]:
    answer: dict[str, Any] = requests.get(
        f"{url}/api/v1/query", params={"query": expression}, timeout=10
    ).json()
    assert answer["status"] == "success", (expression, answer)
    return [float(each["value"][1]) for each in answer["data"]["result"]]


@pytest.mark.real
def test_the_dashboard_has_data_in_every_panel(tmp_path: Path) -> None:
    """One request in seven fails, so that failures have a line, too; no expression gives NaN.
    Catches an expression that Prometheus refuses, or that finds no series of a run."""
    port = free_port()
    with simulated_server(
        tmp_path, "--interval-ms", "10", "--fault", "status", "--fault-every", "7"
    ) as server:
        command = locust_command(
            server.url,
            tmp_path / "run",
            "-u",
            "4",
            "-t",
            "60s",
            "--warmup",
            "0",
            "--max-tokens",
            "10",
        )
        command += [
            "--metrics-port",
            str(port),
            "--fail-if",
            "failure_ratio>0.9",
            "--telemetry-interval",
            "0.5",
        ]
        run = subprocess.Popen(
            command,
            env=environment(),
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
            preexec_fn=end_with_parent,
        )
        try:
            with prometheus(tmp_path, f"127.0.0.1:{port}") as url:
                wait_until(
                    lambda: (
                        (
                            values(url, "sum(llama_load_requests_completed_total)")
                            or [0]
                        )[0]
                        > 60
                    )
                )
                with suppress(AssertionError):
                    wait_until(
                        lambda: all(values(url, each) for each in expressions()), 20
                    )
                assert [
                    each for each in expressions() if not values(url, each)
                ] == [], "no data"
                for expression in expressions():
                    assert all(value == value for value in values(url, expression)), (
                        expression
                    )
                (p50,) = values(
                    url, next(each for each in expressions() if "itl" in each)
                )
                assert 0.008 < p50 < 0.1, (
                    "gaps of 10 ms, within a bucket of a sixth of a decade on a busy machine"
                )
                quantile = values(
                    url,
                    "histogram_quantile(1, sum by (le) (llama_load_e2el_seconds_bucket))",
                )
                assert 0 < quantile[0] < 1000
        finally:
            run.kill()
            run.wait()


def test_every_metric_of_the_dashboard_exists_and_the_files_are_sound() -> None:
    """Catches a rule file that promtool refuses."""
    import yaml

    for file in [GRAFANA / "prometheus.yml", *GRAFANA.glob("provisioning/*/*.yml")]:
        assert yaml.safe_load(file.read_text())
    dashboard = json.loads((GRAFANA / "dashboards" / "llama-load.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    for one in places:
        assert one["x"] + one["w"] <= 24
        for other in places:
            apart = (
                one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            )
            apart |= (
                one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
            )
            assert one is other or apart, "panels overlap"
