"""What is known of a kind of server: its signs, requests, endpoints, metrics and flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from llama_load.outside.plain_http import Session
from llama_load.servers.kinds.server_controls import STOP_PROFILER_S, post_to
from llama_load.servers.kinds.server_start import ServerStart
from llama_load.servers.model_list import ListedModel

# A pattern for a line of the log, and the fields of a `ServerDescription` that a match gives.
LogFact = tuple[re.Pattern[str], Callable[[re.Match[str]], dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Form:
    """An endpoint that counts tokens: its path, and the body for a model and a text.

    `counts_messages`: it takes `messages` instead of a text, too, and counts them with the chat
    template. `template_path`: an endpoint that puts messages into the chat template. `is_list`: it
    answers with a list of the tokens and nothing around it.
    """

    path: str
    body: Callable[[str | None, str], dict[str, Any]]
    counts_messages: bool = False
    template_path: str = ""
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Signs:
    """What a server's control endpoints answer; empty where it has none: /props (llama-server),
    /version (vLLM), /info (TGI), its models, and the form in which it counts tokens."""

    props: Mapping[str, Any]
    version: Mapping[str, Any]
    info: Mapping[str, Any]
    listed: list[ListedModel]
    form: Form | None = None

    def is_owned_by(self, name: str) -> bool:
        """Whether a model's `owned_by` is this name. (Gateways copy and invent it, so it is one
        sign of two.)"""
        return any(model.owner == name for model in self.listed)

    @property
    def lists_context(self) -> bool:
        """Whether a model has a `max_model_len`."""
        return any(model.context for model in self.listed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The names on a server's page of metrics, without `_total`; all of them begin with `prefix`.

    Counters: `prompt_tokens`, cached ones included unless `excludes_cached`; `output_tokens`;
    `queries`: prompt tokens looked up in the prompt cache ("": all); `hits`: those that were in it;
    `external_hits`: those that only a cache outside of the engine had; `requests` that ended;
    `preemptions`. `times`: histograms in s, by the fields of `ServerTimes`. `renamed`: earlier
    names, by those of today. Gauges: `running` and `waiting` requests, with their words in the
    terminal, and `kv_used`, 0 to 1. `cache_info`: a metric whose labels have the size of a block of
    the cache (`block_size`), their number and whether prompts are kept. `also`: beginnings of names
    that components of this server add to its page.
    """

    prefix: str
    prompt_tokens: str = ""
    output_tokens: str = ""
    excludes_cached: bool = False
    queries: str = ""
    hits: str = ""
    external_hits: str = ""
    requests: str = ""
    preemptions: str = ""
    drafts: str = ""
    draft_tokens: str = ""
    accepted_tokens: str = ""
    accepted_per_position: str = ""
    times: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    running: str = ""
    waiting: str = ""
    running_words: tuple[str, str] = ("running", "waiting")
    kv_used: tuple[str, ...] = ()
    cache_info: str = ""
    also: tuple[str, ...] = ()

    @property
    def counters(self) -> frozenset[str]:
        """The names of the counters."""
        tokens = (
            self.prompt_tokens,
            self.output_tokens,
            self.queries,
            self.hits,
            self.external_hits,
        )
        drafts = (
            self.drafts,
            self.draft_tokens,
            self.accepted_tokens,
            self.accepted_per_position,
        )
        return frozenset(
            (*tokens, self.requests, self.preemptions, *drafts, *self.renamed.values())
        ) - {""}


# In --adapter: requests without a LoRA adapter.
NO_ADAPTER = "none"


class ServerKind:
    """One kind of server; each file of this folder has one such object. These are the values of a
    server of which nothing is known.

    `name`: in --backend, run.json and reports; `title`: in tables of sweeps. `keeps_connections`: a
    connection stays open after a streamed answer. `holds_headers`: response headers are sent only
    when the request has a slot, so that they show the queueing time. `stream_options` of OpenAI's
    APIs. `has_cache_switch`: a request can turn the prompt cache off. `hides_template`: it reports
    neither its chat template nor usage in streams. `divides_context`: its slots share the context.
    `fills_context`: without max_tokens it generates to the end of its context. `sleep_flag`: lets
    it unload its model while it is idle; a request to its slots keeps it awake. `slots_path`: its
    page of slots; `adapters_path`: its list of LoRA adapters, which requests choose by id.
    `slots_note`: what a user must know of them. `context_flag`: sets the length of the context.
    `remedies`: what makes prompts ("ttft") or tokens ("tpot") faster. `scores_by`: how it reports
    log-probabilities of prompt tokens: "ids", "echo", "" if not at all. `cache_reset`: a POST to
    this path empties its prompt cache; `cache_reset_note`: why it may not. `profile_start`,
    `profile_stop`, `profile_note`: the same for its profiler.
    `cache_block`: its cache keeps prompts in blocks of so many tokens, or of those that
    `cache_block_flag` sets; `cache_off_flags`: with these it keeps none. `starts`: the ways to
    start it. `flags`: its flags by the fields of a `ServerDescription`; `draft_flags` load a draft
    model; `tuned`: patterns of those that decide on memory and on drafts, for `llama-load tune`.
    `log_facts`: what its log says of it. `ends_by_reason`: each of its whole answers has a
    finish_reason. `failure_hints`: what to do about a class of failures that only this kind has.
    """

    name: ClassVar[str] = "openai"
    title: ClassVar[str] = "openai"
    keeps_connections: ClassVar[bool] = True
    holds_headers: ClassVar[bool] = False
    stream_options: ClassVar[Mapping[str, Any]] = {"include_usage": True}
    has_cache_switch: ClassVar[bool] = False
    hides_template: ClassVar[bool] = False
    divides_context: ClassVar[bool] = False
    fills_context: ClassVar[bool] = False
    slots_path: ClassVar[str] = ""
    sleep_flag: ClassVar[str] = ""
    adapters_path: ClassVar[str] = ""
    slots_note: ClassVar[str] = ""
    context_flag: ClassVar[str] = "a context of"
    remedies: ClassVar[Mapping[str, str]] = {}
    scores_by: ClassVar[str] = ""
    cache_reset: ClassVar[str] = ""
    cache_reset_note: ClassVar[str] = "the server has no request for that"
    cache_block: ClassVar[int] = 1
    cache_block_flag: ClassVar[str] = ""
    cache_off_flags: ClassVar[tuple[str, ...]] = ()
    profile_start: ClassVar[str] = ""
    profile_stop: ClassVar[str] = ""
    profile_note: ClassVar[str] = "the server has no request for that"
    draft_flags: ClassVar[frozenset[str]] = frozenset()
    tuned: ClassVar[Mapping[str, str]] = {}
    form: ClassVar[Form | None] = None
    metrics: ClassVar[Metrics | None] = None
    starts: ClassVar[tuple[ServerStart, ...]] = ()
    flags: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    log_facts: ClassVar[tuple[LogFact, ...]] = ()
    ends_by_reason: ClassVar[bool] = False
    failure_hints: ClassVar[Mapping[str, str]] = {}

    def is_shown_by(self, signs: Signs) -> bool:
        """Whether a server with these signs is of this kind: two that agree."""
        return True

    def context(self, signs: Signs) -> int | None:
        """Tokens that a request may take, as this kind alone reports them; None: as /props or
        /v1/models do."""
        return None

    def times_flag(self, build: str | None) -> str:
        """With this flag a server of this build reports its own times in each answer, and without
        it not; "": there is no such flag."""
        return ""

    def body_fields(self, cache_prompt: bool | None) -> dict[str, Any]:
        """Fields that only this kind knows, for the body of a request that generates a text."""
        return (
            {}
            if cache_prompt is None or not self.has_cache_switch
            else {"cache_prompt": cache_prompt}
        )

    def schema_fields(self, api: str, schema: Any) -> dict[str, Any] | None:
        """Fields that make the answer follow a JSON schema, for the API of this name; None: it has
        none."""
        named = {"name": "answer", "schema": schema, "strict": True}
        fields: dict[str, dict[str, Any]] = {
            "chat": {"response_format": {"type": "json_schema", "json_schema": named}},
            "responses": {"text": {"format": {"type": "json_schema"} | named}},
        }
        return fields.get(api)

    def grammar_fields(
        self, api: str, grammar: str, build: str | None
    ) -> dict[str, Any] | None:
        """Fields that make the answer follow a grammar, for the API of this name; None: it has
        none."""
        return None

    def adapter_fields(self, api: str, adapter: str) -> dict[str, Any] | None:
        """Fields that give a request this LoRA adapter (an id, or `NO_ADAPTER`), for the API of
        this name; None: it has none."""
        return None

    def reset_cache(self, session: Session, url: str) -> str:
        """Empty the prompt cache of a server. Why that failed, "" if it did not."""
        paths = [self.cache_reset] if self.cache_reset else []
        return post_to(session, url, paths, self.cache_reset_note)

    def start_profiler(self, session: Session, url: str) -> str:
        """Why a server's profiler did not start, "" if it did."""
        paths = [self.profile_start] if self.profile_start else []
        return post_to(session, url, paths, self.profile_note)

    def stop_profiler(self, session: Session, url: str) -> str:
        """Why a server's profiler did not stop, "" if it did. It may take minutes to write."""
        paths = [self.profile_stop] if self.profile_stop else []
        return post_to(session, url, paths, self.profile_note, STOP_PROFILER_S)


ANY = ServerKind()
