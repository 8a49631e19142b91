"""The list of runs: names that tell runs apart, the order of the time that is shown; and what
differs from the last good run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from llama_load.page.last_good_run import NOT_THERE, last_good_run
from llama_load.page.run_files import RunFiles
from llama_load.page.run_list_page import listed_runs

MANIFEST = {
    "workload": "sharegpt_chat",
    "users": 8,
    "model": "/models/stories15M.gguf",
    "end": "finished",
}
CACHED = "34 % of the prompt tokens were cached"


def write_run(
    root: Path, name: str, date: str, checks: list[dict[str, Any]], **manifest: Any
) -> None:
    """A run folder with a verdict of these checks."""
    folder = root / name
    folder.mkdir()
    about = MANIFEST | {"date": date} | manifest
    (folder / "run.json").write_bytes(msgspec.json.encode(about))
    is_good = all(check["ok"] for check in checks)
    words = ["VALID"] if is_good else ["NOT COMPARABLE"]
    verdict = {"words": words, "headline": words[0], "checks": checks}
    summary = {"completed": 9, "llama_load": {"verdict": verdict}}
    (folder / "summary.json").write_bytes(msgspec.json.encode(summary))


def check(name: str, text: str, *, ok: bool = True) -> dict[str, Any]:
    return {"name": name, "ok": ok, "text": text}


def test_runs_are_in_the_order_of_the_time_that_is_shown(tmp_path: Path) -> None:
    """A report that is written again changes the folder's time, not the run's."""
    write_run(tmp_path, "old", "20260101-120000", [])
    write_run(tmp_path, "new", "20260102-120000", [])
    os.utime(tmp_path / "new" / "run.json", (1, 1))

    runs = listed_runs(RunFiles(tmp_path, {}))

    assert [run.shown_date for run in runs] == ["2026-01-02 12:00", "2026-01-01 12:00"]


def test_a_name_has_workload_users_and_model(tmp_path: Path) -> None:
    write_run(tmp_path, "plain", "20260102-120000", [])
    write_run(tmp_path, "labelled", "20260101-120000", [], label="nightly")
    about = "sharegpt_chat · 8 users · stories15M.gguf"

    runs = listed_runs(RunFiles(tmp_path, {}))

    assert [(run.title, run.about) for run in runs] == [(about, ""), ("nightly", about)]


def test_a_run_in_stages_has_the_range_of_its_figures(tmp_path: Path) -> None:
    """Over several loads a median is that of none of them; what is not certain is left out."""
    write_run(tmp_path, "staged", "20260101-120000", [])
    stages = {
        "1": {"output_throughput": 855.2, "median_ttft_ms": 10.1},
        "8": {"output_throughput": 1760.4, "median_ttft_ms": 378.0},
        "9": {"median_ttft_ms": 999.0, "uncertain": {"median_ttft_ms": "why"}},
    }
    summary: dict[str, Any] = {"completed": 96, "median_ttft_ms": 44.0}
    summary["llama_load"] = {"by_stage": stages}
    (tmp_path / "staged" / "summary.json").write_bytes(msgspec.json.encode(summary))

    (run,) = listed_runs(RunFiles(tmp_path, {}))

    assert (run.requests.text, run.tok_per_s.text) == ("96", "855 – 1,760")
    assert (run.ttft_ms.text, run.ttft_ms.value) == ("10 – 378", 378.0)


def test_checks_that_fail_are_shown_beside_those_of_the_last_good_run(
    tmp_path: Path,
) -> None:
    """Of runs like it alone: with 16 users other checks fail."""
    good = [check("cache", "0 % were cached"), check("load", "8 in flight")]
    bad = [
        check("cache", CACHED, ok=False),
        check("load", "8 in flight"),
        check("order", "shuffled", ok=False),
    ]
    write_run(tmp_path, "other", "20260104-120000", [], users=16)
    write_run(tmp_path, "older", "20260101-120000", good)
    write_run(tmp_path, "good", "20260102-120000", good)
    write_run(tmp_path, "bad", "20260103-120000", bad)
    write_run(tmp_path, "this", "20260105-120000", bad)
    files = RunFiles(tmp_path, {})

    last = last_good_run(files, "this")

    assert last is not None and last.run.name == "good"
    assert last.changed == [(CACHED, "0 % were cached"), ("shuffled", NOT_THERE)]
    assert last_good_run(files, "older") is None, "there is none before it"
    assert last_good_run(files, "no such run") is None
