"""The results of several clients side by side, as the page and the table show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import digits
from typing import Any

SIGNS = {
    "right": "+",
    "admitted": "~",
    "wrong": "x",
    "failed": "!",
    "silent": "-",
    "void": "?",
    "not asked": ".",
}
NOT_JUDGED = ("void", "not asked")
MEANINGS = {
    "right": "within the limits",
    "admitted": "wrong, and the client itself says so",
    "wrong": "and nothing says so",
    "failed": "no result",
    "silent": "not reported",
    "void": "nothing can be concluded",
    "not asked": "the client cannot be given this case",
}
RANKED = ("right", "admitted", "wrong", "failed")  # from the best; others are no levels
# What files of the schema truth-verdicts/1 call them.
FORMER = {"true": "right", "knows": "admitted", "reports": "wrong"}
FORMER_SCHEMA = "truth-verdicts/1"
OF_THE_SERVER = "the "  # their reasons why a case is void begin so, where it was asked
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
        judged = sum(word not in NOT_JUDGED for word in self.words)
        kinds = [
            f"{self.words.count(word)} {word}" for word in SIGNS if word in self.words
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
        is_former = result.get("schema") == FORMER_SCHEMA
        for case in result["cases"]:
            cases[case["id"]] = _as_now(case) if is_former else case
    runs_on = [f"{_from_to(times)}, {system}" for system, times in dates.items()]
    return Column(title, runs_on, cases)


def _as_now(case: CaseResult) -> CaseResult:
    """A case of an earlier file in the words of today."""
    findings: list[Mapping[str, Any]] = []
    for each in case["findings"]:
        level = FORMER.get(each["level"], each["level"])
        findings.append({**each, "level": level})

    now = {**case, "findings": findings, "not_asked": ""}
    now["verdict"] = FORMER.get(case["verdict"], case["verdict"])
    if case["void"] and not case["void"].startswith(OF_THE_SERVER):
        now |= {"verdict": "not asked", "void": "", "not_asked": case["void"]}
    return now


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
    return [cases[number] for number in sorted(cases, key=parts_of)]


def parts_of(number: str) -> tuple[str, int]:
    """Its letters and its number, so that T2 comes before T10."""
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
    words = list(reversed(RANKED))
    if other is None or other["verdict"] not in words or case["verdict"] not in words:
        return False
    return words.index(other["verdict"]) > words.index(case["verdict"])
