"""Faults planted under a run: a client that stands still, disks that are full, folders that go
away. No record is lost."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from llama_load.run_folder import RunWriter, load_run
from tests.conftest import (
    SHAREGPT,
    Finished,
    Program,
    Simulated,
    environment,
    locust_command,
    run_program,
    start_program,
)
from tests.make_records import manifest, record
from tests.swarms import own_port, wait_until

Run = Callable[..., Finished]


def begin(host: str, folder: Path, *arguments: str) -> Program:
    """A run under way, in the folder above its run folder."""
    return start_program(
        locust_command(host, folder, *arguments)[2:], folder.parent, environment()
    )


def end(process: Program, folder: Path, timeout_s: float = 60) -> Finished:
    """Wait for its end; a run that does not come to one is killed."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return Finished(process.wait(), out, err, folder)


@pytest.mark.heavy
def test_a_suspended_client_fails_no_request_that_was_answered_in_time(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Answers take 1 s and 0.2 s; the client is stopped for 5 s while six are under way, and 2 s
    are allowed. Catches limits that run out while the process is stopped, as after a laptop's
    sleep."""
    server = simulate("--first-token-ms", "1000", "--interval-ms", "20")
    folder = tmp_path / "run"
    run = begin(
        server.url,
        folder,
        "-u",
        "6",
        "--num-prompts",
        "18",
        "--max-tokens",
        "10",
        "--first-token-timeout",
        "2",
    )
    wait_until(server.has_answered(7))
    time.sleep(0.5)  # requests are under way
    run.send_signal(signal.SIGSTOP)
    time.sleep(5)  # it stands still
    run.send_signal(signal.SIGCONT)
    done = end(run, folder)
    assert done.summary["failed"] == 0, done.err
    assert done.summary["completed"] == 18


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 60 KiB, too small for report.html. (Skipped loudly where mounting is not
    allowed: `-rs` shows it.)"""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=60k", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("NOT TESTED: full disks, because mounting a tmpfs needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


SWARM = pytest.param(True, marks=pytest.mark.heavy, id="processes")
ALONE = pytest.param(False, id="one process")


def with_temp_folder(folder: Path, place: Path) -> Path:
    """A locustfile of a process whose temporary folder is this one. (An environment variable would
    not do on a full disk: Python looks for a folder that it can write to.)"""
    folder.mkdir()
    file = place / "chat.py"
    file.write_text(
        f"import tempfile\n\ntempfile.tempdir = {str(folder)!r}\n{SHAREGPT.read_text()}"
    )
    return file


@pytest.mark.parametrize("in_swarm", [ALONE, SWARM])
def test_a_disk_that_stays_full_loses_nothing(
    simulate: Callable[..., Simulated],
    small_disk: Path,
    tmp_path: Path,
    run_report: Run,
    in_swarm: bool,
) -> None:
    """The run ends at once, without a traceback, with its block; all of it is in the temporary
    folder, and the sentence says so."""
    server = simulate("--first-token-ms", "10", "--interval-ms", "1")
    command = locust_command(
        server.url,
        small_disk / "run",
        "-u",
        "4",
        "--num-prompts",
        "120",
        "--max-tokens",
        "40",
        locustfile=with_temp_folder(tmp_path / "tmp", tmp_path),
    )
    command += ["--processes", "2", *own_port()] if in_swarm else []
    begun = time.monotonic()
    process = run_program(command[2:], small_disk, environment())
    assert process.returncode == 3, process.stderr
    assert time.monotonic() - begun < 60
    assert "Traceback" not in process.stderr
    assert "Successful requests:                     120" in process.stdout
    (folder,) = (tmp_path / "tmp").glob("llama-load-run-*")
    assert (
        f"No space left on device; the whole run is in {folder} instead"
        in process.stderr
    )
    measured = load_run(folder).records.measured()
    assert sorted(measured.strings("prompt_index")) == list(range(120))
    assert run_report(folder).code == 0
    assert not list((tmp_path / "tmp").glob("llama-load-spool-*"))


@pytest.mark.heavy
def test_a_report_of_what_a_full_disk_lost_names_the_disk(
    simulate: Callable[..., Simulated],
    small_disk: Path,
    tmp_path: Path,
    run_report: Run,
) -> None:
    """The temporary folder is on the same disk. Every request has ended, and the block says so; a
    later report has what was written, and says why the rest is missing: exactly where the disk had
    room for the manifest. Catches a report that does not know why records are missing after the
    disk was full."""
    server = simulate("--first-token-ms", "10", "--interval-ms", "1")
    folder = small_disk / "run"
    file = with_temp_folder(small_disk / "tmp", tmp_path)
    command = locust_command(
        server.url,
        folder,
        "-u",
        "4",
        "--num-prompts",
        "120",
        "--max-tokens",
        "40",
        locustfile=file,
    )
    process = subprocess.run(
        command,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=tmp_path,
    )
    assert process.returncode == 3, process.stderr
    assert "Successful requests:                     120" in process.stdout
    assert "records are in no file" in process.stderr
    subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
    done = run_report(folder)
    assert done.code == 3
    said = " ".join(done.out.split())
    assert (
        "could not be written to disk" in said
        or "the run was killed, or its disk was full" in said
    )
    assert "did not end" not in said


@pytest.mark.heavy
def test_a_run_whose_folder_is_removed_has_its_report(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Catches a run that dies of its folder's removal."""
    server = simulate("--first-token-ms", "50", "--interval-ms", "5")
    folder = tmp_path / "run"
    run = begin(
        server.url, folder, "-u", "2", "--num-prompts", "20", "--max-tokens", "10"
    )
    wait_until((folder / "requests.arrows").exists)
    shutil.rmtree(folder)
    done = end(run, folder)
    assert done.code == 0, done.err
    assert len(done.records.measured()) == 20
    assert "Traceback" not in done.err


@pytest.mark.heavy
def test_one_run_a_folder(simulate: Callable[..., Simulated], tmp_path: Path) -> None:
    """Three runs at once with one --run-dir: one of them runs, the others end with 2 and a sentence
    before anything is sent. Catches two processes that write into one folder at once."""
    server = simulate("--first-token-ms", "50", "--interval-ms", "5")
    folder = tmp_path / "run"
    runs = [
        begin(server.url, folder, "-u", "2", "--num-prompts", "11", "--warmup", "0")
        for _ in range(3)
    ]
    done = [end(run, folder) for run in runs]
    assert sorted(each.code for each in done) == [0, 2, 2], [each.err for each in done]
    for each in done:
        assert each.code == 0 or "choose another --run-dir" in each.err
        assert "Traceback" not in each.err
    assert len(load_run(folder).records) == 11
    assert server.log.read_bytes().count(b"\n") == 11


@pytest.mark.heavy
def test_a_report_in_the_middle_of_a_run_leaves_it_alone(
    simulate: Callable[..., Simulated], run_report: Run, tmp_path: Path
) -> None:
    """Catches a report that finishes a run which goes on."""
    server = simulate("--first-token-ms", "100", "--interval-ms", "5")
    folder = tmp_path / "run"
    run = begin(
        server.url, folder, "-u", "2", "--num-prompts", "60", "--max-tokens", "10"
    )
    wait_until((folder / "requests.arrows").exists)
    asked = run_report(folder)
    assert "this is a snapshot" in asked.out, asked.err
    done = end(run, folder)
    assert done.code == 0, done.err
    assert len(done.records.measured()) == 60


def test_a_folder_that_is_read_only_is_reported(
    small_disk: Path, run_report: Run
) -> None:
    """A killed run on a disk that has become read-only: its block is printed, the sentence says
    that nothing was changed."""
    folder = small_disk / "run"
    writer = RunWriter(folder, manifest(end="running", num_prompts=2))
    writer.append([record(0), record(1)])
    writer.release()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = run_report(folder)
    assert done.code == 3
    assert "Successful requests:                     2" in done.out
    assert "Read-only file system; nothing in it was changed" in done.err
    assert "Traceback" not in done.err


def test_a_disk_that_is_full_at_the_very_end(small_disk: Path, run_report: Run) -> None:
    """The table fits and the reports do not: the block is printed, what is there stays, nothing
    half is left."""
    folder = small_disk / "run"
    writer = RunWriter(folder, manifest(end="complete", num_prompts=1))
    writer.append([record(0)])
    writer.finish()
    writer.release()
    before = sorted(file.name for file in folder.iterdir())
    with (small_disk / "ballast").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 1024)
    done = run_report(folder)
    assert done.code == 3
    assert "Successful requests:                     1" in done.out
    assert "the reports could not be written" in done.err
    assert "Traceback" not in done.err
    assert sorted(file.name for file in folder.iterdir()) == before
    (small_disk / "ballast").unlink()
    # still too small for report.html
    subprocess.run(["mount", "-o", "remount,size=200k", str(small_disk)], check=True)
    again = run_report(folder)
    assert (folder / "summary.json").is_file() and (folder / "report.md").is_file()
    assert (
        again.code == 3 and "report.html" in again.err and "Traceback" not in again.err
    )


BROKEN = """
import llama_load.loadgen.swarm.lifecycle as lifecycle
from locust import task
from llama_load import LlamaUser, ShareGPT

def breaks(*_):
    raise AttributeError("broken")

lifecycle.LocalRun.__init__ = breaks

class User(LlamaUser):
    workload = ShareGPT()

    @task
    def ask(self):
        self.chat()
"""


def test_a_run_that_breaks_before_it_begins_ends(
    simulate: Callable[..., Simulated], run_locust: Run, tmp_path: Path
) -> None:
    """An error of ours after the preflight: Locust waited for users that never came."""
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    done = run_locust(simulate().url, "-u", "1", "--num-prompts", "3", locustfile=file)
    assert done.code == 3
    assert "the run could not be prepared: AttributeError('broken')" in done.err
