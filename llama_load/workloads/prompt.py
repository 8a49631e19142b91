"""A prompt, the plan of a run (which prompt is sent as which request), and what makes plans: a workload."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from llama_load.workloads.counting import TokenCounter
from llama_load.workloads.facts import PlanFacts

if TYPE_CHECKING:
    from llama_load.workloads.traces import Arrival


# The answer's length where neither a flag nor the data says another: that of the reference measurement.
ANSWER_TOKENS = 128
# What a server's prefix cache may do with documents: see `Documents`.
DIFFERENT, SHARED, AS_IS = CACHES = ("different", "shared", "as-is")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation: who ("system", "user", "assistant") says what."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image as it is sent: a base64 data URL, encoded before the run. `sha256` is that of the file in it."""

    data_url: bytes
    sha256: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one request asks.

    `prompt_tokens` counts all its text, history included, without chat template; None if nobody counted. `history` goes before
    the text (system prompt, recorded exchanges), `answer` is the recorded answer to it, `more` how many turns of the same
    conversation follow it in the plan. `inputs` are the texts of an embeddings request, or the documents to be ranked for the
    query `text`. `task` names the request in reports where a workload sends several kinds.
    """

    text: str
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    conversation: str | None = None
    turn: int | None = None  # 1, 2, …
    history: tuple[Message, ...] = ()
    answer: str | None = None
    more: int = 0
    images: tuple[Image, ...] = ()
    inputs: tuple[str, ...] = ()
    task: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The prompts of a run: request i sends `measured[i % len(measured)]`, warm-up request i `warmup[i]`.

    `facts` go into the manifest.
    """

    measured: list[Prompt]
    warmup: list[Prompt]
    facts: PlanFacts

    def prompt(self, place: int, *, warmup: bool) -> Prompt | None:
        """The prompt of a request by its place in the plan; None if the workload brings none."""
        prompts = self.warmup if warmup else self.measured
        return prompts[place % len(prompts)] if prompts else None

    def turns_from(self, place: int) -> int:
        """How many requests belong together from this place on: this one and the further turns of its conversation."""
        if not self.measured:
            return 1
        place %= len(self.measured)
        return min(1 + self.measured[place].more, len(self.measured) - place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What flags say of the traffic; each workload looks at its own. None: the workload's own default."""

    # conversations
    turns: int | None = 1  # None: all
    generated_history: bool = True
    system_prompt: str | None = None
    # documents
    document: Path | None = None  # a file or a folder
    document_tokens: int | None = None
    document_cache: str = DIFFERENT  # or SHARED, AS_IS
    question: str | None = None
    # images
    images: str | None = None  # a file, a folder or hf:REPO
    image_size: tuple[int, int] = (512, 512)  # width, height
    image_format: str = "jpeg"  # or "png"
    images_per_request: int = 1
    # a mixture: weight by task
    weights: Mapping[str, float] = field(default_factory=dict)
    # embeddings, reranking
    batch_size: int = 1
    # synthetic
    input_len: int | None = None
    output_len: int | None = None
    range_ratio: float = 0.0
    prefix_len: int = 0
    num_prefixes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What a plan is wanted for.

    `num_prompts` distinct prompts if the data has them; `fill` repeats some where it has not. `output_len` replaces the
    recorded answer's length. `fits(prompt tokens, answer tokens)` says whether both fit the server; None takes all. `room(answer
    tokens)` is how many prompt tokens fit beside such an answer; None where the server does not tell, or nothing is to be cut.
    """

    num_prompts: int
    fill: bool
    warmup: int
    seed: int
    counter: TokenCounter
    dataset_path: str | None = None  # a file, or hf:REPO[:split]
    output_len: int | None = None
    answer_len: int | None = None  # what a flag makes of every answer's length, whatever the prompt's own
    exchange_tokens: int = 0  # what the chat template adds to a question and its answer
    fits: Callable[[int, int], bool] | None = None
    room: Callable[[int], int | None] = lambda _: None
    threads: Callable[[int], Executor] = ThreadPoolExecutor  # for what is computed on all cores
    on_image_ready: Callable[[int], None] | None = None  # hears, now and then, how many of a plan's images are ready
    trace: Sequence[Arrival] | None = None  # recorded traffic: request i is sent when its arrival i was, and may be as long
    nonce: str = ""  # of this run alone: for random text that no earlier run has put into a cache
    traffic: Traffic = field(default_factory=Traffic)

    def of_one(self, name: str) -> PlanRequest:
        """What one of several workloads of a run, or one task of a mixture, is asked for: with a seed of its own, by its name. Two
        that draw their prompts by the same seed draw the same, which a server's cache then knows."""
        return replace(self, seed=int(hashlib.sha256(f"{self.seed} {name}".encode()).hexdigest()[:8], 16))


class Workload(Protocol):
    """A kind of traffic: a name for reports, and how to plan a run of it."""

    name: str

    def plan(self, wanted: PlanRequest) -> Plan:
        """Choose the prompts of a run. Raises UsageError with a sentence when the data does not allow it."""
