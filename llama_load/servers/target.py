"""A server under test, as known before the first request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.outside.bound_headers import NO_HEADERS, BoundHeaders
from llama_load.servers.address import Address
from llama_load.servers.kinds import ServerKind, kind_named
from llama_load.servers.router import of_model

# Server properties that affect results, and their names in messages.
TRAITS = {
    "backend": "server",
    "build": "build",
    "model": "model",
    "model_path": "model file",
    "slots": "slots",
    "ctx_per_slot": "context",
    "modalities": "modalities",
    "chat_template_sha256": "chat template",
    "sampling": "sampling defaults",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server reports about itself, for the report only. None: not reported.

    `modalities` is the server's own JSON. `head_tokens`: tokens that its chat template puts before
    a message. `round_trip_ms`: measured before the run, from the master's machine.
    """

    build: str | None = None
    model_path: str | None = None
    model_bytes: int | None = None  # size of the weights
    n_params: int | None = None
    quantization: str | None = None
    modalities: Any = None
    chat_template_sha256: str | None = None
    sampling: dict[str, Any] | None = None
    head_tokens: int | None = None
    started_s: float | None = None  # Unix time
    uptime_s: float | None = None
    round_trip_ms: float | None = None


@dataclass(slots=True)
class Dialect:
    """What a server's answers have shown so far."""

    has_finish_reason: bool = False

    def note(self, *, finish_reason: str | None) -> None:
        """Note the finish_reason of a complete answer."""
        self.has_finish_reason |= finish_reason is not None


@dataclass(frozen=True, slots=True)
class Target:
    """One server: its address, backend, and what it reports about itself. `headers` go with every
    request (key included).

    `ctx_per_slot`: in tokens; `template_tokens`: tokens that the chat template adds to a prompt;
    None where not reported. `reuse`: connections are reused; `has_counters`: it has counters at
    /metrics. `load_s`: llama-server's router has loaded these models for the run, in so many
    seconds (0: it was loaded before); their `slots`, by model in `slots_by_model`, are added,
    `ctx_per_slot` is the smallest.
    `alternatives`: how many other models it lists of which none was chosen.
    """

    address: Address
    backend: str
    model: str | None
    models: tuple[
        str, ...
    ] = ()  # several that requests are spread over; empty: `model` alone
    other_counts: tuple[
        str, ...
    ] = ()  # those of them that count tokens differently from the first
    headers: BoundHeaders = NO_HEADERS
    slots: int | None = None
    reuse: bool = False
    has_counters: bool = False
    ctx_per_slot: int | None = None
    template_tokens: int | None = None
    # the chat template renders tools, as llama-server reports it
    takes_tools: bool | None = None
    # its build can unload the model while it is idle; whether it does, its flags say
    can_sleep: bool = False
    load_s: Mapping[str, float] = field(default_factory=dict)
    slots_by_model: Mapping[str, int] = field(default_factory=dict)
    alternatives: int = 0
    facts: ServerFacts = field(default_factory=ServerFacts)
    dialect: Dialect = field(default_factory=Dialect, compare=False)

    @property
    def ends_by_reason(self) -> bool:
        """Whether its whole answers have a finish_reason, as far as is known."""
        return self.kind.ends_by_reason or self.dialect.has_finish_reason

    def described(self) -> dict[str, Any]:
        """An entry of `targets` in run.json."""
        left_out = {"round_trip_ms"} | (
            set() if self.has_counters else {"started_s", "uptime_s"}
        )
        entry = {
            "url": self.address.url,
            "backend": self.backend,
            "model": self.model,
            "models": list(self.models) or None,
            "slots": self.slots,
            "ctx_per_slot": self.ctx_per_slot,
            "template_tokens": self.template_tokens,
            **{
                name: value
                for name, value in asdict(self.facts).items()
                if name not in left_out
            },
        }
        if self.slots_by_model:
            entry["slots_by_model"] = dict(self.slots_by_model)
        if self.load_s:
            entry["load_s"] = {
                name: round(seconds, 3) for name, seconds in self.load_s.items()
            }
        return entry

    def control_urls(self, path: str) -> list[str]:
        """The URLs of a control endpoint: one, or one for each model of a router."""
        url = self.address.url
        return [url + of_model(path, model) for model in self.load_s] or [url + path]

    @property
    def is_blind(self) -> bool:
        """Whether the server reports that it cannot read images."""
        return (
            isinstance(self.facts.modalities, dict)
            and self.facts.modalities.get("vision") is False
        )

    def resolved_here(self) -> Target:
        """The same target with its name looked up on this machine. Raises UsageError when it cannot
        be."""
        try:
            return replace(self, address=self.address.resolved())
        except OSError as error:
            raise UsageError(
                f"the name {self.address.host!r} cannot be resolved: {error}"
            ) from None

    def counts_differ(self, model: str | None) -> bool:
        """Whether this model, of several, counts tokens differently from the first one, which
        counted the prompts."""
        return model in self.other_counts

    @property
    def kind(self) -> ServerKind:
        """What is known of this kind of server."""
        return kind_named(self.backend)
