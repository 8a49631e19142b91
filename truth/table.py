"""The results of several clients as Markdown: a verdict per case and client, and how far their TTFT
is off."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from truth.columns import (
    MEANINGS,
    SIGNS,
    CaseResult,
    Column,
    all_cases,
    better_than_first,
    parts_of,
)
from truth.foreign import markdown, printable
from truth.repeats import interval
from truth.report import one_line
from truth.rules.times import DISTRIBUTIONS, error_of

TITLE = "# What load generators report, against a server's log"
LINE = 118  # characters of a line of Markdown
TTFT = error_of("ttft")
OF_TTFT = (
    "P99 of |client - server| in TTFT, ms: the median of the runs, and the lowest and highest of"
    " them. With a star requests cannot be matched, and the distributions' p99 are compared."
)


def table(columns: Sequence[Column]) -> str:
    """Verdicts, errors of TTFT where a column has them, and where and when it was run."""
    cases = all_cases(columns)
    meanings = ". ".join(f"{word}: {text}" for word, text in MEANINGS.items())
    lines = [TITLE, "", *matrix(columns), "", *wrapped(better_than_first(columns)), ""]
    for column in columns:
        lines += wrapped(f"- {column.summary}")
    lines += ["", *_head("case", columns)]
    for case in cases:
        lines.append(_row(case, [_word(column, case) for column in columns]))
    lines += [
        "",
        *wrapped(f"{meanings}. A blank was not run."),
        "",
        *_reasons(columns),
        "",
    ]

    timed = [case for case in cases if _errors(case)]
    if timed:
        lines += [*wrapped(OF_TTFT), "", *_head("case", columns)]
    for case in timed:
        lines.append(_row(case, [_error(column, case) for column in columns]))

    lines.append("")
    for column in columns:
        lines += wrapped(f"- {column.title}: {'; '.join(column.runs_on)}")
    return "\n".join([*lines, ""])


def matrix(columns: Sequence[Column]) -> list[str]:
    """A row per client and a sign per case, as text, with the signs' words."""
    cases = all_cases(columns)
    groups = [
        list(group) for _, group in groupby(cases, lambda case: parts_of(case["id"])[0])
    ]
    width = max(len(column.title) for column in columns)
    letters = [parts_of(group[0]["id"])[0].ljust(len(group)) for group in groups]
    units = [
        "".join(str(parts_of(case["id"])[1] % 10) for case in group) for group in groups
    ]
    lines = ["```text", f"{'':{width}}  {' '.join(letters)}".rstrip()]
    lines.append(f"{'':{width}}  {' '.join(units)}")
    for column in columns:
        signs = ["".join(_sign(column, case) for case in group) for group in groups]
        line = f"{printable(column.title):{width}}  {' '.join(signs)}"
        lines.append(line.rstrip())
    meanings = "   ".join(f"{sign} {word}" for word, sign in SIGNS.items())
    return [*lines, "", meanings, "```"]


def _sign(column: Column, case: CaseResult) -> str:
    its = column.cases.get(case["id"])
    return SIGNS.get(its["verdict"], " ") if its else " "


def wrapped(text: str) -> list[str]:
    """As lines of Markdown, which break no name at its hyphen; those of an item are indented."""
    indent = "  " if text.startswith("- ") else ""
    mark = "- " if indent else ""
    shown = mark + markdown(text.removeprefix("- "))
    return textwrap.wrap(
        shown,
        LINE,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _head(first: str, columns: Sequence[Column]) -> list[str]:
    titles = [markdown(column.title) for column in columns]
    return [f"| {' | '.join([first, *titles])} |", "|---" * (len(titles) + 1) + "|"]


def _row(case: CaseResult, cells: Sequence[str]) -> str:
    title = markdown(f"{case['id']} {case['title']}")
    return f"| {' | '.join([title, *cells])} |"


def _word(column: Column, case: CaseResult) -> str:
    its = column.cases.get(case["id"])
    return markdown(its["verdict"]) if its else ""


def _reasons(columns: Sequence[Column]) -> list[str]:
    """Why cases are void, not asked or failed: a line per client and reason."""
    numbers: dict[tuple[str, str], list[str]] = {}
    for column in columns:
        for number_of_case, case in column.cases.items():
            reason = one_line(case["void"] or case["not_asked"] or case["failed"])
            if reason:
                same = numbers.setdefault((column.title, reason), [])
                same.append(number_of_case)

    lines: list[str] = []
    for (title, reason), cases in numbers.items():
        lines += wrapped(f"- {title}, {', '.join(cases)}: {reason}")
    return lines


def _error(column: Column, case: CaseResult) -> str:
    its = column.cases.get(case["id"])
    found = _errors(its) if its else []
    if not its or not found or its["void"]:
        return ""
    return interval(found) + _star(its)


def _errors(case: CaseResult) -> list[float]:
    """P99 of the error of TTFT in each run, ms; none from a file without values."""
    return [
        float(values[1]) for each in _of_ttft(case) for values in each.get("values", ())
    ]


def _star(case: CaseResult) -> str:
    return (
        "\\*" if any(DISTRIBUTIONS in each["seen"] for each in _of_ttft(case)) else ""
    )


def _of_ttft(case: CaseResult) -> list[dict[str, Any]]:
    return [each for each in case["findings"] if each["figure"] == TTFT]
