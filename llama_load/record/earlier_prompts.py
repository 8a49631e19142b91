"""What each request shares with the prompt before it in its conversation, as the client sent both:
the first part in which they differ.

A client that edits its history (a new date in the system prompt, other tools, dropped reasoning)
begins a new conversation in the file, but for the server's cache it goes on with the old one. Here
a request goes on with the one whose last message and answer it repeats.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llama_load.record.differing_token import differing_token
from llama_load.record.digest_lines import prompt_body
from llama_load.record.joined_conversations import (
    ASSISTANT,
    OTHER_ROLE,
    ROLES,
    Turn,
    canonical,
)
from llama_load.record.read_exchange import SeenRequest
from llama_load.record.token_blocks import ServerTokens
from llama_load.targets.apis.changed_prompts import common_length, excerpt
from llama_load.topics.reprocessing import cacheable_tokens, lost_tokens

# Prompts in memory; beyond that the conversations that rested longest are forgotten.
MOST_BYTES = 128 << 20
# So many questions for tokens in a row without an answer, and the server is not asked again.
MOST_UNANSWERED = 3
# What a part takes without its text.
BYTES_OF_PART = 400
_REASONING = ("reasoning", "reasoning_content", "thinking")
_TOOLS = "tools"


@dataclass(frozen=True, slots=True)
class _Part:
    """The tools, the system prompt or a message of a request. `digest`: of its text; `bare`: of
    the same without reasoning, or of tools in no order."""

    name: str
    digest: bytes
    bare: bytes
    chars: int
    text: str | None


@dataclass(slots=True)
class _Thread:
    """A conversation as the server's cache sees it. `asked`: the pair of its last message and its
    answer."""

    number: int
    turns: int = 0
    parts: list[_Part] = field(default_factory=list)
    asked: bytes = b""
    prompt_tokens: int | None = None
    last_request: int = 0
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PlacedPrompt:
    """A request's place: its conversation, by its first one's number; its turn, from 1; the tokens
    of the prompt before, None for the first and where they are unknown.

    `earlier_chars`: of the prompt before; `common_chars`: how many this one begins with.
    `changed_in`: the first part that differs, "message 0 (system)"; `before` and `now`: its texts
    from there, None in a digest. `token`: the first token that differs, None where the server was
    not asked or cannot tell; where no part differs, the texts are those of the chat template.
    """

    conversation: int
    turn: int
    earlier_tokens: int | None = None
    earlier_chars: int | None = None
    common_chars: int | None = None
    changed_in: str | None = None
    before: str | None = None
    now: str | None = None
    token: int | None = None


class EarlierPrompts:
    """The last prompt of each conversation. Without `keeps_texts` there are digests of its parts
    alone, whose key is in memory alone. `server`: is asked for the first token that differs."""

    def __init__(
        self, *, keeps_texts: bool = True, server: ServerTokens | None = None
    ) -> None:
        self._keeps_texts = keeps_texts
        self._server = server
        self._unanswered = 0
        self._key = secrets.token_bytes(32)
        self._threads: OrderedDict[int, _Thread] = OrderedDict()
        self._by_asked: dict[bytes, _Thread] = {}
        self._by_request: dict[int, _Thread] = {}
        self._size = 0

    def parts(self, seen: SeenRequest) -> list[_Part]:
        """The parts of a request, before its texts are forgotten."""
        body = seen.body
        parts = []
        if body.get("tools"):
            parts.append(self._part(_TOOLS, body["tools"]))
        for name in ("system", "instructions"):
            if body.get(name):
                parts.append(self._part(f"{name} prompt", body[name]))
        for number, message in enumerate(_messages(body)):
            parts.append(self._part(f"message {number} ({_role_of(message)})", message))
        return parts

    def asked(self, seen: SeenRequest) -> tuple[bytes, bytes]:
        """Two pairs of a message and its answer: the last of the history, b"" where there is none;
        and that of this request."""
        messages = seen.messages or []
        repeated = b""
        for number in range(len(messages) - 1, 0, -1):
            if messages[number].get("role") == ASSISTANT:
                repeated = self._pair(messages[number - 1], messages[number])
                break
        own = b""
        if messages and seen.reply is not None:
            own = self._pair(messages[-1], seen.reply)
        return repeated, own

    def placed(
        self,
        seen: SeenRequest,
        parts: list[_Part],
        asked: tuple[bytes, bytes],
        turn: Turn,
    ) -> PlacedPrompt:
        """The place of a request that is this turn of the recording."""
        repeated, own = asked
        thread = None
        if turn.after is not None:
            thread = self._by_request.get(turn.after)
        if thread is None and repeated:
            thread = self._by_asked.get(repeated)
        if thread is None:
            thread = _Thread(turn.conversation.number)
        place = _compared(thread, parts)
        if self._server is not None and thread.body is not None:
            place = self._with_token(place, thread.body, seen, self._server)
        self._remember(thread, seen, parts, own)
        return place

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
        if not found.is_there:
            return place
        if place.changed_in is not None:
            return replace(place, token=found.index)
        return replace(place, token=found.index, before=found.before, now=found.now)

    def _remember(
        self, thread: _Thread, seen: SeenRequest, parts: list[_Part], own: bytes
    ) -> None:
        self._forget(thread)
        thread.turns += 1
        thread.parts = parts
        thread.asked = own
        thread.prompt_tokens = seen.prompt_tokens
        thread.last_request = seen.number
        if self._server is not None:
            thread.body = prompt_body(seen)
        self._threads[thread.number] = thread
        self._by_request[seen.number] = thread
        if own:
            self._by_asked[own] = thread
        self._size += self._size_of(parts)
        while len(self._threads) > 1 and self._size > MOST_BYTES:
            self._forget(next(iter(self._threads.values())))

    def _forget(self, thread: _Thread) -> None:
        if self._threads.pop(thread.number, None) is None:
            return
        del self._by_request[thread.last_request]
        if self._by_asked.get(thread.asked) is thread:
            del self._by_asked[thread.asked]
        self._size -= self._size_of(thread.parts)

    def _size_of(self, parts: Sequence[_Part]) -> int:
        texts = _chars(parts) if self._keeps_texts else 0
        if self._server is not None:
            texts *= 2  # they are in the body as well
        return texts + BYTES_OF_PART * (len(parts) + 1)

    def _part(self, name: str, value: Any) -> _Part:
        text = json.dumps(value, ensure_ascii=False)
        return _Part(
            name,
            self._hash(text),
            self._hash(_bare(name, value)),
            len(text),
            text if self._keeps_texts else None,
        )

    def _pair(self, message: Mapping[str, Any], answer: Mapping[str, Any]) -> bytes:
        return self._hash(canonical(message) + canonical(answer))

    def _hash(self, text: str) -> bytes:
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=16, key=self._key).digest()


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


def _messages(body: Mapping[str, Any]) -> Sequence[Any]:
    """Those of the chat and messages APIs, or the items of the responses API."""
    messages = body.get("messages", body.get("input"))
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    return messages if isinstance(messages, list) else []


def _role_of(message: Any) -> str:
    """Any other text in the place of a role is a text, which a digest does not hold."""
    role = message.get("role", "user") if isinstance(message, Mapping) else None
    return str(role) if role in (ASSISTANT, *ROLES) else OTHER_ROLE


def _bare(name: str, value: Any) -> str:
    if name == _TOOLS and isinstance(value, list):
        tools = [json.dumps(tool, ensure_ascii=False) for tool in value]
        return "\n".join(sorted(tools))
    if isinstance(value, Mapping):
        value = {key: each for key, each in value.items() if key not in _REASONING}
    return json.dumps(value, ensure_ascii=False)


def _chars(parts: Sequence[_Part]) -> int:
    total = 0
    for part in parts:
        total += part.chars
    return total


def _compared(thread: _Thread, parts: Sequence[_Part]) -> PlacedPrompt:
    """These parts beside those of the prompt before."""
    turn = thread.turns + 1
    if not thread.parts:
        return PlacedPrompt(thread.number, turn)
    common = 0
    for number, before in enumerate(thread.parts):
        now = parts[number] if number < len(parts) else None
        if now is None or now.digest != before.digest:
            found = _difference(before, now)
            return PlacedPrompt(
                thread.number,
                turn,
                thread.prompt_tokens,
                _chars(thread.parts),
                common + found.common,
                found.where,
                found.before,
                found.now,
            )
        common += before.chars
    return PlacedPrompt(thread.number, turn, thread.prompt_tokens, common, common)


@dataclass(frozen=True, slots=True)
class _Difference:
    where: str
    common: int = 0
    before: str | None = None
    now: str | None = None


def _difference(before: _Part, now: _Part | None) -> _Difference:
    if now is None:
        return _Difference(f"{before.name}, which is missing")
    where = before.name
    if before.name != now.name:
        where = f"{before.name}, now {now.name}"
    elif before.bare == now.bare:
        how = "the order" if before.name == _TOOLS else "the reasoning"
        where = f"{before.name}, {how} alone"
    if before.text is None or now.text is None:
        return _Difference(where)
    common = common_length(before.text, now.text)
    return _Difference(
        where, common, excerpt(before.text, common), excerpt(now.text, common)
    )
