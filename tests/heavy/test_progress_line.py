"""The live line of a run on a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from llama_load.loadgen.run.progress import SPARKS
from tests.analysis.reports.test_on_a_terminal import ESCAPES, printed_on_a_terminal
from tests.conftest import simulated_server

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]


@pytest.mark.parametrize("swarm", [[], ["--processes", "2"]], ids=["alone", "swarm"])
def test_output_is_drawn_while_answers_go_on(tmp_path: Path, swarm: list[str]) -> None:
    """No answer ends before the first sparkline: 400 tokens every 20 ms take 8 s. Catches a line
    that a real terminal breaks, or that stands still for the whole of a long answer."""
    with simulated_server(tmp_path, "--interval-ms", "20") as server:
        words = ["run", server.url, "-u", "2", "-n", "2", "--max-tokens", "400"]
        words += swarm
        text = printed_on_a_terminal([*words, "--no-report-html"], tmp_path, 80)

    frames = [ESCAPES.sub("", part) for part in re.split(r"[\r\n]", text)]
    drawn = [frame for frame in frames if set(SPARKS) & set(frame)]
    assert any(frame.startswith("measuring") and " 0/2 " in frame for frame in drawn)
    assert all(cell_len(frame) <= 80 for frame in drawn)
