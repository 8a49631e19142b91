"""telemetry.jsonl and telemetry.parquet: what the sampler writes comes back, and what is damaged or
foreign does no harm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llama_load.run_folder import telemetry_file as reader
from llama_load.run_folder.foreign_tables import TableLimits
from llama_load.run_folder.telemetry_file import (
    SAMPLES,
    TELEMETRY,
    load_telemetry,
    write_telemetry,
)
from llama_load.telemetry.sample_file import SampleFile
from llama_load.telemetry.source import Value


def sampled(folder: Path, **how: int) -> SampleFile:
    return SampleFile(str(folder / SAMPLES), **how)


def test_what_was_sampled_comes_back_from_both_files(tmp_path: Path) -> None:
    file = sampled(tmp_path)
    file.add(
        "gpus",
        10,
        [
            Value("watts", 300.0, (("gpu", "0"),)),
            Value("watts", 200.0, (("gpu", "1"),)),
        ],
    )
    file.add(
        "gpus",
        20,
        [
            Value("watts", 301.0, (("gpu", "0"),)),
            Value("watts", 200.0, (("gpu", "1"),)),
        ],
    )
    file.note("显卡 has no energy counter")
    file.complete()
    for found in (
        load_telemetry(tmp_path),
        write_telemetry(tmp_path),
        load_telemetry(tmp_path),
    ):
        assert [(each.source, each.metric, each.labels) for each in found.series] == [
            ("gpus", "watts", {"gpu": "0"}),
            ("gpus", "watts", {"gpu": "1"}),
        ]
        assert [list(each.values) for each in found.series] == [[300, 301], [200, 200]]
        assert found.series[0].t_ns.tolist() == [10, 20]
        assert list(found.notes) == ["显卡 has no energy counter"]
    assert not (tmp_path / SAMPLES).exists()
    assert pq.read_schema(tmp_path / TELEMETRY).names == [
        "source",
        "metric",
        "labels",
        "t",
        "value",
    ]


def test_a_value_that_stays_the_same_is_written_when_that_begins_and_ends(
    tmp_path: Path,
) -> None:
    file = sampled(tmp_path)
    for t_ns, value in enumerate([5.0, 5.0, 5.0, 7.0, 7.0]):
        file.add("x", t_ns, [Value("y", value)])
    file.complete()
    found = load_telemetry(tmp_path).series[0]
    assert list(zip(found.t_ns.tolist(), found.values.tolist(), strict=True)) == [
        (0, 5),
        (2, 5),
        (3, 7),
        (4, 7),
    ]


def test_a_long_run_fills_no_disk_and_is_sampled_less_often_instead(
    tmp_path: Path,
) -> None:
    file = sampled(tmp_path, most_bytes=10_000)
    for t_ns in range(2000):
        file.add("x", t_ns, [Value("y", t_ns)])
    assert (tmp_path / SAMPLES).stat().st_size <= 10_000
    assert file.slow_down >= 8


def test_more_series_than_are_kept_are_named(tmp_path: Path) -> None:
    file = sampled(tmp_path)
    file.add("x", 1, [Value(f"y{number}", 1.0) for number in range(3000)])
    found = load_telemetry(tmp_path)
    assert len(found.series) == 2500
    assert list(found.notes) == ["x has more series than are kept: 500 were left out"]


@pytest.mark.parametrize(
    "line",
    [
        '["values",3,[0,',
        '["values",1e30,[0,1.0]]',
        '["values",3,[0,"x"]]',
        '["values",9223372036854775807,[0,1.0]]',
        '["series",1,2,3,4]',
        "[]",
        "nonsense",
        '{"a":1}',
        "[" * 100_000,
    ],
)
def test_lines_that_are_no_samples_are_left_out(tmp_path: Path, line: str) -> None:
    good = '["series",0,"s","m",{}]\n["values",1,[0,1.0]]\n'
    (tmp_path / SAMPLES).write_text(
        good + line + "\n" + '["values",5,[0,2.0]]\n' + '["values",6,[0,', "utf-8"
    )
    found = load_telemetry(tmp_path)
    assert [list(each.values) for each in found.series] == [[1, 2]]
    assert len(found.notes) == 1 and "damaged" in found.notes[0]


def table(**columns: object) -> pa.Table:
    whole = {
        "source": ["s", "s"],
        "metric": ["m", "m"],
        "labels": ["{}", "{}"],
        "t": [1, 2],
        "value": [1.0, 2.0],
    }
    return pa.table(
        {name: value for name, value in (whole | columns).items() if value is not None}
    )


@pytest.mark.parametrize(
    "columns",
    [
        {"t": None},
        {"t": ["a", "b"]},
        {"t": [2**62, 1]},
        {"labels": ["{", "{}"]},
        {"labels": ["[1]", "{}"]},
        {"source": [None, "s"]},
    ],
)
def test_a_foreign_table_is_a_note_and_not_an_error(
    tmp_path: Path, columns: dict[str, object]
) -> None:
    pq.write_table(table(**columns), tmp_path / TELEMETRY)
    found = load_telemetry(tmp_path)
    assert not found.series and "cannot be read" in found.notes[0]


def test_a_table_of_another_program_is_cleaned(tmp_path: Path) -> None:
    pq.write_table(
        table(source=["s\x1b[2J", "s\x1b[2J"], value=[1.0, float("nan")], t=[5, 2]),
        tmp_path / TELEMETRY,
    )
    found = load_telemetry(tmp_path)
    assert found.series[0].source == "s\ufffd[2J" and found.series[0].t_ns.tolist() == [
        5
    ]


def test_a_table_with_too_many_rows_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(table(), tmp_path / TELEMETRY)
    monkeypatch.setattr(reader, "LIMITS", TableLimits(cells=1, decoded_bytes=1000))
    assert "over the limit of 1 cells" in load_telemetry(tmp_path).notes[0]


def test_a_cut_off_file_is_a_note(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / TELEMETRY)
    whole = (tmp_path / TELEMETRY).read_bytes()
    (tmp_path / TELEMETRY).write_bytes(whole[: len(whole) // 2])
    assert "cannot be read" in load_telemetry(tmp_path).notes[0]


def test_a_folder_without_telemetry_has_none(tmp_path: Path) -> None:
    found = load_telemetry(tmp_path)
    assert not found.series and not found.notes and np.size(found.notes) == 0
