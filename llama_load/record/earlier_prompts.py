"""What each request shares with the prompt before it in its conversation, as the client sent both:
the first part in which they differ.

A client that edits its history (a new date in the system prompt, other tools, dropped reasoning)
begins a new conversation in the file, but for the server's cache it goes on with the old one. Here
a request goes on with the one whose last message and answer it repeats; of the message its first
line is enough, because clients such as aider send reminders below the last question alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from llama_load.analysis.topics.reprocessing import cacheable_tokens, lost_tokens
from llama_load.outside.foreign_json import memory_bytes
from llama_load.record.digest_lines import BESIDE_MESSAGES, PromptBlocks, prompt_body
from llama_load.record.joined_conversations import Turn
from llama_load.record.read_exchange import SeenRequest
from llama_load.record.request_parts import (
    NO_PAIR,
    Pair,
    Part,
    PartReader,
    RequestParts,
    chars_of,
    difference,
)
from llama_load.servers.differing_token import (
    TokenPlace,
    differing_block,
    differing_token,
)
from llama_load.servers.prompt_images import with_names
from llama_load.servers.token_blocks import ServerTokens

# Prompts in memory; beyond that the conversations that rested longest are forgotten.
MOST_BYTES = 128 << 20
# So many questions for tokens in a row without an answer, and the server is not asked again.
MOST_UNANSWERED = 3
# What a part takes without its text, and a block's number.
BYTES_OF_PART = 400
BYTES_OF_NUMBER = 8
# What a part of a message takes: its kind and its digest.
BYTES_OF_PIECE = 160


@dataclass(slots=True)
class _Thread:
    """A conversation as the server's cache sees it, with its last request. `size`: bytes that it
    takes."""

    number: int
    turns: int = 0
    parts: list[Part] = field(default_factory=list)
    asked: Pair = NO_PAIR
    prompt_tokens: int | None = None
    last_request: int = 0
    body: Mapping[str, Any] | None = None
    blocks: PromptBlocks | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class PlacedPrompt:
    """A request's place: its conversation, by its first one's number; its turn, from 1; the tokens
    of the prompt before, None for the first and where they are unknown.

    `earlier_chars`: of the prompt before; `common_chars`: how many this one begins with.
    `changed_in`: the first part that differs, "message 0 (system)"; `before` and `now`: its texts
    from there, None in a digest. `token`: where the tokens differ, in a digest by their blocks;
    None where the server was not asked or cannot tell. Where no part differs, the texts are those
    of the chat template.
    """

    conversation: int
    turn: int
    earlier_tokens: int | None = None
    earlier_chars: int | None = None
    common_chars: int | None = None
    changed_in: str | None = None
    before: str | None = None
    now: str | None = None
    token: TokenPlace | None = None


class EarlierPrompts:
    """The last prompt of each conversation. Without `keeps_texts` there are digests of its parts
    alone, whose key is in memory alone. `server`: is asked for the first token that differs."""

    def __init__(
        self, *, keeps_texts: bool = True, server: ServerTokens | None = None
    ) -> None:
        self._keeps_texts = keeps_texts
        self._server = server
        self._unanswered = 0
        self._reader = PartReader(keeps_texts=keeps_texts)
        self._threads: OrderedDict[int, _Thread] = OrderedDict()
        self._by_asked: dict[bytes, _Thread] = {}
        self._by_loosely_asked: dict[bytes, _Thread] = {}
        self._by_request: dict[int, _Thread] = {}
        self._size = 0

    def parts(self, seen: SeenRequest) -> RequestParts:
        """The parts of a request, before its texts are forgotten."""
        return self._reader.read(seen)

    def placed(
        self,
        seen: SeenRequest,
        parts: RequestParts,
        turn: Turn,
        blocks: PromptBlocks | None = None,
    ) -> PlacedPrompt:
        """The place of a request that is this turn of the recording; `blocks`: of a digest."""
        thread = self._thread_of(parts.repeated, turn)
        if thread is None:
            thread = _Thread(turn.conversation.number)
        place = _compared(thread, parts.parts)
        if self._server is not None and thread.body is not None:
            place = self._with_token(place, thread.body, seen, self._server)
        if blocks is not None and thread.blocks is not None:
            place = _with_block(place, thread.blocks, blocks, seen)
        self._remember(thread, seen, parts, blocks)
        return place

    def _thread_of(self, repeated: Pair, turn: Turn) -> _Thread | None:
        """The one that a request goes on with."""
        if turn.after is not None:
            thread = self._by_request.get(turn.after)
            if thread is not None:
                return thread
        thread = self._by_asked.get(repeated.exact)
        if thread is not None:
            return thread
        return self._by_loosely_asked.get(repeated.loose)

    def _with_token(
        self,
        place: PlacedPrompt,
        before: Mapping[str, Any],
        seen: SeenRequest,
        server: ServerTokens,
    ) -> PlacedPrompt:
        """The place with the token, of a prompt that changed or was processed again."""
        is_asked = place.changed_in is not None or bool(again_tokens(seen, place))
        if not is_asked or self._unanswered >= MOST_UNANSWERED:
            return place
        found = differing_token(server, before, prompt_body(seen))
        if found is None:
            self._unanswered += 1
            return place
        self._unanswered = 0
        if found.place is None:
            return place
        if place.changed_in is not None:
            return replace(place, token=found.place)
        return replace(place, token=found.place, before=found.before, now=found.now)

    def _remember(
        self,
        thread: _Thread,
        seen: SeenRequest,
        parts: RequestParts,
        blocks: PromptBlocks | None,
    ) -> None:
        self._forget(thread)
        thread.turns += 1
        thread.parts = parts.parts
        thread.asked = parts.own
        thread.prompt_tokens = seen.prompt_tokens
        thread.last_request = seen.number
        thread.blocks = blocks
        if self._server is not None:
            thread.body = with_names(prompt_body(seen))
        thread.size = self._size_of(thread)
        self._threads[thread.number] = thread
        self._by_request[seen.number] = thread
        if parts.own.exact:
            self._by_asked[parts.own.exact] = thread
        if parts.own.loose:
            self._by_loosely_asked[parts.own.loose] = thread
        self._size += thread.size
        while len(self._threads) > 1 and self._size > MOST_BYTES:
            self._forget(next(iter(self._threads.values())))

    def _forget(self, thread: _Thread) -> None:
        if self._threads.pop(thread.number, None) is None:
            return
        del self._by_request[thread.last_request]
        _unlink(self._by_asked, thread.asked.exact, thread)
        _unlink(self._by_loosely_asked, thread.asked.loose, thread)
        self._size -= thread.size

    def _size_of(self, thread: _Thread) -> int:
        texts = chars_of(thread.parts) if self._keeps_texts else 0
        if self._server is not None:
            texts *= 2  # they are in the body as well
        size = texts + BYTES_OF_PART * (len(thread.parts) + 1)
        for part in thread.parts:
            size += BYTES_OF_PIECE * len(part.pieces)
        if thread.body is not None:
            others = {name: thread.body.get(name) for name in BESIDE_MESSAGES}
            size += memory_bytes(msgspec.json.encode(others))
        if thread.blocks is not None:
            size += BYTES_OF_NUMBER * len(thread.blocks.numbers)
        return size


def _unlink(known: dict[bytes, _Thread], name: bytes, thread: _Thread) -> None:
    if known.get(name) is thread:
        del known[name]


def _with_block(
    place: PlacedPrompt, before: PromptBlocks, now: PromptBlocks, seen: SeenRequest
) -> PlacedPrompt:
    """The place with the block, of a prompt that changed or was processed again."""
    is_changed = place.changed_in is not None or bool(again_tokens(seen, place))
    if not is_changed or before.source != now.source:
        return place
    return replace(place, token=differing_block(before.numbers, now.numbers))


def again_tokens(seen: SeenRequest, place: PlacedPrompt) -> int | None:
    """How many tokens of a prompt were processed again; None if that is not known."""
    if (
        place.earlier_tokens is None
        or seen.prompt_tokens is None
        or seen.cached_tokens is None
    ):
        return None
    could = cacheable_tokens(place.earlier_tokens, seen.prompt_tokens)
    return lost_tokens(could, seen.cached_tokens)


def _compared(thread: _Thread, parts: list[Part]) -> PlacedPrompt:
    """These parts beside those of the prompt before."""
    turn = thread.turns + 1
    if not thread.parts:
        return PlacedPrompt(thread.number, turn)
    common = 0
    for number, before in enumerate(thread.parts):
        now = parts[number] if number < len(parts) else None
        if now is None or now.digest != before.digest:
            found = difference(before, now)
            return PlacedPrompt(
                thread.number,
                turn,
                thread.prompt_tokens,
                chars_of(thread.parts),
                common + found.common,
                found.where,
                found.before,
                found.now,
            )
        common += before.chars
    return PlacedPrompt(thread.number, turn, thread.prompt_tokens, common, common)
