"""One case of the search: a workload, a load, a server, and the changes that are made to the plan
of its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# Kinds of servers, by what they report: nothing but usage; vLLM's counters; llama-server's timings
# and counters.
OPENAI, VLLM, LLAMA_SERVER = "openai", "vllm", "llama-server"
# Who counted the prompts before the run: a tokenizer, or an estimate from their characters.
TOKENIZER, ESTIMATE = "tokenizer", "estimate"


@dataclass(frozen=True, slots=True)
class Change:
    """A transformation of the plan: it hits this share of the requests, of those sent in a part of
    the run (0 to 1), by its size."""

    name: str
    size: float = 1.0
    share: float = 1.0
    begins: float = 0.0
    ends: float = 1.0

    @property
    def story(self) -> str:
        """`usage_scaled (size 1.4, 30 % of the requests, from 50 % to 100 % of the run)`."""
        text = f"{self.name} (size {self.size:g}, {self.share:.0%} of the requests"
        if (self.begins, self.ends) != (0.0, 1.0):
            text += f", from {self.begins:.0%} to {self.ends:.0%} of the run"
        return text + ")"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The same case gives the same run. Times in ms."""

    seed: int
    requests: int = 120
    users: int = 4  # of a closed loop; 0: an open loop
    load: float = 0.7  # of an open loop: the share of the slots that are in use
    slots: int = 4
    stages: Sequence[int] = ()  # users of each stage; empty: no stages
    turns: int = 1  # of each conversation
    workloads: int = 1  # the second has prompts and answers of twice the length
    prompt_tokens: int = 200  # mean
    prompt_law: str = "lognormal"
    output_tokens: int = 40  # mean
    output_law: str = "fixed"
    prefill_ms: float = 40.0  # of every prompt
    prefill_token_ms: float = 0.5
    gap_ms: float = 20.0
    jitter: float = 0.1  # of each gap
    # how much longer a gap is for each other request that is worked on
    batching: float = 0.0
    server: str = OPENAI
    counted_by: str = TOKENIZER
    template_known: bool = True
    language: str = "english"
    hosts: int = 1  # replicas, with `slots` each
    common: float = 0.0  # share of the mean prompt that all prompts begin with
    distinct: int = 0  # prompts; 0: all are different
    choices: int = 1  # answers to each prompt (`n`)
    goodput: bool = False
    changes: Sequence[Change] = field(default_factory=tuple)

    @property
    def at_once(self) -> float:
        """How many requests are worked on at a time, about."""
        slots = self.slots * self.hosts
        users = sum(self.stages) / len(self.stages) if self.stages else self.users
        return min(slots, users) if users else slots * self.load

    @property
    def nominal_s(self) -> float:
        """About how long the run takes, s."""
        tokens = self.workloads * self.output_tokens
        service_ms = (
            self.prefill_ms
            + self.prefill_token_ms * self.prompt_tokens
            + self.gap_ms * tokens
        )
        return self.requests * service_ms / self.at_once / 1e3

    @property
    def story(self) -> str:
        """A line about the workload and the load, and one for each change."""
        load = (
            f"{self.users} users"
            if self.users
            else f"Poisson arrivals at {self.load:.0%} of the capacity"
        )
        if self.stages:
            load = "stages of " + ", ".join(map(str, self.stages)) + " users"
        template = "known" if self.template_known else "unknown"
        lines = [
            f"seed {self.seed}: {self.requests} requests, {load}, {self.slots} slots, server {self.server}, "
            f"prompts of {self.prompt_tokens} tokens ({self.prompt_law}, {self.language}, counted by {self.counted_by}, template {template}), "
            f"answers of {self.output_tokens} ({self.output_law}), {self.turns} turns, {self.workloads} workloads, "
            f"prefill {self.prefill_ms:g} + {self.prefill_token_ms:g} ms/token, gap {self.gap_ms:g} ms (jitter {self.jitter:g}, "
            f"batching {self.batching:g})"
            + "".join(
                f", {name} {value:g}" for name, value in self._more.items() if value
            )
        ]
        return "\n".join([*lines, *(f"  {change.story}" for change in self.changes)])

    @property
    def _more(self) -> dict[str, float]:
        return {
            "hosts": self.hosts if self.hosts > 1 else 0,
            "common beginning": self.common,
            "distinct prompts": self.distinct,
            "answers each": self.choices if self.choices > 1 else 0,
        }
