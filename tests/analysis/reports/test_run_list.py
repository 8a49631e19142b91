"""`llama-load runs`: a row a run folder, whatever state it is in."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from llama_load.analysis.reports.run_list import COLUMNS, run_lines, run_rows
from llama_load.cli.main import main


def write(folder: Path, manifest: object, summary: object | None = None) -> None:
    folder.mkdir(parents=True)
    (folder / "run.json").write_bytes(
        manifest if isinstance(manifest, bytes) else msgspec.json.encode(manifest)
    )
    if summary is not None:
        (folder / "summary.json").write_bytes(msgspec.json.encode(summary))


def test_rows_of_good_running_and_broken_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By date; the header first; nothing but folders with a run.json."""
    about = {
        "label": "nightly",
        "workload": "sharegpt",
        "targets": [{"url": "http://a:1"}, {"url": "http://b:2"}],
    }
    figures = {
        "completed": 64,
        "output_throughput": 80.126,
        "median_ttft_ms": 12.3,
        "p99_ttft_ms": None,
    }
    verdict = {
        "llama_load": {"verdict": {"word": "FAILED", "words": ["FAILED", "BLURRED"]}}
    }
    write(
        tmp_path / "b",
        about | {"date": "20261121-120000", "end": "complete"},
        figures | verdict,
    )
    write(
        tmp_path / "a",
        {"date": "20261122-120000", "workload": "vision", "end": "running"},
    )
    write(tmp_path / "torn", b'{"date": "2026')
    write(
        tmp_path / "odd",
        {"date": 7, "end": "complete", "targets": "none"},
        {"completed": "many", "llama_load": []},
    )
    write(tmp_path / "gone", {"date": "20261123-120000", "end": "complete"})
    (tmp_path / "other").mkdir()
    rows = {row[0]: row for row in run_rows(tmp_path)}
    assert rows["b"] == (
        "b",
        "20261121-120000",
        "nightly",
        "http://a:1, http://b:2",
        "64",
        "80.13",
        "12.30",
        "n/a",
        "FAILED, BLURRED",
    )
    assert rows["a"][2] == "vision"
    assert "llama-load report" in rows["a"][-1]
    assert rows["torn"][-1] == "broken: run.json cannot be read"
    assert rows["odd"][1] == "7"
    assert rows["odd"][4:] == ("n/a",) * 5
    assert rows["gone"][-1] == "broken: summary.json cannot be read"
    assert [row[0] for row in run_rows(tmp_path)][-3:] == ["a", "gone", "odd"]
    assert [row[0] for row in run_rows(tmp_path / "b")] == ["b"]
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split()[: len(COLUMNS[:3])] == [
        column.name for column in COLUMNS[:3]
    ]
    assert main(["runs", str(tmp_path / "nowhere")]) == 2


def test_a_narrow_terminal_gets_fewer_columns() -> None:
    row = (
        "20261121-203500-demo",
        "20261121-203500",
        "demo",
        "http://127.0.0.1:8080",
        "64",
        "1620.86",
        "18.79",
        "119.55",
        "VALID",
    )
    assert "http://127.0.0.1:8080" in list(run_lines([row], None))[1]
    for width in (120, 80):
        head, line = run_lines([row], width)
        assert max(len(head), len(line)) <= width
        assert line.startswith("20261121-203500-demo ") and line.endswith(" VALID")
    assert "date" not in head and "server" not in head and "label" in head
