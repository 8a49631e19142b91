"""Results for other programs: every record in every format, unchanged by what servers write into
it."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pyarrow.csv
import pyarrow.parquet
import pytest
from PIL import Image

from llama_load.analysis.reports import formats
from llama_load.analysis.reports.formats import write_requests
from llama_load.cli.main import main
from llama_load.run_folder import RunWriter
from tests.make_records import failed, manifest, record, table

RECORDS = [
    record(0, first_ms=100.25, gaps_ms=(20, 30.5)),
    record(1, workload='引号 " , ;\n=1+1'),
    failed(2, kind="http_500"),
    record(3, model="=HYPERLINK(1)", warmup=True),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    writer = RunWriter(tmp_path / "run", manifest(num_prompts=3))
    writer.append(RECORDS)
    writer.finish()
    return tmp_path / "run"


def exported(run: Path, form: str, tmp_path: Path) -> bytes:
    file = tmp_path / f"out.{form}"
    before = sorted(run.iterdir())
    assert main(["report", str(run), "--format", form, "--output", str(file)]) == 0
    assert sorted(run.iterdir()) == before
    return file.read_bytes()


def test_every_request_is_a_row_in_every_format(run: Path, tmp_path: Path) -> None:
    as_csv = list(
        csv.DictReader(io.StringIO(exported(run, "csv", tmp_path).decode(), newline=""))
    )
    as_json = [
        msgspec.json.decode(line)
        for line in exported(run, "jsonl", tmp_path).splitlines()
    ]
    exported(run, "parquet", tmp_path)
    as_parquet = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert as_json == as_parquet
    assert (
        [row["request_id"] for row in as_csv]
        == [row["request_id"] for row in as_json]
        == [each.request_id for each in RECORDS]
    )
    assert (as_csv[0]["ttft_ms"], as_csv[0]["itl_ms"], as_csv[0]["warmup"]) == (
        "100.25",
        "20.0;30.5",
        "False",
    )
    assert (as_json[0]["ttft_ms"], as_json[0]["itl_ms"]) == (100.25, [20, 30.5])
    # What was not measured is empty, never 0.
    assert (as_csv[2]["ttft_ms"], as_json[2]["ttft_ms"]) == ("", None)
    assert as_csv[1]["workload"] == as_json[1]["workload"] == RECORDS[1].workload


def test_a_spreadsheet_runs_no_formula_of_a_server(run: Path, tmp_path: Path) -> None:
    rows = list(
        csv.DictReader(io.StringIO(exported(run, "csv", tmp_path).decode(), newline=""))
    )
    assert rows[3]["model"] == "'=HYPERLINK(1)"
    assert (
        pyarrow.csv.read_csv(
            tmp_path / "out.csv",
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        ).num_rows
        == 4
    )


def test_the_report_is_printed_in_each_format(
    run: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    outputs = {}
    for form in ("json", "txt", "md", "parquet"):
        assert main(["report", str(run), "--format", form]) == 0
        outputs[form] = capfdbinary.readouterr().out
    assert msgspec.json.decode(outputs["json"])["completed"] == 2
    assert outputs["txt"].startswith(b"Failed requests during benchmark run detected")
    assert outputs["txt"].decode() in outputs["md"].decode()
    assert outputs["parquet"].startswith(b"PAR1")


def test_a_run_that_was_killed_is_exported_and_not_changed(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", manifest(num_prompts=3))
    writer.append(RECORDS[:2])
    writer.release()
    assert len(exported(tmp_path / "run", "jsonl", tmp_path).splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["a", "b", "--format", "csv"], "name only that run"),
        (["a", "--output", "x"], "--output needs --format"),
        (["a", "--format", "csv"], "a is no run folder"),
    ],
)
def test_wrong_use_is_one_sentence(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *words]) == 2
    assert reason in capsys.readouterr().err


def test_the_first_screen_is_a_picture_without_paths(tmp_path: Path) -> None:
    """SVG of text that a server chose is well-formed and runs nothing; PNG has the same size, twice
    as large."""
    name = "模型</text><script>alert(1)</script>&😀"
    about = manifest(
        num_prompts=1,
        model=name,
        targets=[{"url": "http://h", "backend": "llama-server", "model": name}],
    )
    writer = RunWriter(tmp_path / "run", about)
    writer.append(RECORDS[:1])
    writer.finish()
    svg = ElementTree.fromstring(exported(tmp_path / "run", "svg", tmp_path))
    assert {element.tag.rpartition("}")[2] for element in svg.iter()} == {
        "svg",
        "title",
        "rect",
        "text",
    }
    text = "\n".join(element.text or "" for element in svg.iter())
    assert (
        name[:20] in text
        and "TTFT (ms)" in text
        and "report.html" not in text
        and str(tmp_path) not in text
    )
    with Image.open(io.BytesIO(exported(tmp_path / "run", "png", tmp_path))) as picture:
        assert picture.size == tuple(
            2 * int(svg.attrib[side]) for side in ("width", "height")
        )
        assert len(picture.convert("L").getcolors() or ()) > 10, "nothing was drawn"


def test_without_pillow_a_picture_as_png_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RunWriter(tmp_path / "run", manifest(num_prompts=1))
    writer.append(RECORDS[:1])
    writer.finish()
    monkeypatch.setitem(sys.modules, "PIL", None)
    picture = tmp_path / "run.png"
    words = [str(tmp_path / "run"), "--format", "png", "--output", str(picture)]
    assert main(["report", *words]) == 2
    assert "PNG needs the package pillow: pip install pillow" in capsys.readouterr().err
    assert not picture.exists()


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def test_json_shown_in_a_terminal_moves_no_cursor() -> None:
    """JSON may have U+009B, which begins escapes as ESC [ does, and U+202E as they are: a run of
    others typed into the terminal. As escapes they are the same texts."""
    told = "\x9b2J\x7f\u202e\\ü"
    for value in ({"a": told}, iter([{"a": told}])):
        out = io.BytesIO()
        formats._put(value, out)
        shown = out.getvalue().decode()
        assert json.loads(shown) == {"a": told}
        assert not {"\x9b", "\x7f", "\u202e"} & set(shown)
        assert "ü" in shown


def test_a_csv_shown_in_a_terminal_moves_no_cursor() -> None:
    """A server's texts in the records of others: escapes could type into the terminal."""
    evil = record(0, model="\x1b]0;title\x07\x1b[2J\x9b31mw")
    out = Terminal()
    write_requests(table(evil), "csv", out)
    shown = out.getvalue().decode()
    assert not any(sign in shown for sign in ("\x1b", "\x07", "\x9b"))
