"""Copying run folders to other places: in memory, on a file system, and where a package is
missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from llama_load.ground.errors import UsageError
from llama_load.run_folder import load_run
from llama_load.run_folder.upload import check_place, upload
from tests.conftest import Finished, Simulated
from tests.make_records import record
from tests.test_spools import run_of


def test_all_files_arrive_and_links_do_not(tmp_path: Path) -> None:
    """In a folder of the run's name, at a place that has no real folders."""
    folder = run_of(tmp_path / "run-7", record(0), record(1))
    (folder / "server").mkdir()
    (folder / "server" / "server.log").write_text("ready")
    (folder / "link").symlink_to("/etc/passwd")
    assert upload(folder, "memory://results/today") == "memory:///results/today/run-7"
    there = fsspec.filesystem("memory")
    assert sorted(there.find("/results/today")) == [
        f"/results/today/run-7/{name}"
        for name in ("requests.parquet", "run.json", "server/server.log")
    ]
    assert (
        there.cat("/results/today/run-7/requests.parquet")
        == (folder / "requests.parquet").read_bytes()
    )


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("s3://bucket/path", "pip install s3fs"),
        ("gs://bucket/path", "pip install gcsfs"),
        ("nowhere://x", "must be the URL of a folder"),
        ("results", "must be the URL of a folder"),
    ],
)
def test_a_place_that_cannot_be_used_is_one_sentence(
    url: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("s3fs", "gcsfs"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=sentence):
        check_place(url)


def test_a_place_that_refuses_ends_in_3_and_a_sentence(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", record(0))
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "llama_load.run_folder.upload", str(folder)]
    done = subprocess.run(
        command,
        input=f"file://{tmp_path}/file/x",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_run_uploads_its_folder(
    simulate: Callable[..., Simulated],
    run_locust: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    """Complete: it is a run like the one here. A place that is none is refused before anything is
    sent."""
    server = simulate("--first-token-ms", "5", "--interval-ms", "2")
    flags = ("-u", "1", "--num-prompts", "2", "--max-tokens", "2")
    done = run_locust(server.url, *flags, "--upload", f"file://{tmp_path}/there")
    assert done.code == 0, done.err
    assert len(load_run(tmp_path / "there" / "run").records) == len(done.records)
    assert f"Uploaded to file://{tmp_path}/there/run" in done.err
    refused = run_locust(
        server.url, *flags, "--upload", "nowhere", folder=tmp_path / "other"
    )
    assert refused.code == 2
    assert not (tmp_path / "other").exists()
