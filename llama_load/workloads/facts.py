"""What run.json says of a run's prompts: where they come from, how they were counted, what was replaced or repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """The data that prompts were made of. A workload with more to say has a class of its own under this one."""

    path: str  # a file, a folder, hf:REPO, or what was made up
    sha256: str | UnsetType = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """A plan in numbers. UNSET is left out of run.json: it does not apply to this workload."""

    dataset: DataFacts
    counted_by: str  # the token counter's source
    distinct: int  # prompts that are sent once, or first
    repeated: int
    replaced: int  # prompts that did not fit a slot: others were taken
    shortened: int | UnsetType = UNSET  # prompts, or conversations, that were cut to fit a slot
    # Tokens that all prompts begin with by design; UNSET as 0, None where they repeat each other as they are meant to.
    shared_tokens: int | UnsetType | None = UNSET
    cut: int | UnsetType = UNSET  # documents that were cut to fit a slot, and from how many tokens
    cut_from: int | UnsetType = UNSET
    tasks: Mapping[str, PlanFacts] | UnsetType = UNSET  # of a mixture, by name


def shared_tokens(facts: Mapping[str, PlanFacts]) -> dict[str, int | None]:
    """What the prompts of each workload, and of each task of a mixture, share by design; those that share nothing left out."""
    found: dict[str, int | None] = {}
    for name, each in facts.items():
        if each.tasks:
            found |= shared_tokens(each.tasks)
        elif each.shared_tokens is not UNSET and each.shared_tokens != 0:
            found[name] = each.shared_tokens
    return found


def facts_json(facts: Mapping[str, PlanFacts]) -> dict[str, Any]:
    """`prompts` of run.json: the facts of the one workload, or of each by its name."""
    alone = next(iter(facts.values())) if len(facts) == 1 else None
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(facts if alone is None else alone))
    return found
