"""Logs, results and verdicts of others: shown as text, or refused in a sentence."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from truth.cli import WRONG_USAGE, main
from truth.log import SCHEMA

XSS = "\"'><img src=x onerror=alert(1)>"
VERDICTS: dict[str, Any] = {
    "client": "a",
    "client_version": "1",
    "date": "",
    "system": "",
    "cores": 1,
    "cases": [
        {
            "id": "T1",
            "suite": "s",
            "title": "t",
            "norm": "n",
            "reason": "r",
            "verdict": "true",
            "passed": True,
            "void": "",
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
    shown = "".join(capsys.readouterr())
    assert shown and not {"\x1b", "\x07", "\u202e"} & set(shown)


@pytest.mark.parametrize(
    ("entry", "server"),
    [
        ({**ENTRY, "sent_mono_ns": ["a"]}, SERVER),
        ({**ENTRY, "sent_mono_ns": "ab"}, SERVER),
        ({**ENTRY, "received_mono_ns": "1"}, SERVER),
        ({**ENTRY, "received_mono_ns": 10**400}, SERVER),
        ({**ENTRY, "path": 1}, SERVER),
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
