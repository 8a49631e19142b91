"""A prompt, the plan of a run (which prompt is sent as which request), and what makes plans: a workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from llama_load.workloads.counting import TokenCounter


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one request asks. `prompt_tokens` counts the text alone, without chat template; None if nobody counted."""

    text: str
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    conversation: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The prompts of a run: request i sends `measured[i % len(measured)]`, warm-up request i `warmup[i]`.

    `about` goes into the manifest: the file and its hash, how it was counted, what was replaced or repeated.
    """

    measured: list[Prompt]
    warmup: list[Prompt]
    about: dict[str, Any] = field(default_factory=dict)

    def prompt(self, index: int, *, warmup: bool) -> Prompt | None:
        """The prompt of a request by its place in the plan; None if the workload brings none."""
        prompts = self.warmup if warmup else self.measured
        return prompts[index % len(prompts)] if prompts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What a plan is wanted for.

    `num_prompts` distinct prompts if the data has them; `fill` repeats some where it has not. `output_len` replaces the
    recorded answer's length. `fits(prompt tokens, answer tokens)` says whether both fit the server; None takes all.
    """

    num_prompts: int
    fill: bool
    warmup: int
    seed: int
    counter: TokenCounter
    dataset_path: Path | None = None
    output_len: int | None = None
    fits: Callable[[int, int], bool] | None = None


class Workload(Protocol):
    """A kind of traffic: a name for reports, and how to plan a run of it."""

    name: str

    def plan(self, wanted: PlanRequest) -> Plan:
        """Choose the prompts of a run. Raises UsageError with a sentence when the data does not allow it."""
