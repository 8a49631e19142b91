"""JUnit XML of the verdicts, for CI: a test case per case. What is not passed is a failure, a
client without a result an error; void cases and those that were not asked are skipped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from truth.judge import Verdict
from truth.report import rows

# What XML 1.0 cannot hold, not even escaped.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(verdicts: Sequence[Verdict], client: str) -> str:
    """The document, with its declaration."""
    kinds = [_kind(verdict) for verdict in verdicts]
    counts = {
        "name": _writable(f"truth: {client}"),
        "tests": str(len(verdicts)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
    }
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", counts)
    for verdict, kind in zip(verdicts, kinds, strict=True):
        case = verdict.case
        element = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_writable(f"truth.{case.suite}"),
            name=_writable(f"{case.id} {case.title}"),
        )
        if kind:
            outcome = ElementTree.SubElement(element, kind, message=verdict.word)
            outcome.text = _writable(_figures(verdict))
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _kind(verdict: Verdict) -> str:
    """The element of its outcome; empty where it is passed."""
    if not verdict.is_judged:
        return "skipped"
    if verdict.failed:
        return "error"
    return "" if verdict.passed else "failure"


def _figures(verdict: Verdict) -> str:
    """A line per figure or note."""
    lines: list[str] = []
    for _, _, _, _, figure, right, seen, limit, _ in rows([verdict]):
        if seen or right:
            lines.append(f"{figure}: right {right}, seen {seen}, limit {limit}")
        else:
            lines.append(figure)
    return "\n".join([*lines, verdict.case.norm])


def _writable(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)
