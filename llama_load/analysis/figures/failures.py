"""The failures of a run by class: counts, first and last time, examples, and what to change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.failure_hints import FailedRequests, hint, meaning
from llama_load.ground.units import NS_PER_S
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.observed.records import Records

MOST_EXAMPLES = 3
LONGEST_EXAMPLE = 200


@dataclass(frozen=True, slots=True)
class FailureClass:
    """A failure class."""

    kind: str
    meaning: str
    count: int  # of its requests
    first_s: float  # when the first failed, after the first request began
    last_s: float  # when the last failed
    examples: list[str]  # the most frequent messages, shortened
    hint: str  # what to change; empty: unknown


def failure_classes(evidence: Evidence) -> list[FailureClass]:
    """The classes of all failed requests of this evidence, the most frequent first."""
    records = evidence.records
    failed = records.failed()
    if not len(failed):
        return []
    begun_ns = int(records.instants("started_mono_ns").min())
    counts = Counter(failed.strings("status"))
    return [
        _class(kind, failed.where(failed.equals("status", kind)), begun_ns, evidence)
        for kind, _ in counts.most_common()
    ]


def _class(kind: str, own: Records, begun_ns: int, evidence: Evidence) -> FailureClass:
    ended_s = (own.instants("ended_mono_ns") - begun_ns) / NS_PER_S
    messages = Counter(text or "" for text in own.strings("error"))
    examples = [
        printable(text, LONGEST_EXAMPLE)
        for text, _ in messages.most_common(MOST_EXAMPLES)
        if text
    ]
    failed = FailedRequests(
        count=len(own),
        longest_prompt=_longest(own, "prompt_tokens"),
        longest_answer=_longest(own, "max_tokens"),
        without_headers=int((~own.has("headers_mono_ns")).sum()),
        message=examples[0] if examples else "",
        messages=list(messages),
    )
    context = replace(
        evidence.failure_context, users=evidence.users, slots=evidence.slots
    )
    return FailureClass(
        kind=kind,
        meaning=meaning(kind, context),
        count=len(own),
        first_s=float(ended_s.min()),
        last_s=float(ended_s.max()),
        examples=examples,
        hint=hint(kind, failed, context),
    )


def _longest(records: Records, name: str) -> int | None:
    values = records.numbers(name)
    return None if np.isnan(values).all() else int(np.nanmax(values))
