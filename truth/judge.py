"""A case's verdict: the findings of its rule, the level, or why nothing can be concluded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from truth.cases import Case
from truth.finding import LEVELS, Finding, Level, number
from truth.log import Log
from truth.problem import Problem
from truth.result import Doubt, Result
from truth.rules import OF_CLOCK, RULES
from truth.rules.accounting import unaccounted
from truth.server.shapes import CHAT_ONLY
from truth.usage import Cost

CHAT = "/chat/completions"
VOID, NOT_ASKED = "void", "not asked"
MOST_OTHERS = 0.1  # of the machine's cores: a fifth of one of two
HUNG = "did not end within"  # so begins why a client that did not end has no result


@dataclass(frozen=True, slots=True)
class Verdict:
    """`void`: why nothing is concluded. `not_asked`: why the client cannot be given this case.
    `failed`: why the client has no result. With none of them, `level` is the lowest of the figures
    that the client reports, SILENT without any. `bound_ms` and `late_ms` are the server's own
    errors, p99. `runs` were judged, `void_runs` were void. `costs`: of each run that could be
    counted."""

    case: Case
    findings: Sequence[Finding] = ()
    level: Level = Level.SILENT
    void: str = ""
    not_asked: str = ""
    failed: str = ""
    bound_ms: float | None = None
    late_ms: float = 0.0
    doubts: Sequence[Doubt] = ()
    runs: int = 1
    void_runs: int = 0
    costs: Sequence[Cost] = ()

    @property
    def word(self) -> str:
        """The verdict in a word."""
        if self.void:
            return VOID
        if self.not_asked:
            return NOT_ASKED
        if self.failed:
            return "failed"
        return self.level.word

    @property
    def is_judged(self) -> bool:
        """Whether it says anything about the client."""
        return not self.void and not self.not_asked

    @property
    def passed(self) -> bool:
        """Whether the level is enough for this case."""
        if self.failed or not self.is_judged:
            return False
        return self.level >= LEVELS[self.case.passes]

    @property
    def missing(self) -> list[str]:
        """Figures that the client does not report."""
        return [each.figure for each in self.findings if each.level == Level.SILENT]


def judge(case: Case, log: Log, result: Result) -> Verdict:
    """Problem: the case names a rule that does not exist."""
    if case.rule not in RULES:
        raise Problem(f"case {case.id}: there is no rule {case.rule!r}")

    not_asked = not_asked_by(case, log)
    findings = RULES[case.rule](case, log, result)
    if case.rule in OF_CLOCK:
        findings = [replace(each, of_clock=True) for each in findings]
    findings += unaccounted(case, log, result)
    levels = [each.level for each in findings if each.level != Level.SILENT]
    return Verdict(
        case=case,
        findings=findings,
        level=min(levels, default=Level.SILENT),
        void="" if not_asked else void_reason(case, log),
        not_asked=not_asked,
        bound_ms=log.bound_ms,
        late_ms=log.late_p99_ms,
        doubts=result.doubts,
    )


def beside_others(verdict: Verdict, cost: Cost | None, cores: int) -> Verdict:
    """Void where it is not passed for what a neighbour can spoil, figures of the clock or an end in
    time, and others took more of the machine than `MOST_OTHERS`. What was right in spite of them is
    right, and no neighbour changes a count."""
    if cost is None or verdict.passed or not verdict.is_judged:
        return verdict
    share = (cost.other_cores + cost.stolen_cores) / cores
    if share <= MOST_OTHERS or not _may_be_theirs(verdict):
        return verdict
    reason = f"{share:.0%} of the machine's cores went to others ({of_others(cost)})"
    limit = f"above {MOST_OTHERS:.0%}"
    return replace(verdict, void=f"{reason}, {limit}: run it on a quiet machine")


def _may_be_theirs(verdict: Verdict) -> bool:
    if verdict.failed:
        return verdict.failed.startswith(HUNG)
    enough = LEVELS[verdict.case.passes]
    low = [each for each in verdict.findings if Level.SILENT < each.level < enough]
    return bool(low) and all(each.of_clock for each in low)


def of_others(cost: Cost) -> str:
    """What happened beside the client, in words."""
    text = f"other programs used {number(cost.other_cores)} cores"
    text += f", {number(cost.stolen_cores)} were stolen"
    if cost.wait_ratio is not None:
        text += f"; a program waited for a core {cost.wait_ratio:.0%} of the time"
    return text


def void_reason(case: Case, log: Log) -> str:
    """Why the log says nothing about the client; empty if it does."""
    if not log.server:
        return "the log has no line about the server: it did not end properly"
    if log.late_p99_ms > case.late_ms:
        late = number(log.late_p99_ms)
        return f"the server was late: p99 is {late} ms, above {number(case.late_ms)}"
    if log.bound_ms is not None and log.bound_ms > case.late_ms:
        bound = number(log.bound_ms)
        return f"the log's instants may be wrong by {bound} ms, above {number(case.late_ms)}"
    if not log.entries:
        return "the server received no request"
    return ""


def not_asked_by(case: Case, log: Log) -> str:
    """Why the client cannot have met what the case is about; empty if it has."""
    if not log.entries or case.server.shape not in CHAT_ONLY:
        return ""
    if any(entry.path.endswith(CHAT) for entry in log.entries):
        return ""
    return "this is a case of the chat API, and the client uses the completions API"
