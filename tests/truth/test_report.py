"""What a run leaves its user: the worst findings, JUnit and the summary of a job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.truth.test_foreign import CSV, ENTRY, SERVER, log_of
from truth.cases import read_cases
from truth.cli import alone, main, parser
from truth.finding import Finding, Level
from truth.judge import Verdict
from truth.junit import junit
from truth.worst import worst

CASES = {case.id: case for case in read_cases()}


def wrong(number: str, level: Level = Level.WRONG) -> Verdict:
    right = Finding("completed", "12", "12", "0", Level.RIGHT)
    finding = Finding("failed", "4", "0", "0", level)
    return Verdict(CASES[number], [right, finding], level)


def test_the_worst_are_a_client_without_a_result_then_faults_then_times() -> None:
    """Of six cases that are not passed three; what is void or right is none."""
    others = [Verdict(CASES["F1"], void="late"), wrong("C1", Level.RIGHT)]
    silent = Verdict(
        CASES["F4"], [replace(wrong("F4").findings[1], level=Level.SILENT)]
    )
    failed = Verdict(CASES["A1"], failed="exit code 1")
    times = [wrong("T1"), wrong("P2"), wrong("T2")]
    found = worst([*others, silent, *times, wrong("F3"), failed])
    assert [number for number, _ in found] == ["A1", "F3", "T1"]
    assert found[0][1] == "A1 (20 requests/s, Poisson): no result, exit code 1"
    assert found[1][1] == (
        "F3 (an error event after status 200): failed is 0, right is 4, limit 0."
    )
    assert worst([silent])[0][1].endswith("not reported is failed.")


def test_a_case_can_be_seen_alone_by_the_same_command() -> None:
    words = ["run", "--suite", "all", "--result", "{out}/r", "--closed", "-c {streams}"]
    given = parser().parse_args([*words, "--save", "x.json", "--runs", "5"])
    given.command = ["my-bench", "{url}", "{load}"]
    assert alone("F9", given) == (
        "truth run --case F9 --keep --closed '-c {streams}' --result '{out}/r'"
        " -- my-bench '{url}' '{load}'"
    )


def test_junit_has_a_failure_an_error_and_what_is_skipped() -> None:
    verdicts = [
        wrong("F3"),
        wrong("C1", Level.RIGHT),
        Verdict(CASES["T1"], failed="exit \x1b 1"),
        Verdict(CASES["T2"], void="late"),
        Verdict(CASES["W1"], not_asked="no place"),
    ]
    suite = ElementTree.fromstring(junit(verdicts, "x"))[0]
    assert suite.attrib == {
        "name": "truth: x",
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "2",
    }
    outcomes = [[child.tag for child in case] for case in suite]
    assert outcomes == [["failure"], [], ["error"], ["skipped"], ["skipped"]]
    assert "failed: right 4, seen 0, limit 0" in (suite[0][0].text or "")
    assert suite[0].attrib["classname"] == "truth.faults"


def test_a_job_of_github_gets_its_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is added to what other steps have written."""
    summary = tmp_path / "summary"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    (tmp_path / "log.jsonl").write_text(log_of(ENTRY, SERVER))
    (tmp_path / "rows.csv").write_text(CSV)
    words = ["judge", str(tmp_path / "log.jsonl"), "--format", "csv", "--client"]
    saved = tmp_path / "saved.json"
    main([*words, str(tmp_path / "rows.csv"), "--save", str(saved)])
    text = summary.read_text()
    assert text.startswith("before\n### truth: a client with rows in CSV\n\n| case |")
    assert json.loads(saved.read_text())["cases"][0]["id"] in text
