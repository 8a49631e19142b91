"""Packed files and tables of others: how large they may become, and what they name."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads import file_forms
from tests.loadgen.workloads.test_custom import plan

MIB = 1 << 20


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of a file are 1 MiB, and 100 rows."""
    monkeypatch.setattr(file_forms, "MOST_UNPACKED_BYTES", MIB)
    monkeypatch.setattr(file_forms, "MOST_ROWS", 100)


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_a_bomb_is_unpacked_up_to_the_limit(
    tmp_path: Path, small: None, form: str
) -> None:
    zeros = bytes(32 * MIB)
    data = gzip.compress(zeros) if form == "gzip" else bytes(pa.compress(zeros, "zstd"))
    path = tmp_path / "bomb"
    path.write_bytes(data)
    assert len(data) < MIB / 20
    with pytest.raises(
        UsageError, match="bomb cannot be read: unpacked it has more than"
    ):
        plan(path, 1)


def test_a_parquet_file_says_its_size_before_it_is_decoded(
    tmp_path: Path, small: None
) -> None:
    table = pa.table({"prompt": [f"{n} " + "a" * 50_000 for n in range(40)]})
    pq.write_table(table, tmp_path / "large.parquet", compression="zstd")
    with pytest.raises(UsageError, match="unpacked it has more than"):
        plan(tmp_path / "large.parquet", 1)


def test_one_value_that_stands_in_each_row_is_bounded(
    tmp_path: Path, small: None
) -> None:
    """A dictionary of one text of 50 kB takes no room in the file: 40 rows have 2 MB."""
    table = pa.table({"prompt": ["a" * 50_000] * 40})
    pq.write_table(table, tmp_path / "same.parquet")
    assert (tmp_path / "same.parquet").stat().st_size < MIB
    with pytest.raises(UsageError, match="unpacked it has more than"):
        plan(tmp_path / "same.parquet", 1)


def test_rows_are_bounded(tmp_path: Path, small: None) -> None:
    rows = "".join(f"say {n},8\n" for n in range(101))
    (tmp_path / "a.csv").write_text(f"prompt,max_tokens\n{rows}")
    with pytest.raises(UsageError, match="more than 100 rows; save a part of it"):
        plan(tmp_path / "a.csv", 1)


def test_rows_of_a_table_are_named_as_in_their_file(tmp_path: Path) -> None:
    """A cell of two lines: the next row begins at line 4."""
    (tmp_path / "a.csv").write_text('prompt,max_tokens\n"say\nit",8\nsay more,0\n')
    with pytest.raises(UsageError, match=r"line 4 of .*a\.csv has output_tokens 0"):
        plan(tmp_path / "a.csv", 1)
    pq.write_table(
        pa.table({"prompt": ["a", "b"], "max_tokens": [1, 0]}), tmp_path / "a.parquet"
    )
    with pytest.raises(UsageError, match=r"row 2 of .*a\.parquet has output_tokens 0"):
        plan(tmp_path / "a.parquet", 1)


def test_a_column_that_is_there_twice_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("prompt,len,len\nsay it,8,9\n")
    with pytest.raises(UsageError, match="two columns 'len': rename one"):
        plan(tmp_path / "a.csv", 1)
