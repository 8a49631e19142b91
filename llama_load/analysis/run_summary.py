"""summary.json as it is read: by comparisons, sweeps, searches, the list of runs and the page.

A file may be of any version, damaged, or made by others. So each part is read for itself: what is not as our writer (reports/
result_json.py) makes it is left out, numbers are checked where they are taken, texts are printable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from llama_load.analysis.keys import certain
from llama_load.foreign_files import MOST_JSON_BYTES, read_foreign_json
from llama_load.foreign_text import printable_json
from llama_load.metrics.check import word_of
from llama_load.metrics.check_limits import LIMITS
from llama_load.metrics.verdict_words import AS_FAR_AS_SEEN

SUMMARY = "summary.json"
OURS = "llama_load"
# JSON may hold integers of hundreds of digits, which cannot be written as floats.
MOST_NUMBER = 1e300


class SummaryCheck(msgspec.Struct):
    """A check of the verdict."""

    name: str = ""
    ok: bool = True
    text: str = ""
    stage: str | None = None
    spoils: list[str] = []

    @property
    def word(self) -> str | None:
        """The word where it fails; None where this version does not know the check."""
        limit = LIMITS.get(self.name)
        return None if limit is None else word_of(self.name, self.spoils or limit.spoils)


class SummaryVerdict(msgspec.Struct):
    """The verdict: its gravest word, all words, the sentence for people, the checks."""

    word: str = ""
    words: list[str] = []
    headline: str = ""
    checks: list[SummaryCheck] = []


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A summary."""

    figures: Mapping[str, Any]  # its keys at the top level, those of `vllm bench serve`
    ours: Mapping[str, Any]  # those below llama_load; empty in a result of vLLM's
    stages: Mapping[str, Mapping[str, Any]]  # figures by stage
    verdict: SummaryVerdict | None  # None where there is none that can be read

    @property
    def words(self) -> list[str]:
        """The words of the verdict; empty where it cannot be read."""
        return [] if self.verdict is None else self.verdict.words or list(filter(None, [self.verdict.word]))

    @property
    def shown(self) -> str:
        """The words as a table shows them; "VALID as far as seen" where main checks are not known. Empty where they cannot be
        read."""
        return AS_FAR_AS_SEEN if self.headline.startswith(AS_FAR_AS_SEEN) else ", ".join(self.words)

    @property
    def headline(self) -> str:
        """The verdict as a sentence, else its words; empty where it cannot be read."""
        return (self.verdict.headline if self.verdict is not None else "") or ", ".join(self.words)

    @property
    def sentences(self) -> list[str]:
        """What the run found, as its first screen says it; empty in the summaries of other tools."""
        found = self.ours.get("sentences")
        return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []

    def doubts(self, stage: str = "") -> dict[str, str]:
        """Keys whose number is uncertain, of the run or of a stage, and why."""
        return {key: str(why) for key, why in _mapping((self.stages[stage] if stage else self.ours).get("uncertain")).items()}

    def certain(self, stage: str = "") -> dict[str, Any]:
        """All figures of the run or of a stage, flat; those that are uncertain are None."""
        return certain(self.stages[stage] if stage else {**self.figures, **self.ours}, self.doubts(stage))

    def numbers(self, *keys: str) -> dict[str, float]:
        """These figures of the run, without those that are uncertain or no number."""
        known = self.certain()
        return {key: value for key in keys if is_number(value := known.get(key))}

    def telemetry(self, stage: str = "") -> Mapping[str, Any]:
        """The figures of telemetry of the run or of a stage; empty without telemetry."""
        figures = _mapping(self.ours.get("telemetry"))
        return _mapping(_mapping(figures.get("by_stage")).get(stage)) if stage else figures


def read_summary(folder: Path, most_bytes: int = MOST_JSON_BYTES) -> RunSummary:
    """The summary in a run folder. Raises OSError, and ValueError where it holds no JSON object or is larger than this."""
    return summary_of(read_foreign_json(folder / SUMMARY, most_bytes))


def summary_of(result: Mapping[str, Any]) -> RunSummary:
    """The summary in an object that was read from JSON."""
    plain = printable_json(result)
    ours = _mapping(plain.pop(OURS, None))
    stages = {name: part for name, part in _mapping(ours.get("by_stage")).items() if isinstance(part, dict)}
    try:
        verdict = msgspec.convert(ours.get("verdict"), SummaryVerdict)
    except (msgspec.ValidationError, RecursionError):
        verdict = None
    return RunSummary(plain, ours, stages, verdict)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of JSON is a number that can be shown."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST_NUMBER and math.isfinite(value)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
