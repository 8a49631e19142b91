"""--same-answer: whether prompts get the same answer under load as alone, at temperature 0.

The first stage sends each prompt alone, later stages send the same prompts under load. Sums of
floating-point numbers depend on what is computed in one batch, so a few answers may differ on a
sound server; races and mixed-up caches make many differ, or whole answers instead of single words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llama_load.analysis.topics.topic import TopicInput
from llama_load.run_folder.observed.records import Records

MOST_EXAMPLES = 5
_SHOWN_CHARS = 40


@dataclass(frozen=True, slots=True)
class DifferingAnswer:
    """A prompt whose answer under load differs."""

    alone_id: str  # the requests' ids
    loaded_id: str
    stage: int
    alone_chars: int  # of both answers
    loaded_chars: int
    # of the first difference, in characters; this and the texts with --save-texts
    place: int | None = None
    alone_text: str | None = None  # both answers from there
    loaded_text: str | None = None


@dataclass(frozen=True, slots=True)
class SameAnswers:
    """Answers under load, compared with the answer to the same prompt alone."""

    compared: int
    differing: int
    unstable: int  # prompts that got different answers even alone
    examples: list[DifferingAnswer]

    @property
    def ratio(self) -> float | None:
        """Differing / compared, 0 to 1; None if nothing could be compared."""
        return self.differing / self.compared if self.compared else None


def same_answers(given: TopicInput) -> SameAnswers | None:
    """The comparison of a run with --same-answer; None for others."""
    if not given.run.manifest.same_answer:
        return None
    return compared_answers(given.measured)


def compared_answers(measured: Records) -> SameAnswers:
    """Compare the answers of all later stages with those of the first (number 0).

    Failed requests are left out.
    """
    ok = measured.ok()
    names = (
        "prompt_sha256",
        "output_sha256",
        "stage",
        "request_id",
        "output_chars",
        "output_text",
    )
    rows = ok.select(names).to_pylist()
    alone: dict[str, dict[str, Any]] = {}
    unstable = set()
    for row in rows:
        if row["stage"] == 0:
            first = alone.setdefault(row["prompt_sha256"], row)
            if first["output_sha256"] != row["output_sha256"]:
                unstable.add(row["prompt_sha256"])
    pairs = [
        (alone[row["prompt_sha256"]], row)
        for row in rows
        if row["stage"] != 0 and row["prompt_sha256"] in alone
    ]
    differing = [
        (before, row)
        for before, row in pairs
        if before["output_sha256"] != row["output_sha256"]
    ]
    return SameAnswers(
        len(pairs),
        len(differing),
        len(unstable),
        [_example(*pair) for pair in differing[:MOST_EXAMPLES]],
    )


def _example(alone: dict[str, Any], loaded: dict[str, Any]) -> DifferingAnswer:
    about = (
        alone["request_id"],
        loaded["request_id"],
        loaded["stage"],
        alone["output_chars"],
        loaded["output_chars"],
    )
    one = alone["output_text"]
    other = loaded["output_text"]
    if one is None or other is None:
        return DifferingAnswer(*about)

    place = _common(one, other)

    return DifferingAnswer(
        *about,
        place,
        one[place : place + _SHOWN_CHARS],
        other[place : place + _SHOWN_CHARS],
    )


def _common(one: str, other: str) -> int:
    """How many characters they begin with in common."""
    for place, (mine, its) in enumerate(zip(one, other, strict=False)):
        if mine != its:
            return place
    return min(len(one), len(other))
