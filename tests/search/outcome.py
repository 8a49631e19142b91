"""A case is played twice, with and without its flaws; what is printed is held against the truth,
and the verdict against both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_load.analysis.results.results import analyze
from tests.search.case import Case
from tests.search.changes import CHANGES, effects_of
from tests.search.client import run_of
from tests.search.loop import Loop
from tests.search.truth import (
    WRONG,
    Moved,
    moved_figures,
    printed_figures,
    true_figures,
)

# What becomes of a case without counterexample: nothing to name; a flaw that moved figures, all
# marked; one that moved none; one of which the verdict says that it could not be seen ("VALID as
# far as seen", by the check that should have named it).
CLEAN, NAMED, UNMOVED, UNSEEN = "clean", "named", "unmoved", "said to be unseen"
# Counterexamples: a flaw is not named; it is, but figures that it moved are not marked; others are
# named; a clean plan is doubted, or a figure of it is wrong.
MISSED, UNMARKED, MISNAMED = (
    "missed",
    "named, figures left unmarked",
    "named by another cause",
)
DOUBTED, WRONG_THOUGH_CLEAN = "doubted", "wrong though clean"
COUNTEREXAMPLES = (MISSED, UNMARKED, MISNAMED, DOUBTED, WRONG_THOUGH_CLEAN)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the verdict said of a case, and what was wrong in the figures, as (printed, true)."""

    case: Case
    kind: str
    words: Sequence[str]
    failed: Mapping[str, str]  # checks that are not ok, with their sentences
    open_questions: Mapping[str, str]  # main checks that are unknown
    moved: Moved

    @property
    def is_counterexample(self) -> bool:
        """Whether the verdict was wrong."""
        return self.kind in COUNTEREXAMPLES

    @property
    def story(self) -> str:
        """The case, what was printed and what is true, and what the verdict said."""
        lines = [f"{self.kind.upper()}: {', '.join(self.words)}", self.case.story]
        expected = {
            name for change in self.case.changes for name in CHANGES[change.name].checks
        }
        if expected:
            lines.append(f"  should be named by: {', '.join(sorted(expected))}")
        lines += [
            f"  {name}: printed {printed:.6g}, true {true:.6g}"
            for name, (printed, true) in list(self.moved.items())[:6]
        ]
        lines += [f"  ✗ {name}: {text}" for name, text in self.failed.items()]
        lines += [f"  ? {name}: {text}" for name, text in self.open_questions.items()]
        return "\n".join(lines)


def judged(case: Case, *, wrong: float = WRONG) -> Outcome:
    """Play a case and judge the verdict on it; a figure that is off by more than `wrong` has
    moved."""
    flaws = [change for change in case.changes if CHANGES[change.name].is_flaw]
    effects = effects_of(case, flaws=True)
    played = Loop(case, effects).play()
    results = analyze(run_of(case, effects, played))
    true = true_figures(
        case,
        Loop(case, effects_of(case, flaws=False), reads=False).play()
        if flaws
        else played,
    )
    plain, marked = printed_figures(case, results)
    found = _Found(
        failed={
            check.name: check.sentence
            for check in results.verdict.checks
            if not check.ok
        },
        open_questions={
            check.name: check.text
            for check in results.verdict.checks
            if check.is_main and not check.passed and check.ok
        },
        unmarked=moved_figures(plain, true, wrong),
        marked=moved_figures(marked, true, wrong),
    )
    kind = _kind_of_flawed(case, found) if flaws else _kind_of_clean(case, found)
    return Outcome(
        case,
        kind,
        results.verdict.words,
        found.failed,
        found.open_questions,
        found.unmarked or found.marked,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """What the verdict says of a case, and which figures moved."""

    failed: Mapping[str, str]
    open_questions: Mapping[str, str]
    unmarked: Moved
    marked: Moved


def _checks(case: Case, *, of_flaws: bool) -> set[str]:
    kinds = [CHANGES[change.name] for change in case.changes]
    return {name for kind in kinds if kind.is_flaw == of_flaws for name in kind.checks}


def _kind_of_clean(case: Case, found: _Found) -> str:
    if set(found.failed) - _checks(case, of_flaws=False):
        return DOUBTED
    return WRONG_THOUGH_CLEAN if found.unmarked else CLEAN


def _kind_of_flawed(case: Case, found: _Found) -> str:
    flaws = [
        CHANGES[change.name] for change in case.changes if CHANGES[change.name].is_flaw
    ]
    expected, tolerated = _checks(case, of_flaws=True), _checks(case, of_flaws=False)
    others = set(found.failed) - expected - tolerated
    unnamed = [flaw for flaw in flaws if not set(flaw.checks) & set(found.failed)]
    is_unseen = bool(unnamed) and all(
        set(flaw.checks) & set(found.open_questions) for flaw in unnamed
    )
    if len(unnamed) < len(flaws):
        if not found.unmarked:
            return NAMED if found.marked else UNMOVED
        return UNSEEN if is_unseen else UNMARKED
    if others:
        return MISNAMED
    if not found.unmarked:
        return UNMOVED
    return UNSEEN if is_unseen else MISSED
