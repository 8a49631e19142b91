"""The results of several clients side by side, as the page and the table show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import digits
from typing import Any

WORDS = ("true", "knows", "reports", "silent", "failed", "void")
WORDS_MEAN = (
    "true: right within the limits. knows: not, but the client says so. reports: wrong, and nothing"
    " says so. silent: not reported. void: nothing can be concluded."
)
LEVELS = ("true", "knows", "reports", "failed")  # from the best; others are no levels
CaseResult = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A client of one version. `runs_on`: each system with its cores, and when it was run there.
    `cases`: as `truth.report.case_object` makes them, by their numbers."""

    title: str
    runs_on: Sequence[str]
    cases: Mapping[str, CaseResult]

    @property
    def words(self) -> list[str]:
        """The verdict of each case."""
        return [case["verdict"] for case in self.cases.values()]

    @property
    def summary(self) -> str:
        """How many of its judged cases passed, and its verdicts by kind."""
        passed = sum(case["passed"] for case in self.cases.values())
        judged = len(self.words) - self.words.count("void")
        kinds = [
            f"{self.words.count(word)} {word}" for word in WORDS if word in self.words
        ]
        return f"{self.title}: {passed} of {judged} passed ({', '.join(kinds)})"


def columns_of(results: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Objects of `truth.report.as_object`, files of --save: a column per client and version, in the
    order of their first files. A case that several files of a client have is that of the newest."""
    files: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        title = f"{result['client']} {result['client_version']}".strip()
        files.setdefault(title, []).append(result)
    return [_column(title, of_a_client) for title, of_a_client in files.items()]


def _column(title: str, results: Sequence[Mapping[str, Any]]) -> Column:
    cases: dict[str, CaseResult] = {}
    dates: dict[str, list[str]] = {}
    for result in results:
        version = result["truth_version"]
        system = f"{result['system']}, {result['cores']} cores, truth {version}"
        dates.setdefault(system, []).append(str(result["date"]))
    for result in sorted(results, key=lambda each: str(each["date"])):
        cases |= {case["id"]: case for case in result["cases"]}
    runs_on = [f"{_from_to(times)}, {system}" for system, times in dates.items()]
    return Column(title, runs_on, cases)


def _from_to(dates: Sequence[str]) -> str:
    first = min(dates)
    last = max(dates)
    return first if first == last else f"{first} to {last}"


def all_cases(columns: Sequence[Column]) -> list[CaseResult]:
    """Each case that a column has, from the first that has it, in the order of their numbers."""
    cases: dict[str, CaseResult] = {}
    for column in columns:
        for number, case in column.cases.items():
            cases.setdefault(number, case)
    return [cases[number] for number in sorted(cases, key=_place)]


def _place(number: str) -> tuple[str, int]:
    """T2 before T10."""
    letters = number.rstrip(digits)
    rest = number[len(letters) :]
    return letters, int(rest or 0)


def better_than_first(columns: Sequence[Column]) -> str:
    """The cases in which another client has a higher level than that of the first column."""
    first = columns[0]
    parts: list[str] = []
    for number, case in first.cases.items():
        others = [
            column.title
            for column in columns[1:]
            if _is_better(column.cases.get(number), case)
        ]
        if others:
            parts.append(f"{number} {case['title']} ({', '.join(others)})")
    where = "; ".join(parts) or "in no case"
    return f"Better than {first.title}: {where}."


def _is_better(other: CaseResult | None, case: CaseResult) -> bool:
    words = list(reversed(LEVELS))
    if other is None or other["verdict"] not in words or case["verdict"] not in words:
        return False
    return words.index(other["verdict"]) > words.index(case["verdict"])
