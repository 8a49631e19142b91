"""summary.json as it is read: by comparisons, sweeps, searches, the list of runs and the page.

A file may be of any version, damaged, or made by others. So each part is read for itself: what is
not as our writer (analysis/reports/result_json.py) makes it is left out, numbers are checked where
they are taken, texts are printable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from llama_load.analysis.checks.machine import OF_OTHERS
from llama_load.analysis.figures.check import word_of
from llama_load.analysis.figures.check_limits import LIMITS, OTHERS_WAY_ON
from llama_load.analysis.figures.spoiled import ALL, are_whole, failed_in, spoiled_keys
from llama_load.analysis.results.keys import certain
from llama_load.outside.foreign_files import MOST_JSON_BYTES, read_foreign_json
from llama_load.outside.foreign_text import printable, printable_json
from llama_load.run_folder.vocabulary.bound import Bound
from llama_load.run_folder.vocabulary.thresholds import percentile_of
from llama_load.run_folder.vocabulary.verdict_words import AS_FAR_AS_SEEN, VALID, WORDS

SUMMARY = "summary.json"
OURS = "llama_load"
# JSON may hold integers of hundreds of digits, which cannot be written as floats.
MOST_NUMBER = 1e300


class SummaryCheck(msgspec.Struct):
    """A check of the verdict."""

    name: str = ""
    ok: bool = True
    value: object = None  # None: not known
    text: str = ""
    stage: str | None = None
    spoils: list[str] = []
    bound: Bound | None = None

    @property
    def word(self) -> str | None:
        """The word where it fails; None where this version does not know the check."""
        limit = LIMITS.get(self.name)
        if limit is None:
            return None
        return word_of(self.name, self.spoils or limit.spoils)


class SummaryVerdict(msgspec.Struct):
    """The verdict: its gravest word, all words, the sentence for people, the checks."""

    word: str = ""
    words: list[str] = []
    headline: str = ""
    checks: list[SummaryCheck] = []

    def of_stage(self, stage: str) -> SummaryVerdict:
        """The verdict on a stage, with the failed checks about it, the gravest first, alone."""
        failed = []
        for check in failed_in(self.checks, stage):
            if check.word is not None:
                failed.append(check)
        spoken = {check.word for check in failed}
        words = [word for word in WORDS if word in spoken] or [VALID]
        headline = words[0]
        if failed:
            headline += f": {failed[0].text}"
        return SummaryVerdict(words[0], words, headline, failed)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A summary.

    `figures`: its keys at the top level, those of `vllm bench serve`; `ours`: those below
    llama_load, empty in a result of vLLM's; `stages`: figures by stage; `verdict`: None where there
    is none that can be read.
    """

    figures: Mapping[str, Any]
    ours: Mapping[str, Any]
    stages: Mapping[str, Mapping[str, Any]]
    verdict: SummaryVerdict | None

    @property
    def words(self) -> list[str]:
        """The words of the verdict; empty where it cannot be read."""
        verdict = self.verdict
        if verdict is None:
            return []
        if verdict.words:
            return verdict.words
        if verdict.word:
            return [verdict.word]
        return []

    @property
    def shown(self) -> str:
        """The words as a table shows them; empty where they cannot be read.

        "VALID as far as seen" where main checks are not known.
        """
        if self.headline.startswith(AS_FAR_AS_SEEN):
            return AS_FAR_AS_SEEN
        return ", ".join(self.words)

    @property
    def headline(self) -> str:
        """The verdict as a sentence, else its words; empty where it cannot be read."""
        if self.verdict is not None and self.verdict.headline:
            return self.verdict.headline
        return ", ".join(self.words)

    @property
    def disturbed(self) -> str:
        """What other programs did to the server, if a check of that failed, and what to do about
        it; else empty."""
        if self.verdict is None:
            return ""

        for check in self.verdict.checks:
            if check.name in OF_OTHERS and not check.ok:
                return f"{check.text}; {OTHERS_WAY_ON}"

        return ""

    @property
    def knows_others(self) -> bool:
        """Whether the run saw what other programs used of the server's machine."""
        if self.verdict is None:
            return False
        return any(
            check.name in OF_OTHERS and check.value is not None
            for check in self.verdict.checks
        )

    @property
    def sentences(self) -> list[str]:
        """What the run found, as its first screen says it; empty in summaries of other tools."""
        found = self.ours.get("sentences")
        if not isinstance(found, list):
            return []
        return [text for text in found if isinstance(text, str)]

    def judged_in(self, stage: str) -> RunSummary:
        """The same summary with the verdict on a stage in place of the run's."""
        if self.verdict is None or not stage:
            return self
        return replace(self, verdict=self.verdict.of_stage(stage))

    def doubts(self, stage: str = "") -> dict[str, str]:
        """Keys whose number is uncertain, of the run or of a stage, and why."""
        figures = self.stages[stage] if stage else self.ours
        reasons = _mapping(figures.get("uncertain"))
        return {key: str(why) for key, why in reasons.items()}

    def spoiled(self, stage: str = "") -> dict[str, float]:
        """The uncertain numbers of the run or of a stage that were measured and that a failed check
        spoils: reports show them, with a mark."""
        if self.verdict is None:
            return {}
        failed = {check.text for check in self.verdict.checks if not check.ok}
        figures = self.stages[stage] if stage else {**self.figures, **self.ours}
        spoiled = {}
        for key, why in self.doubts(stage).items():
            value = figures.get(key)
            if why in failed and is_number(value):
                spoiled[key] = value

        return spoiled

    def bound(self, key: str) -> Bound | None:
        """By how much this figure of the run is off at most, by all failed checks that spoil it;
        None where one of them does not know it."""
        failed = []
        if self.verdict is not None:
            failed = [check for check in self.verdict.checks if not check.ok]
        if not {*self.words} <= {VALID, *(check.word for check in failed)}:
            return None  # its checks are not those that made the words

        percentile = percentile_of(key)
        percentiles = [] if percentile is None else [percentile[1]]
        bound = Bound()
        for check in failed:
            spoils = check.spoils or (ALL,)
            if not are_whole(spoils) and key not in spoiled_keys(spoils, percentiles):
                continue
            if check.bound is None:
                return None
            bound += check.bound

        return bound

    def certain(self, stage: str = "") -> dict[str, Any]:
        """All figures of the run or of a stage, flat; those that are uncertain are None."""
        figures = self.stages[stage] if stage else {**self.figures, **self.ours}
        return certain(figures, self.doubts(stage))

    def numbers(self, *keys: str) -> dict[str, float]:
        """These figures of the run, without those that are uncertain or no number."""
        known = self.certain()
        numbers = {}
        for key in keys:
            value = known.get(key)
            if is_number(value):
                numbers[key] = value

        return numbers

    def telemetry(self, stage: str = "") -> Mapping[str, Any]:
        """The figures of telemetry of the run or of a stage; empty without telemetry."""
        figures = _mapping(self.ours.get("telemetry"))
        if not stage:
            return figures
        return _mapping(_mapping(figures.get("by_stage")).get(stage))


def read_summary(folder: Path, most_bytes: int = MOST_JSON_BYTES) -> RunSummary:
    """The summary in a run folder.

    Raises OSError, and ValueError where it holds no JSON object or is larger than this.
    """
    return summary_of(read_foreign_json(folder / SUMMARY, most_bytes, inside=folder))


def summary_of(result: Mapping[str, Any]) -> RunSummary:
    """The summary in an object that was read from JSON."""
    plain = printable_json(result)
    ours = _mapping(plain.pop(OURS, None))
    stages = _stages_of(ours)

    try:
        verdict = msgspec.convert(ours.get("verdict"), SummaryVerdict)
    except (msgspec.ValidationError, RecursionError):
        verdict = None

    return RunSummary(plain, ours, stages, verdict)


def stage_names(result: Mapping[str, Any]) -> list[str]:
    """The names of the stages of a summary that was read from JSON; all else is left unread."""
    ours = _mapping(result.get(OURS))
    printed = [printable(str(name)) for name in _stages_of(ours)]
    return list(dict.fromkeys(printed))


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of JSON is a number that can be shown."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) < MOST_NUMBER and math.isfinite(value)


def _stages_of(ours: Mapping[str, Any]) -> dict[str, Any]:
    stages = {}
    for name, part in _mapping(ours.get("by_stage")).items():
        if isinstance(part, dict):
            stages[name] = part
    return stages


def _mapping(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {}
