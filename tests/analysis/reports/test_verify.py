"""`llama-load verify`: a changed table, summary or block is named; what the run wrote is not."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llama_load.analysis.reports.verify import Verified, _of_page, verify_run
from llama_load.analysis.reports.write import write_html, write_reports
from llama_load.analysis.results.results import analyze
from llama_load.cli import main as cli
from llama_load.run_folder import TABLE, RunWriter, load_run
from llama_load.run_folder.manifest import write_manifest
from llama_load.run_folder.records_digest import sha256_of
from llama_load.run_folder.telemetry_file import SAMPLES, TELEMETRY
from scripts.record_printed import MANIFEST, PRINTED
from tests.make_records import manifest, record


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of 20 requests with its reports; the last five were the slowest."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    writer = RunWriter(folder, manifest(num_prompts=20))
    writer.append(
        [
            record(n, start_ms=500 * n, first_ms=100 if n < 15 else 400)
            for n in range(20)
        ]
    )
    run = writer.finish()
    writer.release()
    write_reports(analyze(run))
    yield folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(written, tmp_path / "run"))


def wrong(folder: Path) -> list[Verified]:
    return [row for row in verify_run(folder).rows if row.holds is False]


def test_what_a_run_wrote_holds(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wrong(folder) == []
    assert cli.main(["verify", str(folder)]) == 0
    assert "mean_ttft_ms" in capsys.readouterr().out


def test_a_run_without_a_digest_is_unknown_and_not_refused(tmp_path: Path) -> None:
    """As of an earlier version: their figures hold, and whether a row is missing is not
    known."""
    folder = Path(shutil.copytree(PRINTED / "demo", tmp_path / "demo"))
    manifest = json.loads((folder / MANIFEST).read_bytes())
    manifest.pop("digests", None)
    manifest.pop("records", None)
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    results = analyze(load_run(folder))
    write_reports(results)
    rows = verify_run(folder).rows
    unknown = [row.name for row in rows if not row.holds]
    assert unknown == ["schema", "rows and digest"]
    (check,) = (
        check for check in results.verdict.checks if check.name == "changed_records"
    )
    assert (check.ok, check.value, check.mark) == (True, None, "?")


def change_table(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(folder / TABLE)), folder / TABLE)


def halved(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("ttft_ms")
    return table.set_column(
        place, table.schema.field(place), pa.array(np.asarray(table["ttft_ms"]) / 2)
    )


def without_the_slowest(table: pa.Table) -> pa.Table:
    return table.slice(0, 15)


def shorter_gaps(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("itl_ms")
    gaps = [[gap / 2 for gap in gaps] for gaps in table["itl_ms"].to_pylist()]
    return table.set_column(
        place, table.schema.field(place), pa.array(gaps, table.schema.field(place).type)
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (halved, "ttft_ms of 20 requests is not what the timestamps give"),
        (without_the_slowest, "requests.parquet has 15 rows, 20 were written"),
        (shorter_gaps, "the gaps of 20 requests do not fill the time"),
        (
            lambda table: table.set_column(
                0, table.schema.field(0), pa.array(["x"] * 20)
            ),
            "was changed after it was written",
        ),
    ],
)
def test_a_changed_table_is_named_by_verify_and_by_the_next_report(
    folder: Path, change: Callable[[pa.Table], pa.Table], says: str
) -> None:
    change_table(folder, change)
    assert any(says in row.computed for row in wrong(folder))
    found = analyze(load_run(folder)).verdict
    (check,) = (check for check in found.checks if check.name == "changed_records")
    assert not check.ok
    assert says in check.text
    assert found.word == "INCOMPLETE"


def test_latencies_are_those_of_the_timestamps(folder: Path) -> None:
    """15 of 100 ms and 5 of 400: 175 ms, whatever the column says."""
    change_table(folder, halved)
    assert analyze(load_run(folder)).total.distributions["ttft"].mean == pytest.approx(
        175.0
    )


def change_summary(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = folder / "summary.json"
    summary = json.loads(file.read_text())
    change(summary)
    file.write_text(json.dumps(summary))


def test_a_changed_summary_is_named(folder: Path) -> None:
    change_summary(folder, lambda summary: summary.update(mean_ttft_ms=17.5))
    (row,) = wrong(folder)
    assert (row.where, row.name, row.printed, row.computed) == (
        "summary.json",
        "mean_ttft_ms",
        "17.5",
        "175.0",
    )
    change_summary(folder, lambda summary: summary.update(mean_ttft_ms=175.0))
    change_summary(
        folder, lambda summary: summary["llama_load"]["verdict"].update(word="BEST")
    )
    assert [row.name for row in wrong(folder)] == ["llama_load.verdict.word"]


@pytest.mark.parametrize("name", ["telemetry.parquet", "probes.parquet"])
def test_a_changed_or_missing_table_beside_the_records_is_named(
    folder: Path, name: str
) -> None:
    file = folder / name
    file.write_bytes(b"as written")
    run = load_run(folder)
    run.manifest.digests = {name: sha256_of(file)}
    write_manifest(folder, run.manifest)
    rows = [row for row in verify_run(folder).rows if row.where == name]
    assert [row.holds for row in rows] == [True]

    file.write_bytes(b"changed")
    (row,) = (row for row in wrong(folder) if row.where == name)
    assert row.computed == "was changed after it was written"
    file.unlink()
    assert any(row.where == name for row in wrong(folder))


def test_a_run_notes_the_digests_of_its_telemetry(tmp_path: Path) -> None:
    """Written when it ends."""
    writer = RunWriter(tmp_path / "run", manifest(num_prompts=1))
    (writer.path / SAMPLES).write_text(
        '["series", 0, "host", "cpu", {}]\n["values", 1, [0, 1.5]]\n'
    )
    writer.append([record(0)])
    run = writer.finish()
    writer.release()
    assert run.manifest.digests == {TELEMETRY: sha256_of(writer.path / TELEMETRY)}
    assert load_run(writer.path).manifest.digests == run.manifest.digests


def test_a_changed_page_is_named(folder: Path) -> None:
    """A figure, a heading, the language; what the run wrote holds."""
    results = analyze(load_run(folder))
    write_html(write_reports(results))
    assert [row.holds for row in _of_page(folder, results)] == [True]
    page = folder / "report.html"
    text = page.read_text()
    for before, after in [
        ("175.00", "17.50"),
        ("</h2>", "!</h2>"),
        ('lang="en"', 'lang="xx"'),
    ]:
        assert before in text
        page.write_text(text.replace(before, after, 1))
        assert [row.holds for row in _of_page(folder, results)] == [False]
    assert {row.where for row in wrong(folder)} == {"report.html"}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the second of two runs with a label, and its folder."""
    folder = tmp_path_factory.mktemp("labelled")
    for name in ("a", "b"):
        told = manifest(num_prompts=10, label='night "ly"', date=f"2026-{name}")
        writer = RunWriter(folder / name, told)
        writer.append([record(n, start_ms=200 * n) for n in range(10)])
        writer.finish()
        writer.release()
        write_html(write_reports(analyze(load_run(folder / name))))
    return folder


SENTENCE = "against last"


@pytest.mark.parametrize(
    ("forged", "holds"),
    [
        (None, [True]),
        ("", [None, True]),  # it has been the first one
        ("Mean TTFT +7 %", [None, True]),
        ("Mean TTFT +0 % <b>against last</b>", [None, False]),
        ("Mean TTFT +0 %, 10 requests failed, Mean TTFT +0 %", [None, False]),
    ],
)
def test_the_sentence_about_an_earlier_run_excuses_nothing_but_itself(
    labelled: Path, forged: str | None, holds: list[bool | None], tmp_path: Path
) -> None:
    """A page with these words in another line, or more in that line, does not hold."""
    shutil.copytree(labelled, tmp_path / "runs")
    page = tmp_path / "runs" / "b" / "report.html"
    text = page.read_text()
    begin = text.index(SENTENCE)
    assert text.count(SENTENCE) == 1
    if forged:
        text = text[:begin] + text[begin:].replace("Mean TTFT +0 %", forged, 1)
        page.write_text(text)
    elif forged == "":
        shutil.rmtree(tmp_path / "runs" / "a")
    rows = verify_run(tmp_path / "runs" / "b").rows
    found = [row.holds for row in rows if row.where == "report.html"]
    assert found == holds or (False in holds and False in found)


def test_a_word_of_a_forger_excuses_no_other_line(
    labelled: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(labelled / "b", tmp_path / "run"))
    page = folder / "report.html"
    page.write_text(page.read_text().replace("</h2>", f" {SENTENCE} </h2>", 1))
    assert {row.where for row in wrong(folder)} == {"report.html"}


def test_a_summary_with_a_name_twice_is_no_summary(folder: Path) -> None:
    """Of the two values one reader takes the first, another the last."""
    file = folder / "summary.json"
    file.write_text('{"mean_ttft_ms": 1.0,' + file.read_text().lstrip().lstrip("{"))
    assert any("an object with a name" in row.printed for row in wrong(folder))


def test_files_that_nothing_looks_at_are_named(folder: Path) -> None:
    (folder / "chart.html").write_text("a")
    rows = [row for row in verify_run(folder).rows if row.where == "chart.html"]
    assert [(row.holds, row.computed) for row in rows] == [(None, "not looked at")]


@pytest.mark.parametrize("name", ["summary.txt", "report.md"])
def test_a_changed_line_of_a_report_is_named(folder: Path, name: str) -> None:
    text = (folder / name).read_text()
    (folder / name).write_text(text.replace("175.00", "17.50"))
    (row,) = wrong(folder)
    assert row.where == name
    assert "17.50" in row.printed
    assert "175.00" in row.computed


def test_a_summary_that_is_missing_or_no_json_is_named(folder: Path) -> None:
    (folder / "summary.json").write_text("{")
    assert [row.name for row in wrong(folder)] == ["the file"]
    (folder / "summary.json").unlink()
    assert cli.main(["verify", str(folder)]) == 2


def test_a_report_of_a_million_lines_is_not_compared_line_by_line(folder: Path) -> None:
    """That took half a minute a million lines."""
    (folder / "report.md").write_text("\n" * 1_000_000)
    begun_s = time.thread_time()
    rows = verify_run(folder).rows
    assert time.thread_time() - begun_s < 5
    (row,) = [row for row in rows if row.where == "report.md"]
    assert row.holds is False and "1000000 lines" in row.printed


def test_values_of_others_make_no_longer_lines_than_ours(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key of 200 KB in summary.json made every line as long: 110 MB of 500 keys, and what could
    not be compared had a line each."""
    file = folder / "summary.json"
    summary = json.loads(file.read_text())
    keys = {f"key{number}": 1 for number in range(500)}
    file.write_text(json.dumps({**summary, "K" * 200_000: 1, **keys}))
    assert cli.main(["verify", str(folder), "--all"]) == 0
    assert len(capsys.readouterr().out) < 2_000_000

    keys = {f"key{number}": 1 for number in range(100_000)}
    file.write_text(json.dumps({**summary, **keys}))
    assert cli.main(["verify", str(folder)]) == 1
    printed = capsys.readouterr().out
    assert len(printed) < 200_000
    assert "every value" in printed


def test_a_preflight_of_another_version_is_reported(folder: Path) -> None:
    """Its level is shown as a mark, of which only three are known."""
    file = folder / "run.json"
    run = json.loads(file.read_text())
    run["preflight"] = [{"name": "a", "value": "b", "level": "grave"}]
    file.write_text(json.dumps(run))
    assert cli.main(["report", str(folder)]) in (0, 1)
    assert "| a" in (folder / "report.md").read_text()
