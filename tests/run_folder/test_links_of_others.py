"""A run folder of others: whatever stands under the name of one of its files, nothing outside of
the folder is read, and nothing is waited for.

The names are those that the commands open, which are noted while they read a whole folder.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from llama_load.analysis.reports.verify import BLOCK, PAGE, REPORT, verify_run
from llama_load.analysis.reports.write import write_html, write_reports
from llama_load.analysis.results.earlier_runs import sent_before
from llama_load.analysis.results.results import analyze
from llama_load.analysis.results.run_summary import SUMMARY
from llama_load.cli.main import main
from llama_load.page.run_files import FILES, RunFiles
from llama_load.run_folder import MANIFEST, TABLE, RunWriter, load_run
from llama_load.run_folder.journal import Journal
from llama_load.run_folder.manifest import JOURNAL, PACKED, last_with_label
from llama_load.run_folder.observed.record import to_batch
from llama_load.run_folder.probe_file import PROBE_JOURNAL, PROBES, write_probes
from llama_load.run_folder.server_files import ServerFiles, write_server_files
from llama_load.run_folder.telemetry_file import SAMPLES, TELEMETRY, write_telemetry
from tests.foreign_readers import SAMPLE
from tests.make_records import manifest, record

CANARY = "a-word-that-stands-outside"
SERVER_LOG = "server/server.log"
MEMORY_LOG = "server/memory.log"
COMMAND = "server/command"
OF_ENDED = (
    *(MANIFEST, TABLE, PROBES, TELEMETRY, SUMMARY, BLOCK, REPORT, PAGE),
    *(SERVER_LOG, MEMORY_LOG, COMMAND),
)
OF_KILLED = (JOURNAL, PACKED, PROBE_JOURNAL, SAMPLES)
NAMES = (*OF_ENDED, *OF_KILLED)
WITHIN_S = 60
TEMPLATES = TemporaryDirectory()  # removed at the end of the process


def copied(template: Path, folder: Path) -> Path:
    return Path(shutil.copytree(template, folder))


def ended_run(folder: Path, word: str = "inside") -> Path:
    """A run folder with all files of a run that has ended."""
    return copied(template_of_ended(word), folder)


def killed_run(folder: Path, word: str = "inside") -> Path:
    """A run folder with all files of a run whose process was killed."""
    return copied(template_of_killed(word), folder)


@cache
def template_of_ended(word: str) -> Path:
    """Made once for all tests: its pages take most of their time."""
    folder = Path(TEMPLATES.name) / f"ended-{word}"
    about = manifest(label=word, num_prompts=2)
    about.model = word
    about.command = ["locust", word]
    about.options["dataset_path"] = word
    writer = RunWriter(folder, about)
    writer.append([record(0, model=word), record(1, model=word)])
    write_server_files(
        folder, [ServerFiles((f"{word}\n", ""), [word], f"llama-server --alias {word}")]
    )
    (folder / SAMPLES).write_bytes(samples(word))
    write_telemetry(folder)
    journal(folder / PROBE_JOURNAL, word)
    write_probes(folder)
    writer.finish()
    writer.release()
    reports = write_reports(analyze(load_run(folder)))
    write_html(reports)
    return folder


@cache
def template_of_killed(word: str) -> Path:
    folder = Path(TEMPLATES.name) / f"killed-{word}"
    about = manifest(label=word, num_prompts=2)
    writer = RunWriter(folder, about)
    writer.release()
    journal(folder / JOURNAL, word)
    journal(folder / PACKED, word)
    journal(folder / PROBE_JOURNAL, word)
    (folder / SAMPLES).write_bytes(samples(word))
    return folder


def samples(word: str) -> bytes:
    return SAMPLE.replace(b'"a"', f'"{word}"'.encode())


def journal(file: Path, word: str) -> None:
    written = Journal(file)
    written.append(to_batch([record(len(file.name), model=word)]))
    written.close()


def command(*words: str) -> None:
    """A command of llama-load, whatever it ends with; a traceback is an error."""
    with suppress(SystemExit):
        main(words)


def read_everything(folder: Path) -> None:
    """All that reads a run folder."""
    other = folder.parent / "other"
    out = folder.parent / "out"
    command("verify", "--all", str(folder))
    command("compare", str(other), str(folder), "--output", str(out / "compared"))
    command("share", str(folder), "--yes", "--output", str(out / "shared"))
    command("runs", str(folder.parent))
    command("report", str(folder), "--format", "csv", "--output", str(out / "csv"))
    command("prompts", str(folder))
    last_with_label(folder.parent, "inside")
    sent_before(other, load_run(other).records)
    files = RunFiles(folder.parent, {})
    for name in FILES:
        files.text(folder.name, name)
        print(files.json(folder.name, name))
    print(files.names(), files.present(folder.name))
    command("report", str(folder))


@contextmanager
def opened_below(folder: Path) -> Iterator[set[str]]:
    """The names of the files in a folder that are opened for reading."""
    names: set[str] = set()
    is_noting = True

    def note(event: str, details: tuple[object, ...]) -> None:
        if not is_noting or event != "open":
            return
        path, _, flags = details
        is_read = isinstance(flags, int) and flags & os.O_ACCMODE == os.O_RDONLY
        if is_read and str(path).startswith(f"{folder}/"):
            names.add(str(path)[len(str(folder)) + 1 :])

    sys.addaudithook(note)  # which cannot be removed
    try:
        yield names
    finally:
        is_noting = False


@pytest.mark.parametrize("make", [ended_run, killed_run])
def test_the_names_here_are_all_that_is_read(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    ended_run(tmp_path / "other")
    (tmp_path / "out").mkdir()
    folder = make(tmp_path / "run")
    with opened_below(folder) as names:
        read_everything(folder)
    assert {name for name in names if not name.endswith(".part")} <= set(NAMES)
    if make is ended_run:
        assert names >= set(OF_ENDED)
    else:
        assert names >= set(OF_KILLED)


def link(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def link_of_folder(path: Path, outside: Path) -> None:
    """The folder of the file is the link, where it is not the run folder itself."""
    if path.parent.name != "server":
        path.symlink_to(outside)
        return
    shutil.rmtree(path.parent)
    path.parent.symlink_to(outside.parent)


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def folder_instead(path: Path, _: Path) -> None:
    path.mkdir()


def sparse(path: Path, _: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 << 30)


def device(path: Path, _: Path) -> None:
    path.symlink_to("/dev/zero")


def itself(path: Path, _: Path) -> None:
    path.symlink_to(path.name)


REPLACEMENTS = (link, link_of_folder, pipe, folder_instead, sparse, device, itself)
# In every `make test`; each takes a second.
QUICK = frozenset((MANIFEST, TABLE, SUMMARY, SERVER_LOG, JOURNAL))
CASES = []
for _place, _name in enumerate(NAMES):
    # A link in the place of each file, and of the other kinds two.
    _others = REPLACEMENTS[1:]
    for _replace in (link, _others[_place % 6], _others[(_place + 3) % 6]):
        _is_quick = _replace is link and _name in QUICK
        _marks = () if _is_quick else pytest.mark.heavy
        CASES.append(pytest.param(_name, _replace, marks=_marks))


@contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError(f"it took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("name", "replace"), CASES)
def test_nothing_outside_of_a_run_folder_is_read(
    name: str,
    replace: Callable[[Path, Path], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make = ended_run if name in OF_ENDED else killed_run
    ended_run(tmp_path / "runs" / "other")
    out = tmp_path / "runs" / "out"
    out.mkdir()
    outside = make(tmp_path / "outside", CANARY)
    folder = make(tmp_path / "runs" / "run")
    if name not in (BLOCK, REPORT, PAGE):
        shown = (outside / name).read_bytes()
        assert CANARY.encode() in shown or name.endswith((".parquet", ".arrows"))
    (folder / name).unlink()
    replace(folder / name, outside / name)
    capsys.readouterr()

    with no_longer_than(WITHIN_S):
        read_everything(folder)

    printed = capsys.readouterr()
    assert CANARY not in printed.out
    assert CANARY not in printed.err
    for file in [*out.rglob("*"), *folder.rglob("*")]:
        is_small = file.is_file() and not file.is_symlink()
        if is_small and file.stat().st_size < 1 << 30:
            assert CANARY.encode() not in file.read_bytes(), file


@pytest.mark.parametrize("name", ["/dev/zero", "../outside/run.json", "\x1b[2Jtext"])
def test_digests_of_other_files_are_not_made(name: str, tmp_path: Path) -> None:
    """run.json names the files that have digests: it may name any."""
    folder = ended_run(tmp_path / "run")
    document = json.loads((folder / MANIFEST).read_text())
    document["digests"][name] = "0" * 64
    (folder / MANIFEST).write_text(json.dumps(document))
    with no_longer_than(WITHIN_S):
        rows = verify_run(folder).rows
    assert name not in {row.where for row in rows}
    assert {TELEMETRY, PROBES} <= {row.where for row in rows}
