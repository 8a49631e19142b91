"""Joins requests into conversations: one goes on where its messages begin with all that an earlier
one had, its answer included.

Whatever else is a conversation of its own: a history that was edited or that branches off, an agent
beside another one, other tools, another model.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from llama_load.ground.units import ns_to_s
from llama_load.outside.foreign_json import decode_foreign, memory_bytes
from llama_load.record.chat_messages import MessageDict
from llama_load.record.read_exchange import SeenRequest

ASSISTANT = "assistant"
# Any other text in the place of a role is a text, which a digest does not hold.
ROLES = ("system", "developer", "user", "tool", "function")
OTHER_ROLE = "other"
# Conversations in memory; beyond that the one that rested longest is written, and forgotten.
MOST_BYTES = 512 << 20
# What one takes without its texts.
BYTES_OF_ONE = 3 << 10
# Of the bodies of requests, beside messages, tools and sampling.
KEPT_FIELDS = ("tool_choice", "parallel_tool_calls")
# Beginnings that are known, of all conversations; the oldest are forgotten.
MOST_BEGINNINGS = 2_000_000


@dataclass(slots=True)
class Conversation:
    """Requests that go on from each other. `messages` are as the client sent them, with `delay_s`,
    the wait before them; the last may be an answer that nothing followed. `history`: its first
    messages, which were there before the recording. Without `keeps_texts` there are no messages."""

    number: int
    first: SeenRequest
    messages: list[MessageDict] = field(default_factory=list)
    reply: MessageDict | None = None
    turns: int = 0
    history: int = 0
    last_number: int = 0
    ended_ns: int = 0
    size: int = 0
    branch_of: int | None = None
    shared: int = 0  # messages that it has in common with that one
    other_sampling: bool = False
    asked: int = 0  # messages of its last request
    place: bytes = b""  # where it may go on


@dataclass(frozen=True, slots=True)
class Turn:
    """A request's place: its conversation, its number there (from 1), the request before it, the
    wait since that one's answer in s, and the roles of the messages that it adds."""

    conversation: Conversation
    number: int
    after: int | None
    wait_s: float | None
    roles: tuple[str, ...]


class Conversations:
    """All conversations of a recording, in bounded memory. Without `keeps_texts` messages are
    known by keyed hashes alone, and the key is in memory alone."""

    def __init__(self, *, keeps_texts: bool = True) -> None:
        self._keeps_texts = keeps_texts
        self._key = secrets.token_bytes(32)
        self._open: OrderedDict[int, Conversation] = OrderedDict()
        # A conversation and how many of its messages begin so: with its last answer, before it.
        self._whole: dict[bytes, Conversation] = {}
        self._unanswered: dict[bytes, Conversation] = {}
        self._beginnings: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self.count = 0
        self.branches = 0
        self.size = 0

    def add(self, seen: SeenRequest) -> Turn:
        """Put a request with messages and a complete answer in its place."""
        messages = seen.messages or []
        chain = self._chain(seen, messages)
        found = self._continued(chain, messages)
        if found is None:
            turn = self._begin(seen, messages, chain)
        else:
            turn = self._go_on(found, seen, messages)
        conversation = turn.conversation
        self._remember(conversation, seen, chain)
        self._open.move_to_end(conversation.number)
        if not self._keeps_texts:  # nobody writes them
            for _ in self.too_large():
                pass
        return turn

    def too_large(self) -> Iterator[Conversation]:
        """Conversations to write and forget, those that rested longest first."""
        while self.size > MOST_BYTES and len(self._open) > 1:
            yield self._forget(next(iter(self._open)))

    def all(self) -> Iterator[Conversation]:
        """All that are left, in the order in which they began; they are forgotten."""
        for number in sorted(self._open):
            yield self._forget(number)

    # ------------------------------------------------------------------ places

    def _chain(self, seen: SeenRequest, messages: list[MessageDict]) -> list[bytes]:
        """A hash for each number of first messages; the first is that of none."""
        start = json.dumps([seen.model, seen.tools], sort_keys=True)
        chain = [self._hash(b"", start)]
        for message in messages:
            chain.append(self._hash(chain[-1], canonical(message)))
        return chain

    def _hash(self, before: bytes, text: str) -> bytes:
        data = before + text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=16, key=self._key).digest()

    def _continued(
        self, chain: list[bytes], messages: list[MessageDict]
    ) -> Conversation | None:
        """The conversation whose messages this request begins with: the longest."""
        for count in range(len(messages) - 1, 0, -1):
            known = self._whole.get(chain[count])
            if known is not None:
                return known
            is_answer = messages[count - 1].get("role") == ASSISTANT
            known = self._unanswered.get(chain[count - 1])
            if is_answer and known is not None:
                return known
        return None

    def _begin(
        self, seen: SeenRequest, messages: list[MessageDict], chain: list[bytes]
    ) -> Turn:
        self.count += 1
        conversation = Conversation(
            self.count, _kept_of(seen, keeps_texts=self._keeps_texts)
        )
        self._open[conversation.number] = conversation
        answers = [
            place
            for place, message in enumerate(messages, start=1)
            if message.get("role") == ASSISTANT
        ]
        conversation.history = answers[-1] if answers else 0
        for count in range(len(messages), 0, -1):
            known = self._beginnings.get(chain[count])
            if known is not None and messages[count - 1].get("role") != "system":
                conversation.branch_of, conversation.shared = known
                self.branches += 1
                break
        conversation.turns = 1
        first = conversation.first
        self._resize(conversation, BYTES_OF_ONE)
        self._resize(conversation, _size_of([first.body, first.tools, first.sampling]))
        self._keep(conversation, messages)
        roles = _roles(messages[conversation.history :])
        return Turn(conversation, 1, None, None, roles)

    def _go_on(
        self, conversation: Conversation, seen: SeenRequest, messages: list[MessageDict]
    ) -> Turn:
        # The answer is kept as the client sends it back.
        before = conversation.asked
        wait_s = max(0.0, ns_to_s(seen.started_ns - conversation.ended_ns))
        added = [dict(message) for message in messages[before:]]
        asked = [message for message in added if message.get("role") != ASSISTANT]
        if asked:
            asked[0]["delay_s"] = round(wait_s, 3)
        after = conversation.last_number
        if self._keeps_texts and seen.sampling != conversation.first.sampling:
            conversation.other_sampling = True
        conversation.turns += 1
        self._keep(conversation, added)
        turn = conversation.turns
        return Turn(conversation, turn, after, wait_s, _roles(added))

    def _keep(self, conversation: Conversation, added: list[MessageDict]) -> None:
        if self._keeps_texts:
            conversation.messages += added
            self._resize(conversation, _size_of(added))

    def _resize(self, conversation: Conversation, by: int) -> None:
        conversation.size += by
        self.size += by

    def _remember(
        self, conversation: Conversation, seen: SeenRequest, chain: list[bytes]
    ) -> None:
        """Where a later request may go on."""
        self._unlink(conversation)
        conversation.asked = len(chain) - 1
        if self._keeps_texts:
            self._resize(conversation, -_size_of(conversation.reply))
            conversation.reply = seen.reply
            self._resize(conversation, _size_of(conversation.reply))
        conversation.last_number = seen.number
        conversation.ended_ns = seen.ended_ns
        if seen.reply is None:
            conversation.place = chain[-1]
            self._unanswered[conversation.place] = conversation
        else:
            conversation.place = self._hash(chain[-1], canonical(seen.reply))
            self._whole[conversation.place] = conversation
        for count, beginning in enumerate(chain[1:], start=1):
            self._beginnings.setdefault(beginning, (conversation.number, count))
        while len(self._beginnings) > MOST_BEGINNINGS:
            self._beginnings.popitem(last=False)

    def _unlink(self, conversation: Conversation) -> None:
        for places in (self._whole, self._unanswered):
            if places.get(conversation.place) is conversation:
                del places[conversation.place]

    def _forget(self, number: int) -> Conversation:
        conversation = self._open.pop(number)
        self._unlink(conversation)
        self.size -= conversation.size
        return conversation


def _kept_of(seen: SeenRequest, *, keeps_texts: bool) -> SeenRequest:
    """The first request with what its conversation keeps of it."""
    kept = replace(seen, body={}, messages=None, prompt=None, reply=None, reply_text="")
    if keeps_texts:
        kept.body = {name: seen.body[name] for name in KEPT_FIELDS if name in seen.body}
    else:
        kept.model = ""
        kept.tools = []
        kept.sampling = {}
    return kept


def _size_of(value: object) -> int:
    """What it takes in memory, about."""
    return memory_bytes(msgspec.json.encode(value))


def _roles(messages: list[MessageDict]) -> tuple[str, ...]:
    roles = []
    for message in messages:
        role = message.get("role")
        if role == ASSISTANT:
            continue
        roles.append(str(role) if role in ROLES else OTHER_ROLE)
    return tuple(roles)


def canonical(message: Mapping[str, Any]) -> str:
    """What is the same in an answer and in the history that a client sends: without blanks around
    texts, and the arguments of calls by their values."""
    content = message.get("content")
    if isinstance(content, str):
        content = content.strip()
    calls = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            calls.append(
                [function.get("name"), _value_of_arguments(function.get("arguments"))]
            )
    parts = [message.get("role"), content or "", calls, message.get("tool_call_id")]
    return json.dumps(parts, sort_keys=True, default=str)


def _value_of_arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return decode_foreign(arguments.encode("utf-8", "surrogatepass"))
    except ValueError:
        return arguments
