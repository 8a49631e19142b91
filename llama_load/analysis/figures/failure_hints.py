"""What a failure class means in words, and what to change, with the numbers of the run. One
function for all reports: `hint`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from llama_load.ground.failure_kind import END, LIMIT, FailureKind
from llama_load.ground.units import quantity
from llama_load.run_folder.observed.slot_context import SlotContext
from llama_load.servers.kinds import kind_named

_KINDS = {kind.value: kind for kind in FailureKind}


@dataclass(frozen=True, slots=True)
class FailureContext:
    """What a hint needs to know of the run; None where unknown."""

    users: int | None = None  # requests that could be in flight
    slots: int | None = None  # of all replicas
    slots_each: int | None = None  # of one
    ctx_per_slot: int | None = None  # tokens
    # the slots of a server share one KV cache (--kv-unified)
    is_shared: bool | None = None
    backend: str | None = None
    limits_s: Mapping[str, float] = field(
        default_factory=dict
    )  # the time limits by failure class
    last_words: str | None = None  # of a server that ended during the run


@dataclass(frozen=True, slots=True)
class FailedRequests:
    """The requests of one class."""

    count: int
    longest_prompt: int | None = None  # tokens
    longest_answer: int | None = None  # tokens
    without_headers: int = 0  # how many had no headers from the server
    message: str = ""  # the most frequent one
    messages: Sequence[str] = ()  # each different one


def meaning(kind: str, context: FailureContext | None = None) -> str:
    """A failure class in words: `no first token within 3 s`."""
    known = _KINDS.get(kind)
    if known is None:
        return kind.replace("http_", "HTTP status ")
    if known.trait != LIMIT:
        return known.words
    limit_s = None if context is None else context.limits_s.get(kind)
    return f"{known.words} {'in time' if limit_s is None else f'within {limit_s:g} s'}"


def hint(kind: str, failed: FailedRequests, context: FailureContext) -> str:
    """What to change so that requests no longer fail in this way; empty where nothing is known.

    15 prompts of up to 5000 tokens, answers of 128, four slots of 4096 tokens: "the longest needs
    5128 tokens with its answer, a slot has 4096: start the server with -c 21504 or more (4 slots x
    5376), or shorten the prompts".
    """
    if _MEMORY.search(failed.message):
        return MEMORY_HINT
    known = _KINDS.get(kind)
    if known is not None and known.trait == END and context.last_words:
        return hint_of_an_end(context.last_words)
    if (made := _MADE.get(kind)) is not None:
        return made(failed, context)
    if own := kind_named(context.backend).failure_hints.get(kind):
        return own
    if largest := _largest_input(failed):
        return f"an input must fit one micro-batch: start llama-server with -b {largest} -ub {largest} or more"
    if kind.startswith("http_5"):
        return "an error inside the server: see its log"
    return known.hint if known is not None else ""


def _largest_input(failed: FailedRequests) -> int:
    """Tokens of the largest input that exceeded a micro-batch, by the server's messages; 0: none
    did."""
    largest = 0
    for message in (failed.message, *failed.messages):
        found = _BATCH.search(message)
        if found is not None:
            largest = max(largest, int(found[1]))
    return largest


def hint_of_an_end(last_words: str) -> str:
    """What to change where a server ended during the run, by its last words (see
    `servers.serving.last_words`)."""
    if "RPC worker was lost" in last_words:
        return RPC_HINT
    if _MEMORY.search(last_words):
        return MEMORY_HINT
    reason = reason_of_an_end(last_words)
    return (
        reason
        if reason.startswith("the server ended")
        else f"the server ended during the run: {reason}"
    )


def reason_of_an_end(last_words: str) -> str:
    """The first line of a server's last words, without the log that it names."""
    reason = last_words.partition("\n")[0]
    return reason.rpartition("; ")[0] if reason.endswith("ends with:") else reason


MEMORY_HINT: Final = "the server ran out of memory: fewer layers on the GPU (-ngl), a smaller -c, or --cache-type-k q8_0"
RPC_HINT: Final = "an RPC worker was lost, which ends the whole server: see the worker's log and the network to it"
_MEMORY = re.compile(
    r"out of memory|failed to allocate|cannot allocate|bad[_ ]alloc|cudaMalloc failed|OutOfMemory",
    re.IGNORECASE,
)
# An error that is about a field names it as one, or as servers name theirs.
_FIELD = re.compile(
    r"\b(fields?|param(eter)?s?|arguments?|propert(y|ies)|keyword|extra inputs|unrecognized|unsupported)\b|"
    r"[a-z]_(tokens|options|eos|prompt|format|usage|stats|predict|penalty|effort|[pk])\b",
    re.IGNORECASE,
)
_BATCH = re.compile(r"input \((\d{1,9}) tokens\) is too large to process")


def _context_exceeded(failed: FailedRequests, context: FailureContext) -> str:
    """The numbers: what the longest prompt needs, what a slot has, and the -c that is enough."""
    prompt = failed.longest_prompt
    slot = context.ctx_per_slot
    if prompt is None or slot is None:
        return FailureKind.CONTEXT_EXCEEDED.hint
    kind = kind_named(context.backend)
    needed = prompt + (failed.longest_answer or 1)
    needs = f"the longest needs {needed} tokens with its answer"
    if kind.divides_context and context.slots_each:
        own = SlotContext(context.slots_each, slot, context.is_shared)
        return f"{needs}, a slot has {slot}: start the server with {own.enough(needed)}, or shorten the prompts"
    return f"{needs}, the context has {slot}: start the server with {kind.context_flag} {needed} or more, or shorten the prompts"


def _kv_pool_full(failed: FailedRequests, context: FailureContext) -> str:
    """The tokens that all requests in flight may need together."""
    counts = [
        count for count in (context.users, context.slots_each) if count is not None
    ]
    if failed.longest_prompt is None or not counts:
        return FailureKind.KV_POOL_FULL.hint
    in_flight = min(counts)
    length = failed.longest_prompt + (failed.longest_answer or 1)
    has = "" if context.ctx_per_slot is None else f", it has {context.ctx_per_slot}"
    text = f"the slots share one KV cache: {quantity(in_flight, 'request')} of up to {length} tokens need {in_flight * length}{has}"
    return f"{text}: start the server with -c {in_flight * length} or more, or lower the load"


def _first_token_timeout(failed: FailedRequests, context: FailureContext) -> str:
    users = context.users
    slots = context.slots
    if users is None or slots is None or users <= slots:
        return FailureKind.FIRST_TOKEN_TIMEOUT.hint
    is_shown = kind_named(context.backend).holds_headers and failed.without_headers
    waited = f", {failed.without_headers} got none" if is_shown else ""
    return f"{users} users on {quantity(slots, 'slot')}{waited}; try -np {users} or a longer --first-token-timeout"


def _overloaded(failed: FailedRequests, context: FailureContext) -> str:
    if "loading model" in failed.message.lower():
        return "the server was still loading its model: wait until /health answers 200"
    slots = (
        ""
        if context.slots is None or context.users is None
        else f" ({context.users} users on {quantity(context.slots, 'slot')})"
    )
    why = "the server refused them"
    if "queue" in failed.message.lower():
        why = "the server's queue was full"
    return f"{why}{slots}: lower the load, raise the server's limit, or send again with --retry N"


def _http_400(failed: FailedRequests, context: FailureContext) -> str:
    if _FIELD.search(failed.message):
        return "see the message: the server does not accept a field of the request"
    return FailureKind.HTTP_400.hint


_MADE: Mapping[str, Callable[[FailedRequests, FailureContext], str]] = {
    FailureKind.CONTEXT_EXCEEDED: _context_exceeded,
    FailureKind.KV_POOL_FULL: _kv_pool_full,
    FailureKind.FIRST_TOKEN_TIMEOUT: _first_token_timeout,
    FailureKind.OVERLOADED: _overloaded,
    FailureKind.HTTP_400: _http_400,
}
