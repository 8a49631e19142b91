"""Verdicts as a table, JSON, Markdown and a badge."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from truth import __version__
from truth.finding import Finding, number
from truth.foreign import markdown, printable
from truth.judge import NOT_ASKED, VOID, Verdict, of_others
from truth.usage import Cost

# The last column is the server's own error, p99, ms.
HEADINGS = ("case", "what", "verdict", "", "figure", "right", "seen", "limit", "bound")
SCHEMA = "truth-verdicts/2"
MOST_DOUBTS = 5
WORTH_A_NOTE = 0.1  # cores of others
COLOURS = {"all": "brightgreen", "some": "orange", "none": "red"}
Row = tuple[str, ...]


def rows(verdicts: Sequence[Verdict]) -> list[Row]:
    """A row per figure; case, title and verdict stand in the first of a case."""
    table: list[Row] = []
    for verdict in verdicts:
        mark = "ok" if verdict.passed else "-"
        if not verdict.is_judged:
            mark = "?"
        begin = (verdict.case.id, verdict.case.title, verdict.word, mark)
        bound = number(verdict.bound_ms)
        for finding in _shown(verdict):
            row = (finding.figure, finding.truth, finding.seen, finding.limit)
            table.append((*begin, *row, bound))
            begin = ("", "", "", "")
        for note in _notes(verdict):
            table.append((*begin, note, "", "", "", ""))
            begin = ("", "", "", "")
    return [tuple(map(printable, row)) for row in table]


def _shown(verdict: Verdict) -> list[Finding]:
    return [each for each in verdict.findings if each.level]


def _notes(verdict: Verdict) -> list[str]:
    notes: list[str] = []
    if verdict.void:
        notes.append(f"void: {verdict.void}")
    if verdict.not_asked:
        notes.append(f"not asked: {verdict.not_asked}")
    if verdict.void_runs and verdict.is_judged:
        runs = verdict.runs + verdict.void_runs
        notes.append(f"void: {verdict.void_runs} of {runs} runs")
    if verdict.failed:
        notes.append(f"failed: {one_line(verdict.failed)}")
    if verdict.missing:
        notes.append(f"not reported: {', '.join(verdict.missing)}")
    busiest = max(verdict.costs, key=taken, default=None)
    if busiest and taken(busiest) > WORTH_A_NOTE and not verdict.void:
        notes.append(f"beside it: {of_others(busiest)}")
    if verdict.doubts and verdict.is_judged:
        notes.append(f"the client says: {one_line(verdict.doubts[0].text)}")
    return notes


def taken(cost: Cost) -> float:
    """Cores that neither client nor server had."""
    return cost.other_cores + cost.stolen_cores


def one_line(text: str, most: int = 160) -> str:
    """On one line, cut to `most` characters."""
    words = printable(" ".join(text.split()))
    if len(words) <= most:
        return words
    return words[: most - 1] + "…"


def as_text(verdicts: Sequence[Verdict]) -> str:
    """A table for the terminal, with a summary below."""
    table = [HEADINGS, *rows(verdicts)]
    widths = [0] * len(HEADINGS)
    for row in table:
        last = len(row) - 1
        while last and not row[last]:
            last -= 1
        for place in range(last):
            widths[place] = max(widths[place], len(row[place]))

    lines: list[str] = []
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines, "", summary(verdicts), ""])


def as_markdown(verdicts: Sequence[Verdict]) -> str:
    """The same table for a page or a job's summary."""
    lines = ["| case | | verdict | | figure | right | seen | limit | bound, ms |"]
    lines.append("|---|---|---|---|---|---:|---:|---:|---:|")
    for row in rows(verdicts):
        lines.append(f"| {' | '.join(map(markdown, row))} |")
    return "\n".join([*lines, "", summary(verdicts), ""])


def summary(verdicts: Sequence[Verdict]) -> str:
    """A sentence, and the server's own errors."""
    passed = sum(verdict.passed for verdict in verdicts)
    words = [verdict.word for verdict in verdicts]
    judged = [verdict for verdict in verdicts if verdict.is_judged]
    text = f"{passed} of {len(judged)} cases passed"
    for word in (VOID, NOT_ASKED):
        if word in words:
            text += f", {words.count(word)} {word}"
    bounds = [each.bound_ms for each in verdicts if each.bound_ms is not None]
    late = [verdict.late_ms for verdict in judged]
    runs = max((verdict.runs for verdict in verdicts), default=1)
    if runs > 1:
        text += f", of {runs} runs: median (lowest to highest)"
    if bounds:
        text += f". Bound of the server's instants: {number(max(bounds))} ms (p99, worst case)"
    if late:
        text += f"; it was late by {number(max(late))} ms, which its log has"
    return text + "."


def as_object(
    verdicts: Sequence[Verdict], client: str, version: str = ""
) -> dict[str, Any]:
    """What `--format json` prints and the page reads."""
    return {
        "schema": SCHEMA,
        "client": client,
        "client_version": version,
        "truth_version": __version__,
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "system": platform.platform(terse=True),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "cases": [case_object(verdict) for verdict in verdicts],
    }


def case_object(verdict: Verdict) -> dict[str, Any]:
    """A case with its figures."""
    case = verdict.case
    return {
        "id": case.id,
        "suite": case.suite,
        "title": case.title,
        "norm": case.norm,
        "reason": case.reason,
        "verdict": verdict.word,
        "passed": verdict.passed,
        "void": verdict.void,
        "not_asked": verdict.not_asked,
        "failed": verdict.failed,
        "runs": verdict.runs,
        "void_runs": verdict.void_runs,
        "bound_ms": verdict.bound_ms,
        "late_p99_ms": verdict.late_ms,
        "not_reported": verdict.missing,
        "doubts": [doubt.text for doubt in verdict.doubts[:MOST_DOUBTS]],
        "findings": [_finding_object(each) for each in _shown(verdict)],
        "costs": [asdict(cost) for cost in verdict.costs],
    }


def _finding_object(finding: Finding) -> dict[str, Any]:
    return {
        "figure": finding.figure,
        "right": finding.truth,
        "seen": finding.seen,
        "limit": finding.limit,
        "level": finding.level.word,
        "values": [list(row) for row in finding.repeats or (finding.values,) if row],
    }


def badge(verdicts: Sequence[Verdict]) -> str:
    """A file for shields.io's endpoint."""
    judged = [verdict for verdict in verdicts if verdict.is_judged]
    passed = sum(verdict.passed for verdict in judged)
    if passed == len(judged) and judged:
        colour = COLOURS["all"]
    else:
        colour = COLOURS["some"] if passed else COLOURS["none"]
    value = {
        "schemaVersion": 1,
        "label": "truth",
        "message": f"{passed} of {len(judged)}",
        "color": colour,
    }
    return json.dumps(value) + "\n"
