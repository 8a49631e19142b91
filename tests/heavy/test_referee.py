"""The referee with the real clients: those that are installed (make referee-clients) do eight
requests."""

from __future__ import annotations

import pytest

from benchmarks.referee.clients import CLIENTS, Client
from benchmarks.referee.measure import measure
from benchmarks.referee.scenarios import Scenario

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
FEW = Scenario("few", "four streams", 8, tokens=20, streams=4)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_is_measured(client: Client) -> None:
    """All its requests are in the log, and it reports them with the figures that it has; its
    processes cost something."""
    if not client.installed():
        pytest.skip("make referee-clients installs it")
    if client.unable(FEW):
        pytest.skip(client.unable(FEW))
    cell = measure(client, FEW)
    assert "failed" not in cell, cell
    counts = cell["requests"]
    assert (counts["lost"], counts["invented"]) == (0, 0) and counts["reported"] >= 8
    assert "e2el" in cell["errors"] and cell["errors"]["e2el"]["count"] >= 8
    assert cell["cpu_us_per_token"] > 0 and cell["memory_mib"] > 1
    assert cell["server"].get("late_p50_ms", 1) > 0
