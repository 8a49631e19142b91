"""A prompt; the plan of a run, which assigns prompts to requests, with its facts in run.json; and
the interface of workloads."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from llama_load.loadgen.workloads.think_time import ThinkTime
from llama_load.run_folder.vocabulary.document_caches import DIFFERENT
from llama_load.servers.counting import TokenCounter
from llama_load.servers.prompt import Prompt

if TYPE_CHECKING:
    from llama_load.loadgen.workloads.arrival import Arrival


# The answer's length where neither a flag nor the data sets one.
ANSWER_TOKENS = 128


def chained(turns: Sequence[Prompt]) -> list[Prompt]:
    """The requests of a conversation, each with the number of those that follow."""
    return [
        replace(prompt, more=len(turns) - 1 - place, turns=len(turns))
        for place, prompt in enumerate(turns)
    ]


def in_rounds(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The prompts with their rounds: a, b, a: 0, 0, 1."""
    sent: Counter[tuple[str | None, int | None, str]] = Counter()
    numbered = []
    for prompt in prompts:
        key = prompt.conversation, prompt.turn, prompt.text
        numbered.append(replace(prompt, round=sent[key]))
        sent[key] += 1
    return numbered


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """The data behind prompts. A workload with more facts has a subclass."""

    path: str  # a file, a folder, hf:REPO, or a name for generated data
    sha256: str | UnsetType = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReading:
    """What of a data set is not sent as it is there.

    `left_out` counts its rows by reason (among `rows`, where all of them are of one kind),
    `ignored` are the names of fields that change no request, `unread` those that --columns leaves
    out, `default_lengths` the sent prompts without a length of their own.
    """

    left_out: Mapping[str, int] = field(default_factory=dict)
    rows: int | None = None
    ignored: Sequence[str] = ()
    unread: Sequence[str] = ()
    default_lengths: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """The numbers of a plan. UNSET fields do not apply to this workload and are left out of
    run.json."""

    dataset: DataFacts
    counted_by: str  # the token counter's source
    distinct: int  # prompts without their repetitions
    repeated: int  # repetitions that are sent as they are
    replaced: int  # prompts that did not fit a slot and were replaced by others
    # repetitions that begin in another way each time, so that no cache has them
    varied: int | UnsetType = UNSET
    shortened: int | UnsetType = UNSET  # prompts or conversations cut to fit a slot
    # Tokens that all prompts share at their start by design. UNSET counts as 0; None: prompts
    # repeat each other by design.
    shared_tokens: int | UnsetType | None = UNSET
    cut: int | UnsetType = UNSET  # documents cut to fit a slot, and their tokens before
    cut_from: int | UnsetType = UNSET
    tasks: Mapping[str, PlanFacts] | UnsetType = UNSET  # of a mixture, by name
    reading: DataReading | UnsetType = UNSET


def shared_tokens(facts: Mapping[str, PlanFacts]) -> dict[str, int | None]:
    """Tokens shared by design, by workload and by task of a mixture; those that share nothing are
    left out."""
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


@dataclass(frozen=True, slots=True)
class Plan:
    """The prompts of a run: request i sends `measured[i % len(measured)]`, warm-up request i
    `warmup[i]`.

    `facts` go into the manifest. `rounds`: of the measured prompts, each round with
    another beginning; 0: they repeat as they are.
    """

    measured: list[Prompt]
    warmup: list[Prompt]
    facts: PlanFacts
    rounds: int = 0

    def prompt(self, place: int, *, warmup: bool) -> Prompt | None:
        """The prompt at a position of the plan; None if the workload has none."""
        prompts = self.warmup if warmup else self.measured
        if not prompts:
            return None
        prompt = prompts[place % len(prompts)]
        again = place // len(prompts)
        if not again or not self.rounds:
            return prompt
        return replace(prompt, round=prompt.round + again * self.rounds)

    def with_think_times(self, times: ThinkTime | None, seed: int) -> Plan:
        """The plan with these waits before later questions of users (None: as recorded), a draw for
        each. Waits for tools stay as recorded."""
        if times is None:
            return self
        source = random.Random(f"think time {seed}")
        return replace(
            self,
            measured=[
                replace(prompt, delay_s=times.draw(source))
                if (prompt.turn or 1) > 1 and prompt.is_users
                else prompt
                for prompt in self.measured
            ],
        )

    def turns_from(self, place: int) -> int:
        """The number of requests that belong together from this position on: this one and its
        conversation's further turns."""
        if not self.measured:
            return 1
        place %= len(self.measured)
        return min(1 + self.measured[place].more, len(self.measured) - place)

    def begins_at(self, place: int) -> bool:
        """Whether the request at this position is the first of its conversation, or has none."""
        place %= max(1, len(self.measured))
        return not place or not self.measured[place - 1].more


# Of synthetic agents; their last request has about 7000 tokens.
ROUNDS = 8
SYSTEM_TOKENS = 1500
TOOL_OUTPUT_TOKENS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentShape:
    """The shape of synthetic agents: rounds of a tool call and its output, tokens of the system
    prompt and of each output (None: the usual value, or less where a slot is small), number of
    tools and of sub-agents, how long a tool runs (None: not at all)."""

    rounds: int | None = None
    system_tokens: int | None = None
    tools: int = 6
    tool_output_tokens: int | None = None
    tool_time: ThinkTime | None = None
    sub_agents: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The flags that describe traffic; each workload reads its own. None: the workload's
    default."""

    # conversations
    turns: int | None = 1  # None: all
    limits_turns: bool = False  # --turns was given
    generated_history: bool = True
    system_prompt: str | None = None
    think_time: ThinkTime | None = None  # None: as recorded
    speed: float = 1.0  # recorded waits are divided by it
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
    # prompts of a file: only those of these categories; () is all
    categories: tuple[str, ...] = ()
    # of a data set's rows: our names of what is read, and their columns; {}: by their own names
    columns: Mapping[str, str] = field(default_factory=dict)
    agent: AgentShape = field(default_factory=AgentShape)
    # embeddings, reranking
    batch_size: int = 1
    # synthetic
    input_len: int | None = None
    range_ratio: float = 0.0
    prefix_len: int = 0
    num_prefixes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The requirements of a plan.

    `num_prompts` distinct prompts if the data has them; with `fill`, the rest are repetitions.
    `output_len` replaces the recorded answer's length. `fits(prompt tokens, answer tokens)` is
    whether both fit the server; None accepts all. `room(answer tokens)` is the number of prompt
    tokens that fit with such an answer; None if the server does not report it, or nothing may be
    cut.
    """

    num_prompts: int
    fill: bool
    warmup: int
    seed: int
    # as many are needed, with any number of prompts
    num_conversations: int | None = None
    counter: TokenCounter
    dataset_path: str | None = None  # a file, or hf:REPO[:split]
    output_len: int | None = None
    # set by a flag: the length of every answer, instead of the prompt's
    answer_len: int | None = None
    exchange_tokens: int = 0  # added by the chat template to a question and its answer
    fits: Callable[[int, int], bool] | None = None
    keeps_long: bool = False  # --keep-long-prompts
    room: Callable[[int], int | None] = lambda _: None
    threads: Callable[[int], Executor] = ThreadPoolExecutor  # for work on all cores
    # progress: the number of images ready
    on_image_ready: Callable[[int], None] | None = None
    # recorded traffic: request i is sent at arrival i, and may have its lengths
    trace: Sequence[Arrival] | None = None
    block_tokens: int = 512  # of the blocks that the trace's hash_ids name
    nonce: str = ""  # unique to this run: for random text that no server has cached
    renews: bool = False  # generated texts and images depend on the nonce too
    varies: bool = False  # a prompt that is sent again may begin in another way
    traffic: Traffic = field(default_factory=Traffic)

    def is_enough(self, prompts: int, conversations: int) -> bool:
        """Whether these are enough for the run."""
        return (
            prompts >= self.num_prompts
            if self.num_conversations is None
            else conversations >= self.num_conversations
        )

    def plan(
        self,
        measured: list[Prompt],
        warmup: list[Prompt],
        dataset: DataFacts,
        *,
        distinct: int | None = None,
        replaced: int = 0,
        shortened: int | UnsetType = UNSET,
        shared_tokens: int | UnsetType | None = UNSET,
        reading: DataReading | UnsetType = UNSET,
    ) -> Plan:
        """The plan of these prompts and numbers (see `PlanFacts`). Without `distinct` all measured
        prompts are different, and repetitions are drawn from them, up to the number of the run.
        Warm-up prompts that the data has not to spare are made up: a measured prompt must never
        warm the cache."""
        if distinct is None:
            distinct = len(measured)
            missing = self.num_prompts - distinct if self.fill else 0
            measured = measured + random.Random(self.seed).choices(
                measured, k=max(0, missing)
            )
        numbers = range(1, 1 + self.warmup - len(warmup))
        made_up = [
            Prompt(
                f"Warm-up request {number}. Please count from one to forty.", None, 64
            )
            for number in numbers
        ]
        repeated = len(measured) - distinct
        varied: int | UnsetType = UNSET
        # another beginning would make new what prompts share by design
        varies = self.varies and shared_tokens in (UNSET, 0) and not measured[0].inputs
        rounds = 0
        if varies:
            measured = in_rounds(measured)
            rounds = 1 + max(prompt.round for prompt in measured)
        if varies and repeated:
            varied = repeated
            repeated = 0

        facts = PlanFacts(
            dataset=dataset,
            counted_by=self.counter.source,
            distinct=distinct,
            repeated=repeated,
            replaced=replaced,
            varied=varied,
            shortened=shortened,
            shared_tokens=shared_tokens,
            reading=reading,
        )
        return Plan(measured, warmup + made_up, facts, rounds)

    @property
    def sets_lengths(self) -> bool:
        """Whether a flag sets the length of every answer."""
        return self.output_len is not None or self.answer_len is not None

    @property
    def content_seed(self) -> str:
        """Seeds generated texts and images, but not their sizes: those are the same in each run."""
        return f"{self.seed} {self.nonce}" if self.renews else str(self.seed)

    def of_one(self, name: str) -> PlanRequest:
        """The same for one of a run's workloads or one task of a mixture, with a seed derived from
        its name. (With the same seed, two would draw the same prompts, and the second would find
        them cached.)"""
        return replace(
            self,
            seed=int(
                hashlib.sha256(f"{self.seed} {name}".encode()).hexdigest()[:8], 16
            ),
        )


class Workload(Protocol):
    """A kind of traffic: its name in reports, and a function that plans a run."""

    name: str

    def plan(self, request: PlanRequest) -> Plan:
        """Choose the prompts of a run. UsageError: the data does not allow it."""
