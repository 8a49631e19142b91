"""What a failure class means in words, and what to change, with the numbers of the run. One function for all reports: `hint`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from llama_load.targets.servers import kind_named
from llama_load.units import quantity

# llama.cpp rounds a slot's context up to a multiple of this.
CONTEXT_STEP = 256


@dataclass(frozen=True, slots=True)
class FailureContext:
    """What a hint needs to know of the run; None where unknown.

    `users`: requests that could be in flight; `slots`: of all replicas, and `slots_each`, `ctx_per_slot` of one (tokens);
    `limits_s`: the time limits by failure class; `last_words`: those of a server that ended during the run.
    """

    users: int | None = None
    slots: int | None = None
    slots_each: int | None = None
    ctx_per_slot: int | None = None
    backend: str | None = None
    limits_s: Mapping[str, float] = field(default_factory=dict)
    last_words: str | None = None


@dataclass(frozen=True, slots=True)
class FailedRequests:
    """The requests of one class: their number, longest prompt and answer (tokens), how many had no headers from the server, and the
    most frequent message."""

    count: int
    longest_prompt: int | None = None
    longest_answer: int | None = None
    without_headers: int = 0
    message: str = ""


def meaning(kind: str, context: FailureContext | None = None) -> str:
    """A failure class in words: `no first token within 3 s`."""
    limit_s = None if context is None else context.limits_s.get(kind)
    if kind in _IN_TIME:
        return f"{_IN_TIME[kind]} {'in time' if limit_s is None else f'within {limit_s:g} s'}"
    return _MEANINGS.get(kind, kind.replace("http_", "HTTP status "))


def hint(kind: str, failed: FailedRequests, context: FailureContext) -> str:
    """What to change so that requests no longer fail in this way; empty where nothing is known.

    15 prompts of up to 5000 tokens, answers of 128, four slots of 4096 tokens: "the longest needs 5128 tokens with its answer, a
    slot has 4096: start the server with -c 21504 or more (4 slots x 5376), or shorten the prompts".
    """
    if _MEMORY.search(failed.message):
        return MEMORY_HINT
    if kind in _OF_A_DEAD_SERVER and context.last_words:
        return hint_of_an_end(context.last_words)
    if (made := _MADE.get(kind)) is not None:
        return made(failed, context)
    if match := _BATCH.search(failed.message):
        return f"an input must fit one micro-batch: start llama-server with -b {match[1]} -ub {match[1]} or more"
    if kind.startswith("http_5"):
        return "an error inside the server: see its log"
    return _HINTS.get(kind, "")


def hint_of_an_end(last_words: str) -> str:
    """What to change where a server ended during the run, by its last words (see `serving.last_words`)."""
    if "RPC worker was lost" in last_words:
        return RPC_HINT
    if _MEMORY.search(last_words):
        return MEMORY_HINT
    reason = reason_of_an_end(last_words)
    return reason if reason.startswith("the server ended") else f"the server ended during the run: {reason}"


def reason_of_an_end(last_words: str) -> str:
    """The first line of a server's last words, without the log that it names."""
    reason = last_words.partition("\n")[0]
    return reason.rpartition("; ")[0] if reason.endswith("ends with:") else reason


MEMORY_HINT: Final = "the server ran out of memory: fewer layers on the GPU (-ngl), a smaller -c, or --cache-type-k q8_0"
RPC_HINT: Final = "an RPC worker was lost, which ends the whole server: see the worker's log and the network to it"
_MEMORY = re.compile(r"out of memory|failed to allocate|cannot allocate|bad[_ ]alloc|cudaMalloc failed|OutOfMemory", re.IGNORECASE)
_BATCH = re.compile(r"input \((\d{1,9}) tokens\) is too large to process")
_OF_A_DEAD_SERVER = ("reset", "cut_off", "connect_refused", "connect_failed", "error_event")


def _context_exceeded(failed: FailedRequests, context: FailureContext) -> str:
    """The numbers: what the longest prompt needs, what a slot has, and the -c that is enough."""
    prompt, slot = failed.longest_prompt, context.ctx_per_slot
    if prompt is None or slot is None:
        return "start the server with a larger -c or fewer slots, or shorten the prompts"
    kind = kind_named(context.backend)
    needed = prompt + (failed.longest_answer or 1)
    needs = f"the longest needs {needed} tokens with its answer"
    if kind.divides_context and context.slots_each:
        size = -(-needed // CONTEXT_STEP) * CONTEXT_STEP
        slots = quantity(context.slots_each, "slot")
        of_all = f"-c {size * context.slots_each} or more ({slots} x {size})"
        return f"{needs}, a slot has {slot}: start the server with {of_all}, or shorten the prompts"
    return f"{needs}, the context has {slot}: start the server with {kind.context_flag} {needed} or more, or shorten the prompts"


def _kv_pool_full(failed: FailedRequests, context: FailureContext) -> str:
    """The tokens that all requests in flight may need together."""
    counts = [count for count in (context.users, context.slots_each) if count is not None]
    if failed.longest_prompt is None or not counts:
        return "the slots share one KV cache: start the server with a larger -c, or lower the load"
    in_flight, length = min(counts), failed.longest_prompt + (failed.longest_answer or 1)
    has = "" if context.ctx_per_slot is None else f", it has {context.ctx_per_slot}"
    text = f"the slots share one KV cache: {quantity(in_flight, 'request')} of up to {length} tokens need {in_flight * length}{has}"
    return f"{text}: start the server with -c {in_flight * length} or more, or lower the load"


def _first_token_timeout(failed: FailedRequests, context: FailureContext) -> str:
    users, slots = context.users, context.slots
    if users is None or slots is None or users <= slots:
        return "lower the load or raise --first-token-timeout"
    is_shown = kind_named(context.backend).holds_headers and failed.without_headers
    waited = f", {failed.without_headers} got none" if is_shown else ""
    return f"{users} users on {quantity(slots, 'slot')}{waited}; try -np {users} or a longer --first-token-timeout"


def _overloaded(failed: FailedRequests, context: FailureContext) -> str:
    if "loading model" in failed.message.lower():
        return "the server was still loading its model: wait until /health answers 200"
    slots = (
        "" if context.slots is None or context.users is None else f" ({context.users} users on {quantity(context.slots, 'slot')})"
    )
    return f"the server's queue was full{slots}: lower the load, raise the queue's limit, or send again with --retry N"


def _connect_refused(failed: FailedRequests, context: FailureContext) -> str:
    return "the server is not running at this address, or no longer: see its log"


_MADE: Mapping[str, Callable[[FailedRequests, FailureContext], str]] = {
    "context_exceeded": _context_exceeded,
    "kv_pool_full": _kv_pool_full,
    "first_token_timeout": _first_token_timeout,
    "overloaded": _overloaded,
    "connect_refused": _connect_refused,
}
_IN_TIME = {
    "connect_timeout": "no connection",
    "first_token_timeout": "no first token",
    "token_timeout": "no further token",
    "request_timeout": "no complete answer",
}
_MEANINGS = {
    "connect_refused": "connection refused",
    "connect_failed": "no connection",
    "tls": "the TLS handshake failed",
    "reset": "connection reset by the server",
    "cut_off": "cut off before the end",
    "context_exceeded": "context exceeded",
    "kv_pool_full": "shared KV cache full during the answer",
    "overloaded": "refused as overloaded (429 or 503)",
    "empty_answer": "empty answer",
    "error_event": "an error in the stream",
    "bad_event": "an event that is no JSON chunk",
    "no_stream": "no event stream",
    "protocol": "no valid HTTP",
    "too_large": "an answer beyond the size limits",
    "wrong_answer": "wrong answer",
    "client_timeout": "the locustfile stopped waiting",
    "client_error": "an error in llama-load",
}
_HINTS = {
    "connect_timeout": "the server's backlog is full or a firewall drops it; raise --connect-timeout or lower the load",
    "connect_failed": "see the message: no route, or no local port left",
    "tls": "see the message: --ca-file trusts your own CA, --insecure skips certificate verification",
    "token_timeout": "the server stalled; see its log or raise --token-timeout",
    "request_timeout": "raise --request-timeout, lower --max-tokens or lower the load",
    "reset": "see the server's log: it may have died or run out of memory",
    "cut_off": "see the server's log (llama-cpp-python: --interrupt_requests false)",
    "empty_answer": "the prompt may exceed the context",
    "error_event": "see the message and the server's log",
    "wrong_answer": "read the answers (--save-texts): the model, its chat template or settings, or the expectation is wrong",
    "no_stream": "see the message; a proxy may compress or replace the answer",
    "protocol": "is this the port of an HTTP server?",
    "client_error": "please report it with the message",
    "http_400": "see the message: the server does not accept a field of the request",
    "http_401": "give the server's key in LLAMA_LOAD_API_KEY",
    "http_403": "give the server's key in LLAMA_LOAD_API_KEY",
    "http_404": "see the message: the model's name (--model) or the path is unknown to the server",
    "http_413": "the request is larger than the server or a proxy accepts",
}
