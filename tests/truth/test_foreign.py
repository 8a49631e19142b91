"""Logs, results and verdicts of others: shown as text, or refused in a sentence."""

from __future__ import annotations

import copy
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from truth.cases import Answers
from truth.cli import PASSED, WRONG_USAGE, main
from truth.log import SCHEMA
from truth.server.serving import serving

XSS = "\"'><img src=x onerror=alert(1)>"
VERDICTS: dict[str, Any] = {
    "client": "a",
    "client_version": "1",
    "date": "",
    "system": "",
    "cores": 1,
    "truth_version": "0.2.0",
    "cases": [
        {
            "id": "T1",
            "suite": "s",
            "title": "t",
            "norm": "n",
            "reason": "r",
            "verdict": "right",
            "passed": True,
            "void": "",
            "not_asked": "",
            "failed": "",
            "runs": 2,
            "not_reported": ["x"],
            "bound_ms": 0.1,
            "findings": [{"figure": "f", "seen": "1", "right": "1", "limit": "2"}],
        }
    ],
}
ENTRY = {
    "number": 1,
    "received_mono_ns": 1,
    "sent_mono_ns": [2, 3],
    "outcome": "ok",
    "path": "/v1/chat/completions",
}
CSV = "# doubt = \x1b]0;owned\x07\u202e\nnumber,e2el_ms\n1,5\n"


@pytest.mark.parametrize("of_a_case", [False, True])
def test_no_field_of_a_verdict_is_markup_of_the_page(
    of_a_case: bool, tmp_path: Path
) -> None:
    names = VERDICTS["cases"][0] if of_a_case else VERDICTS
    for name in names:
        changed = copy.deepcopy(VERDICTS)
        where = changed["cases"][0] if of_a_case else changed
        where[name] = XSS
        (tmp_path / "a.json").write_text(json.dumps(changed))
        words = ["page", str(tmp_path / "a.json"), "--to", str(tmp_path / "a.html")]
        assert main(words) in (0, WRONG_USAGE)
        page = tmp_path / "a.html"
        if page.exists():
            assert "<img src=x" not in page.read_text()
            page.unlink()


def judged(tmp_path: Path, log: str, rows: str) -> int:
    (tmp_path / "log.jsonl").write_text(log)
    (tmp_path / "rows.csv").write_text(rows)
    words = ["judge", str(tmp_path / "log.jsonl"), "--format", "csv"]
    return main([*words, "--client", str(tmp_path / "rows.csv")])


def log_of(entry: object, server: object) -> str:
    return f"{json.dumps(entry)}\n{json.dumps({'server': server})}\n"


SERVER = {"schema": SCHEMA, "case": "T1", "late_p99_ns": 1}


def test_no_text_of_others_commands_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged(tmp_path, log_of(ENTRY, SERVER), CSV)
    judged(tmp_path, log_of({**ENTRY, "path": "\x1b[2J"}, {"case": "\x1b[2J"}), CSV)
    words = ["--format", "csv", "--client", str(tmp_path / "rows.csv")]
    (tmp_path / "log.jsonl").write_text(log_of(ENTRY, SERVER))
    (tmp_path / "rows.csv").write_text(CSV.replace("\x07", "\x9b"))
    main(["judge", str(tmp_path / "log.jsonl"), *words, "--output", "json"])
    shown = "".join(capsys.readouterr())
    assert shown and not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
    assert "\\u009b" in shown


@pytest.mark.parametrize(
    ("entry", "server"),
    [
        ({**ENTRY, "sent_mono_ns": ["a"]}, SERVER),
        ({**ENTRY, "sent_mono_ns": "ab"}, SERVER),
        ({**ENTRY, "received_mono_ns": "1"}, SERVER),
        ({**ENTRY, "received_mono_ns": 10**400}, SERVER),
        ({**ENTRY, "path": 1}, SERVER),
        ([], SERVER),
        (["server"], SERVER),
        ({**ENTRY, "event_tokens": {"a": 1}}, SERVER),
        (ENTRY, [SERVER]),
        (ENTRY, {**SERVER, "late_p99_ns": "late"}),
        (ENTRY, {**SERVER, "late_p99_ns": 10**400}),
        (ENTRY, {**SERVER, "case": ["T1"]}),
    ],
    ids=str,
)
def test_a_log_of_another_form_is_refused_in_a_sentence(
    entry: object, server: object, tmp_path: Path
) -> None:
    assert judged(tmp_path, log_of(entry, server), CSV) == WRONG_USAGE


def test_a_log_of_any_depth_and_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(tmp_path, "[" * 200_000, CSV) == WRONG_USAGE
    monkeypatch.setattr("truth.foreign.MOST_BYTES", 100)
    assert judged(tmp_path, log_of(ENTRY, SERVER), CSV) == WRONG_USAGE


def test_columns_that_nobody_reads_take_no_memory(tmp_path: Path) -> None:
    """Each row had a dictionary of all columns: 32 KiB took 816 MiB, 1 MiB a thousand times that."""
    heads = ",".join(f"c{number}" for number in range(2000))
    rows = f"e2el_ms,{heads}\n" + "1\n" * 2000
    tracemalloc.start()
    judged(tmp_path, log_of(ENTRY, SERVER), rows)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 16 << 20


@pytest.mark.parametrize("format", ["vllm", "otlp"])
def test_values_that_take_more_memory_than_their_text_are_refused(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 MiB of empty lists took 12 GB, one of them on each line as well."""
    monkeypatch.setattr("truth.foreign.MOST_MEMORY_BYTES", 1 << 20)
    (tmp_path / "log.jsonl").write_text(log_of(ENTRY, SERVER))
    text = {"vllm": f"[{'[],' * 100_000}1]", "otlp": "{}\n" * 100_000}[format]
    (tmp_path / "result").write_text(text)
    words = ["judge", str(tmp_path / "log.jsonl"), "--format", format]
    tracemalloc.start()
    assert main([*words, "--client", str(tmp_path / "result")]) == WRONG_USAGE
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 4 << 20


def test_a_line_too_many_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("truth.foreign.MOST_LINES", 3)
    assert judged(tmp_path, log_of(ENTRY, SERVER), "e2el_ms\n1\n2\n") != WRONG_USAGE
    assert judged(tmp_path, log_of(ENTRY, SERVER), "e2el_ms\n1\n2\n3\n") == WRONG_USAGE


def test_a_line_ends_at_its_newline_alone(tmp_path: Path) -> None:
    """U+2028 may stand in JSON as it is."""
    log = log_of(ENTRY | {"path": "a"}, SERVER).replace(
        '"a"', '"a\u2028/chat/completions"'
    )
    assert judged(tmp_path, log, "e2el_ms\n1\n") != WRONG_USAGE


def test_a_page_of_many_cases_does_not_look_for_each_in_all(tmp_path: Path) -> None:
    """Two files of 10,000 cases took 15 s, ten times as many a hundred times as long."""
    case = VERDICTS["cases"][0]
    for name in "ab":
        cases = [case | {"id": f"{name}{number}"} for number in range(3_000)]
        (tmp_path / name).write_text(json.dumps(VERDICTS | {"cases": cases}))
    started_s = time.process_time()
    words = ["page", str(tmp_path / "a"), str(tmp_path / "b")]
    assert main([*words, "--to", str(tmp_path / "a.html")]) == PASSED
    assert time.process_time() - started_s < 5


def test_no_text_of_others_is_markup_in_markdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.jsonl").write_text(log_of(ENTRY, SERVER))
    rows = "# doubt = <img src=x> ![a](b) \\| `c`\nnumber,e2el_ms\n1,5\n"
    (tmp_path / "rows.csv").write_text(rows)
    words = ["judge", str(tmp_path / "log.jsonl"), "--format", "csv", "--output"]
    main([*words, "markdown", "--client", str(tmp_path / "rows.csv")])
    shown = capsys.readouterr().out
    assert "&lt;img src=x> !\\[a\\](b) \\\\\\| \\`c\\`" in shown


CASE = """suite = "s"
[[case]]
id = "X1"
title = "t"
norm = "n"
rule = "r"
reason = "r"
load = {requests = 1, streams = 1}
"""


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ('"X1"', '"../../X1"'),
        ('"X1"', '"/tmp/X1"'),
        ('"X1"', '".."'),
        ('"X1"', "1"),
        ('"t"', '"\\u001b[2J"'),
        ('"t"', "7"),
        ("requests = 1", 'requests = "1"'),
        ("{requests = 1, streams = 1}", "1"),
        ("[[case]]", "[case]"),
        pytest.param("{requests = 1, streams = 1}", "[" * 5000, id="deep"),
    ],
)
def test_a_case_of_others_names_no_path_and_holds_what_it_should(
    good: str, bad: str, tmp_path: Path
) -> None:
    """Its id is the name of a folder, which was emptied, and of a log, which was written."""
    suite = tmp_path / "a.toml"
    suite.write_text(CASE)
    assert main(["suites", "--cases", str(tmp_path)]) == PASSED
    suite.write_text(CASE.replace(good, bad))
    assert main(["suites", "--cases", str(tmp_path)]) == WRONG_USAGE


def test_a_server_imports_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "struct", "socket", "truth"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)\n")
    monkeypatch.chdir(tmp_path)
    with serving(Answers(shape="merged"), tmp_path / "log.jsonl") as url:
        assert url.startswith("http://127.0.0.1:")
