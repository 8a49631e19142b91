"""Agentic traces of kv-cache-tester (published by WEKA): conversations with lengths, block ids,
waits and sub-agents, no texts.

    {"id": "…", "block_size": 64, "requests": [
        {"t": 0.0, "type": "s" or "n", "in": 25259, "out": 86, "hash_ids": [1, 2, …], "think_time":
        1.5, "api_time": 2.0}, {"t": 9.1, "type": "subagent", "agent_id": "…", "requests": […]}]}

The text of a block depends on its id, so prompts that begin with the same ids begin with the same
text. A request whose ids go on from those of the one before continues the conversation; another one
(the client compacted its context) begins a new context. Source:
https://github.com/callanjfox/kv-cache-tester, docs/trace_replay_tester.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Any

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.block_text import BlockText
from llama_load.loadgen.workloads.data_files import ASSISTANT, USER
from llama_load.loadgen.workloads.prompt_plan import PlanRequest
from llama_load.loadgen.workloads.talks import RecordedTurn, Talk, recorded_wait_s
from llama_load.outside.foreign_text import printable
from llama_load.servers.prompt import Message

MOST_TOKENS = 10**7
KINDS = ("s", "n", "subagent")


class _Entry(msgspec.Struct):
    type: str
    t: float = 0.0
    input_tokens: int | None = msgspec.field(default=None, name="in")
    output_tokens: int | None = msgspec.field(default=None, name="out")
    hash_ids: tuple[int, ...] = ()
    think_time: float | None = None
    api_time: float | None = None
    agent_id: str | None = None
    requests: list[Any] = []


class _Maker:
    """Makes one trace's conversations."""

    def __init__(self, name: str, scope: str, text: BlockText, where: str) -> None:
        self._name = name
        self._scope = scope
        self._text = text
        self._where = where
        self._numbers = count(1)

    def turns(
        self, entries: Sequence[Any], who: str, where: str
    ) -> Iterator[RecordedTurn]:
        """The turns of an agent; a sub-agent belongs to the turn before it."""
        waiting: RecordedTurn | None = None
        before: _Entry | None = None
        for number, given in enumerate(entries, start=1):
            place = f"{where}, request {number}"
            entry = _entry_of_trace(given, place)
            if entry.type == "subagent":
                if waiting is None:
                    raise UsageError(
                        f"{place} is a sub-agent before the first request; its parent must have one"
                    )
                waiting = replace(
                    waiting, agents=(*waiting.agents, self._agent(entry, place))
                )
                continue
            if waiting is not None:
                yield waiting
            waiting = self._turn(entry, before, f"{who} {number}", place)
            before = entry
        if waiting is not None:
            yield waiting

    def _agent(self, entry: _Entry, where: str) -> Talk:
        name = f"{printable(entry.agent_id or 'agent', 60)} {next(self._numbers)}"
        if any(
            isinstance(request, Mapping) and request.get("type") == "subagent"
            for request in entry.requests
        ):
            raise UsageError(
                f"{where} has sub-agents of its own; only one level of them can be sent"
            )
        turns = tuple(self.turns(entry.requests, name, where))
        if not turns:
            raise UsageError(f"{where} is a sub-agent without requests; leave it out")
        return Talk(self._name, (), turns, name=name)

    def _turn(
        self, entry: _Entry, before: _Entry | None, name: str, where: str
    ) -> RecordedTurn:
        tokens = entry.input_tokens
        output = entry.output_tokens
        if (
            tokens is None
            or not 0 < tokens <= MOST_TOKENS
            or output is None
            or not 0 <= output <= MOST_TOKENS
        ):
            raise UsageError(
                f"{where} needs the tokens of its prompt (in, 1 or more) and of its answer (out)"
            )
        output = max(1, output)
        history = 0
        ids = entry.hash_ids
        if (
            before is not None
            and ids[: len(before.hash_ids) - 1] == before.hash_ids[:-1]
        ):
            history = (before.input_tokens or 0) + max(1, before.output_tokens or 0)
        goes_on = before is not None and 0 < history < tokens
        if before is not None and goes_on:
            tokens = tokens - history
            ids = ids[len(before.hash_ids) :]
        text, count_ = self._text.prompt(
            self._blocks(ids, name), max(self._text.least, tokens)
        )
        reply, _ = self._text.prompt(
            self._blocks((), f"{name} answer"), max(self._text.least, output)
        )
        return RecordedTurn(
            (Message(USER, text),),
            Message(ASSISTANT, reply),
            _delay(entry, before, where),
            output,
            tokens=count_,
            resets=before is not None and not goes_on,
        )

    def _blocks(self, ids: Sequence[int], own: str) -> Iterator[str]:
        return chain(
            (f"id {self._scope}{hash_id}" for hash_id in ids),
            (f"{self._name} {own} {number}" for number in count()),
        )


def trace_text(first: Mapping[str, Any], request: PlanRequest, where: str) -> BlockText:
    """The text of all traces, in blocks of the first one's size."""
    size = first.get("block_size", 64)
    if isinstance(size, bool) or not isinstance(size, int) or not 8 <= size <= 4096:
        raise UsageError(
            f"{where} has the block_size {printable(repr(size), 60)}; it must be 8 to 4096 tokens"
        )
    return BlockText(request.content_seed, request.counter, size)


def talk_of_trace(
    trace: Mapping[str, Any], name: str, text: BlockText, where: str
) -> Talk:
    """The conversation of a trace. UsageError names the request that is not understood."""
    requests = trace.get("requests")
    if not isinstance(requests, list) or not requests:
        raise UsageError(f"{where} is a trace without requests; leave it out")
    if trace.get("block_size", text.block_tokens) != text.block_tokens:
        raise UsageError(
            f"{where} has blocks of another size than the first trace; send traces of one "
            "block_size in a run"
        )
    name = printable(str(trace.get("id") or name), 60)
    # Ids of a local scope mean the same text within their trace alone.
    scope = "" if trace.get("hash_id_scope") == "global" else f"{name} "
    turns = tuple(_Maker(name, scope, text, where).turns(requests, "", where))
    if not turns:
        raise UsageError(f"{where} is a trace without requests; leave it out")
    return Talk(name, (), turns)


def _entry_of_trace(given: Any, where: str) -> _Entry:
    try:
        entry = msgspec.convert(given, _Entry)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where} is not understood: {error}") from None
    if entry.type not in KINDS:
        raise UsageError(
            f"{where} has the type {printable(entry.type, 60)!r}; known are {', '.join(KINDS)}"
        )
    return entry


def _delay(entry: _Entry, before: _Entry | None, where: str) -> float | None:
    """The client's wait: think_time, else the time since the request before, less what the server
    took for it."""
    if before is None:
        return None
    if entry.think_time is not None:
        return recorded_wait_s(entry.think_time, where)
    return recorded_wait_s(entry.t - before.t - (before.api_time or 0.0), where)
