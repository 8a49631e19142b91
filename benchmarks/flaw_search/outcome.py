"""A case is played twice, with and without its flaws; what is printed is held against the truth, and the verdict against both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.flaw_search.case import Case
from benchmarks.flaw_search.changes import CHANGES, effects_of
from benchmarks.flaw_search.client import run_of
from benchmarks.flaw_search.loop import Loop
from benchmarks.flaw_search.truth import WRONG, moved_figures, printed_figures, true_figures
from llama_load.analysis.results import analyze
from llama_load.metrics.verdict_words import BLURRED

# What becomes of a case: nothing to name, and nothing named; figures moved and named; and the four kinds of counterexamples.
CLEAN, NAMED, UNMOVED = "clean", "named", "unmoved"
MISSED, DOUBTED, MISNAMED, WRONG_THOUGH_CLEAN = "missed", "doubted", "named by another cause", "wrong though clean"
COUNTEREXAMPLES = (MISSED, DOUBTED, MISNAMED, WRONG_THOUGH_CLEAN)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the verdict said of a case, and what was wrong in the figures, as (printed, true)."""

    case: Case
    kind: str
    words: Sequence[str]
    failed: Mapping[str, str]  # checks that are not ok, with their sentences
    moved: Mapping[str, tuple[float, float]]

    @property
    def is_counterexample(self) -> bool:
        """Whether the verdict was wrong."""
        return self.kind in COUNTEREXAMPLES

    @property
    def story(self) -> str:
        """The case, what was printed and what is true, and what the verdict said."""
        lines = [f"{self.kind.upper()}: {', '.join(self.words)}", self.case.story]
        expected = {name for change in self.case.changes for name in CHANGES[change.name].checks}
        if expected:
            lines.append(f"  should be named by: {', '.join(sorted(expected))}")
        lines += [f"  {name}: printed {printed:.6g}, true {true:.6g}" for name, (printed, true) in list(self.moved.items())[:6]]
        lines += [f"  ✗ {name}: {text}" for name, text in self.failed.items()]
        return "\n".join(lines)


def judged(case: Case, *, wrong: float = WRONG) -> Outcome:
    """Play a case and judge the verdict on it; a figure that is off by more than `wrong` has moved."""
    flaws = [change for change in case.changes if CHANGES[change.name].is_flaw]
    effects = effects_of(case, flaws=True)
    played = Loop(case, effects).play()
    results = analyze(run_of(case, effects, played))
    true = true_figures(case, Loop(case, effects_of(case, flaws=False), reads=False).play() if flaws else played)
    printed = printed_figures(case, results)
    checks = [check for check in results.verdict.checks if not check.ok]
    if any(check.word == BLURRED for check in checks):
        printed = {name: value for name, value in printed.items() if not name.endswith(" itl")}
    moved = moved_figures(printed, true, wrong)
    failed = {check.name: check.sentence for check in checks}
    return Outcome(case, _kind(case, failed, moved, has_flaws=bool(flaws)), results.verdict.words, failed, moved)


def _kind(case: Case, failed: Mapping[str, str], moved: Mapping[str, object], *, has_flaws: bool) -> str:
    names = {name for change in case.changes for name in CHANGES[change.name].checks}
    tolerated = {name for change in case.changes if not CHANGES[change.name].is_flaw for name in CHANGES[change.name].checks}
    if not has_flaws:
        if set(failed) - tolerated:
            return DOUBTED
        return WRONG_THOUGH_CLEAN if moved and not failed else CLEAN
    if names & set(failed) - tolerated or (names & set(failed) and not moved):
        return NAMED if moved else UNMOVED
    if set(failed) - tolerated:
        return MISNAMED
    return MISSED if moved else UNMOVED
