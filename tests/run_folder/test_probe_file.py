"""The file of probes: it survives a kill, a full disk and damage, and never costs the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_load.run_folder.journal import Journal
from llama_load.run_folder.probe_file import (
    PROBE_JOURNAL,
    PROBES,
    ProbeJournal,
    load_probes,
    write_probes,
)
from tests.make_records import record


def ids(folder: Path) -> list[str]:
    probes = load_probes(folder)
    assert probes is not None
    return [str(each) for each in probes.strings("request_id")]


def test_probes_are_read_while_the_run_goes_on_and_afterwards(tmp_path: Path) -> None:
    assert load_probes(tmp_path) is None
    journal = ProbeJournal(tmp_path)
    for number in range(3):
        journal.add(record(number))
    assert ids(tmp_path) == ["r0", "r1", "r2"]
    assert journal.close() == 0
    write_probes(tmp_path)
    assert ids(tmp_path) == ["r0", "r1", "r2"]
    assert [file.name for file in tmp_path.iterdir()] == [PROBES]


def test_what_the_disk_refuses_is_written_with_the_next_probe_or_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = ProbeJournal(tmp_path)
    journal.add(record(0))
    append = Journal.append

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    journal.add(record(1))
    monkeypatch.setattr(Journal, "append", append)
    journal.add(record(2))
    assert ids(tmp_path) == ["r0", "r1", "r2"]
    monkeypatch.setattr(Journal, "append", full)
    journal.add(record(3))
    assert journal.close() == 1


def test_damage_costs_the_damaged_probes_alone(tmp_path: Path) -> None:
    """A flipped byte of the journal costs one probe; a table that cannot be read costs all, without
    an exception."""
    journal = ProbeJournal(tmp_path)
    for number in range(3):
        journal.add(record(number))
    journal.close()
    data = bytearray((tmp_path / PROBE_JOURNAL).read_bytes())
    data[-200] ^= 0xFF
    (tmp_path / PROBE_JOURNAL).write_bytes(data)
    assert ids(tmp_path) == ["r0", "r1"]
    (tmp_path / PROBES).write_bytes(b"PAR1 this is no table PAR1")
    assert load_probes(tmp_path) is None
