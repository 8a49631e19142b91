"""The referee with the real clients: those that are installed (make referee-clients) do the shortest
case of truth's timing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.referee.__main__ import measure, result_of
from benchmarks.referee.clients import CLIENTS, Client
from benchmarks.referee.kept import Cell

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_is_measured(client: Client, tmp_path: Path) -> None:
    """It has figures of E2EL, and its processes cost something. Catches a command line or result
    file of another client that changed."""
    if not client.installed:
        pytest.skip("make referee-clients installs it")
    short = replace(client, suite="T8")
    measure(short, 1, tmp_path)
    saved = json.loads(result_of(short, tmp_path).read_text())
    assert (saved["client"], saved["client_version"]) == (client.title, client.version)
    (case,) = saved["cases"]
    assert not case["failed"], case
    cell = Cell(client.title, case)
    p50s, _ = cell.errors_of("E2EL")
    assert len(p50s) == 1
    assert cell.cost("cpu_us_per_token")[0] > 0
    assert cell.cost("memory_mib")[0] > 1
