"""scripts/audit.py: what was not looked up is never a success."""

from __future__ import annotations

from typing import Any

import pytest

from scripts import audit
from scripts.audit import CLEAN, NOT_AUDITED, VULNERABLE, judged

INSTALLED = ["requests==2.0", "msgspec==1.0"]
OK = {"name": "requests", "version": "2.0", "vulns": []}
SKIPPED = {
    "name": "msgspec",
    "skip_reason": "Dependency not found on PyPI and could not be audited: msgspec (1.0)",
}
BAD = {
    "name": "msgspec",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}],
}


@pytest.mark.parametrize(
    ("dependencies", "code", "sentence"),
    [
        (
            [OK, {**OK, "name": "msgspec"}],
            CLEAN,
            "2 packages have no known vulnerability",
        ),
        ([OK, SKIPPED], NOT_AUDITED, "does not have 1 of 2 packages: msgspec"),
        (
            [{**SKIPPED, "name": "requests"}, SKIPPED],
            NOT_AUDITED,
            "does not have 2 of 2 packages",
        ),
        ([OK], NOT_AUDITED, "does not have 1 of 2 packages: msgspec"),
        ([], NOT_AUDITED, "does not have 2 of 2 packages"),
        ([OK, BAD], VULNERABLE, "msgspec 1.0: PYSEC-1, fixed in 1.1"),
        ([{**SKIPPED, "name": "requests"}, BAD], VULNERABLE, "NOT AUDITED"),
        (None, NOT_AUDITED, "none of 2 packages was looked up"),
    ],
)
def test_only_what_was_looked_up_is_clean(
    dependencies: list[dict[str, Any]] | None, code: int, sentence: str
) -> None:
    """pip-audit skipped 105 of 105 packages and ended with 0: "No known vulnerabilities found"."""
    found, lines = judged(
        None if dependencies is None else {"dependencies": dependencies}, INSTALLED
    )
    assert found == code and sentence in "\n".join(lines)


@pytest.mark.parametrize(
    ("value", "code"), [("", NOT_AUDITED), ("yes", NOT_AUDITED), ("optional", CLEAN)]
)
def test_a_missing_audit_is_accepted_by_its_word_alone(
    value: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AUDIT", value)
    monkeypatch.setattr(audit, "installed_in", lambda _: INSTALLED)
    monkeypatch.setattr(audit, "report_on", lambda _: None)
    assert audit.main("bin") == code
    assert "NOT AUDITED" in capsys.readouterr().out
    monkeypatch.setattr(audit, "report_on", lambda _: {"dependencies": [OK, BAD]})
    assert audit.main("bin") == VULNERABLE
