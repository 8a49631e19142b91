"""The facts about prompts in run.json: their source, the counter, how many were replaced or repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """The data behind prompts. A workload with more facts has a subclass."""

    path: str  # a file, a folder, hf:REPO, or a name for generated data
    sha256: str | UnsetType = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """The numbers of a plan. UNSET fields do not apply to this workload and are left out of run.json."""

    dataset: DataFacts
    counted_by: str  # the token counter's source
    distinct: int  # prompts without their repetitions
    repeated: int
    replaced: int  # prompts that did not fit a slot and were replaced by others
    shortened: int | UnsetType = UNSET  # prompts or conversations cut to fit a slot
    # Tokens that all prompts share at their start by design. UNSET counts as 0; None: prompts repeat each other by design.
    shared_tokens: int | UnsetType | None = UNSET
    cut: int | UnsetType = UNSET  # documents cut to fit a slot, and their tokens before
    cut_from: int | UnsetType = UNSET
    tasks: Mapping[str, PlanFacts] | UnsetType = UNSET  # of a mixture, by name


def shared_tokens(facts: Mapping[str, PlanFacts]) -> dict[str, int | None]:
    """Tokens shared by design, by workload and by task of a mixture; those that share nothing are left out."""
    shared: dict[str, int | None] = {}
    for name, fact in facts.items():
        if fact.tasks:
            shared |= shared_tokens(fact.tasks)
        elif fact.shared_tokens is not UNSET and fact.shared_tokens != 0:
            shared[name] = fact.shared_tokens
    return shared


def facts_json(facts: Mapping[str, PlanFacts]) -> dict[str, Any]:
    """`prompts` of run.json: the facts of the only workload, or of each by name."""
    shown = next(iter(facts.values())) if len(facts) == 1 else facts
    return dict(msgspec.json.decode(msgspec.json.encode(shown)))
