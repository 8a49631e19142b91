"""The worst findings of a run, a sentence each."""

from __future__ import annotations

from collections.abc import Sequence

from truth.finding import Finding, Level
from truth.judge import Verdict
from truth.report import one_line

MOST = 3
# What is wrong in the first spoils all figures; what is wrong in the last, one of them.
SUITES = (
    "faults",
    "dialects",
    "counts",
    "left-out",
    "workload",
    "concurrency",
    "arrivals",
    "capacity",
    "timing",
    "saturation",
    "percentiles",
)


def worst(verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """The numbers of at most three cases that are not passed, and what is wrong with each."""
    failed = [each for each in verdicts if each.is_judged and not each.passed]
    failed.sort(key=_severity)
    return [(each.case.id, _sentence(each)) for each in failed[:MOST]]


def _severity(verdict: Verdict) -> tuple[bool, bool, int]:
    """A client without a result first, one that reports nothing of it last."""
    suite = verdict.case.suite
    place = SUITES.index(suite) if suite in SUITES else len(SUITES)
    return not verdict.failed, verdict.level == Level.SILENT, place


def _sentence(verdict: Verdict) -> str:
    case = f"{verdict.case.id} ({verdict.case.title})"
    if verdict.failed:
        return f"{case}: no result, {one_line(verdict.failed)}"
    if verdict.level == Level.SILENT:
        return f"{case}: not reported is {', '.join(verdict.missing)}."
    judged = [each for each in verdict.findings if each.level != Level.SILENT]
    return f"{case}: {_said(min(judged, key=lambda each: each.level))}."


def _said(finding: Finding) -> str:
    text = f"{finding.figure} is {finding.seen}, right is {finding.truth}"
    return f"{text}, limit {finding.limit}" if finding.limit else text
