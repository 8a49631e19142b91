"""Who may write a run folder, what a report of a running one does, and folders in which files are
not what they should be."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llama_load.analysis.results.results import analyze
from llama_load.cli import main as cli
from llama_load.ground.errors import RunError, UsageError
from llama_load.run_folder import MANIFEST, TABLE, RunWriter, load_run, lock_folder
from llama_load.run_folder.manifest import JOURNAL
from llama_load.run_folder.observed.record import to_batch
from tests.conftest import Finished, environment, start_program
from tests.make_records import manifest, record

Report = Callable[..., Finished]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def running(folder: Path, *indices: int) -> RunWriter:
    """A run under way with these records."""
    writer = RunWriter(folder, manifest(end="running", num_prompts=4))
    for index in indices:
        writer.append([record(index)])
    return writer


def finished(folder: Path, *indices: int) -> Path:
    writer = running(folder, *indices)
    writer.manifest.end = "complete"
    writer.finish()
    writer.release()
    return folder


def test_a_report_of_a_running_folder_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints what there is, and the run goes on as if nobody had looked."""
    folder = tmp_path / "run"
    writer = running(folder, 0, 1)
    before = contents(folder)
    assert cli.main(["report", str(folder)]) == 3
    assert contents(folder) == before
    out = capsys.readouterr().out
    assert "Successful requests:                     2" in out
    assert "this is a snapshot, and nothing in the folder was changed" in out
    assert cli.main(["report", str(folder), "--add", str(tmp_path)]) == 2
    assert contents(folder) == before
    writer.append([record(2)])
    writer.manifest.end = "complete"
    assert len(writer.finish().records) == 3
    writer.release()
    assert cli.main(["report", str(folder)]) == 3  # of 4
    assert (folder / "summary.txt").is_file()


def test_the_lock_dies_with_its_process(tmp_path: Path, run_report: Report) -> None:
    """kill -9: the next report finishes the run."""
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom tests.run_folder.test_folder import running\n"
        "running(Path(sys.argv[1]), 0, 1)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    folder = tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        check=False,
        env=environment() | {"PYTHONPATH": "."},
    )
    assert killed.returncode == -signal.SIGKILL
    (folder / f"{MANIFEST}.0123abcd.part").write_text(
        "{"
    )  # it was just writing its manifest
    done = run_report(folder)
    assert "snapshot" not in done.out
    assert len(done.records) == 2
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        [MANIFEST, TABLE, "summary.json", "summary.txt", "report.md", "report.html"]
    )


def test_reports_at_once_all_end_well(tmp_path: Path) -> None:
    """Four of one killed run: each is right, nothing of theirs is left but the reports."""
    folder = tmp_path / "run"
    running(folder, 0, 1).release()
    command = ["llama_load.cli.main", "report", str(folder)]
    reports = [start_program(command, tmp_path, environment()) for _ in range(4)]
    for each in reports:
        out, err = each.communicate(timeout=60)
        assert (each.wait(), "Successful requests:                     2" in out) == (
            3,
            True,
        ), err
        assert err == ""
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        [MANIFEST, TABLE, "summary.json", "summary.txt", "report.md", "report.html"]
    )


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    first = lock_folder(tmp_path)
    assert first is not None
    assert lock_folder(tmp_path, wait_s=0.1) is None
    threading.Timer(0.2, first.release).start()
    assert lock_folder(tmp_path, wait_s=30) is not None


def test_a_file_system_without_locks_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As NFS may answer. The run goes on."""

    def refuse(*_: object) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr("fcntl.flock", refuse)
    assert len(load_run(finished(tmp_path / "run", 0)).records) == 1
    assert "cannot be locked" in capsys.readouterr().err


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file may become larger: a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_folder_that_is_removed_during_the_run_is_written_again(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    writer = running(folder, 0, 1)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    writer.append([record(2)])
    assert writer.finish().unwritten is None
    assert load_run(folder).records.strings("request_id") == ["r0", "r1", "r2"]


def test_a_folder_that_cannot_be_made_again_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is where the folder was: the run is in the temporary folder, and the sentence says
    where."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / "run"
    writer = running(folder, 0, 1)
    folder.rename(tmp_path / "away")
    folder.write_text("in the way")
    run = writer.finish()
    assert run.unwritten is not None
    assert f"the whole run is in {run.path} instead" in run.unwritten
    assert len(load_run(run.path).records) == 2
    assert folder.read_text() == "in the way"


def test_what_the_disk_refuses_goes_to_a_spool_and_into_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two records on the disk, two in the temporary folder; the message says how to add them if the
    process dies now."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / "run"
    writer = running(folder, 0, 1)
    with (
        file_size_limit((folder / JOURNAL).stat().st_size + 100),
        pytest.raises(OSError, match="File too large"),
    ):
        writer.append([record(2)])
    real, size = os.write, (folder / JOURNAL).stat().st_size
    monkeypatch.setattr(
        "os.write",
        lambda fd, data: _refuse() if os.fstat(fd).st_size == size else real(fd, data),
    )
    writer.append([record(2)], anywhere=True)
    writer.append([record(3)], anywhere=True)
    monkeypatch.undo()
    (spool,) = tmp_path.glob("llama-load-spool-*")
    assert f"llama-load report {folder} --add {spool}" in capsys.readouterr().err
    run = writer.finish()
    assert sorted(run.records.strings("request_id")) == ["r0", "r1", "r2", "r3"]
    assert run.manifest.damaged == []
    assert sorted(load_run(folder).records.strings("request_id")) == [
        "r0",
        "r1",
        "r2",
        "r3",
    ]
    assert not spool.exists()


def _refuse() -> int:
    raise OSError(28, "No space left on device")


def test_the_spool_of_a_killed_run_is_brought_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / "run"
    writer = running(folder, 0)
    # the next journal cannot be made: something has its name
    (folder / JOURNAL).rename(tmp_path / "kept")
    writer.release()
    (folder / JOURNAL).mkdir()
    writer.append([record(1)], anywhere=True)
    writer.release()
    (folder / JOURNAL).rmdir()
    (tmp_path / "kept").rename(folder / JOURNAL)
    (spool,) = tmp_path.glob("llama-load-spool-*")
    assert cli.main(["report", str(folder), "--add", str(spool)]) == 3
    assert load_run(folder).records.strings("request_id") == ["r0", "r1"]


def test_what_no_disk_takes_is_in_the_report_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no temporary folder either: records wait in memory for the table. Where that cannot
    be written, they are counted."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    writer = running(tmp_path / "run", 0)
    writer.keep(to_batch([record(1), record(2)]))
    with file_size_limit(10_000):
        run = writer.finish()
    assert run.records.strings("request_id") == ["r0", "r1", "r2"]
    assert run.unwritten is not None
    assert run.unwritten.endswith("2 of 3 records are in no file")
    assert len(load_run(tmp_path / "run").records) == 1
    assert writer.finish().unwritten is None
    assert len(load_run(tmp_path / "run").records) == 3


def test_a_later_report_names_the_disk_that_lost_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else is to blame: every request has ended. The table is refused, the smaller manifest
    is not."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    folder = tmp_path / "run"
    writer = running(folder, 0, 1)
    writer.keep(to_batch([record(2), record(3)]))
    writer.manifest.end = "complete"
    with file_size_limit(2 * (folder / MANIFEST).stat().st_size):
        assert writer.finish().unwritten is not None
    writer.release()
    assert (folder / JOURNAL).exists()
    for _ in range(2):
        assert cli.main(["report", str(folder)]) == 3
        verdict = analyze(load_run(folder)).verdict
        lost = "2 records could not be written to disk and are missing from requests.arrows; make room on the disk, then run again"
        assert verdict.headline.endswith(lost), verdict
        assert "did not end" not in " ".join(check.text for check in verdict.checks)


@pytest.mark.parametrize("name", [MANIFEST, JOURNAL, TABLE, "summary.json"])
@pytest.mark.parametrize("kind", ["fifo", "folder", "dangling link", "empty"])
def test_files_that_are_not_what_they_should_be_end_in_a_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    """Neither a traceback nor a report that waits for ever; 1 is for thresholds alone."""
    folder = finished(tmp_path / "run", 0, 1, 2, 3)
    (folder / name).unlink(missing_ok=True)
    {
        "fifo": os.mkfifo,
        "folder": Path.mkdir,
        "dangling link": lambda path: path.symlink_to("nowhere"),
        "empty": Path.touch,
    }[kind](folder / name)
    code = cli.main(["report", str(folder)])
    err = capfd.readouterr().err
    assert code in (0, 2, 3)
    assert err.count("\n") <= 1
    assert "Traceback" not in err
    # without its table the run is reported as one without records
    assert code == 0 or err or name == TABLE


def test_a_flipped_byte_among_the_values_of_the_table_is_noticed(
    tmp_path: Path,
) -> None:
    """Pages carry checksums: a flip is an error, not another figure. The footer (schema and
    positions) has none."""
    folder = finished(tmp_path / "run", 0, 1, 2, 3)
    table = folder / TABLE
    data = table.read_bytes()
    before = load_run(folder).records.table
    footer = int.from_bytes(data[-8:-4], "little") + 8
    for at in range(4, len(data) - footer, 449):
        table.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        try:
            assert load_run(folder).records.table.equals(before)
        except RunError as error:
            assert str(table) in str(error)


@pytest.mark.parametrize("cut", [0, 1, 50, 500])
def test_a_truncated_manifest_is_a_sentence(tmp_path: Path, cut: int) -> None:
    folder = finished(tmp_path / "run", 0)
    (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes()[:cut])
    with pytest.raises(RunError, match=r"run\.json cannot be read"):
        load_run(folder)


def test_what_is_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    """A journal or a table of a run whose manifest is gone."""
    for name in (JOURNAL, TABLE):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("precious")
        with pytest.raises(UsageError, match="already holds a run"):
            RunWriter(tmp_path / name, manifest())
