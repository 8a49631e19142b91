"""`llama-load bench` as a command: a comparison of two blocks, and a whole bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llama_load.cli.main import main
from llama_load.lab.bench.bench_block import block_lines, read_block
from llama_load.servers.serving.launch import Server
from tests.conftest import environment
from tests.lab.test_bench import result


def test_compare_reads_two_files(tmp_path: Path, capsys: Any) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("\n".join(block_lines(result())))
    assert (
        main(["bench", "--compare", str(tmp_path / "a.md"), str(tmp_path / "b.md")])
        == 0
    )
    assert "pp2048" in capsys.readouterr().out
    assert (
        main(["bench", "--compare", str(tmp_path / "a.md"), str(tmp_path / "no.md")])
        == 2
    )


@pytest.mark.heavy
@pytest.mark.real
def test_a_bench_of_the_real_server(
    llama_server: Server, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """The block has both tests and several users, and its runs are kept.

    Catches flags and figures of the runs that the real llama-server does not have so.
    """
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    words = [llama_server.url, "--max-time", "60", "--depths", "0,512", "--out", "b"]
    assert main(["bench", *words, "--", "--shared-machine"]) == 0
    text = capsys.readouterr().out
    posted = read_block(text, "stdout")
    assert any(name.startswith("tg") for name in posted.rows)
    assert any(name.endswith("@ d512") for name in posted.rows)
    assert "2 users at 256" in posted.rows
    assert (tmp_path / "b" / "bench.md").read_text() == text
    assert len(list((tmp_path / "b" / "runs").glob("*/requests.parquet"))) >= 6
