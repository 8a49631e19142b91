"""The parts of a request (tools, system prompt, messages) with what tells whether another one has
the same."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_load.record.joined_conversations import (
    ASSISTANT,
    OTHER_ROLE,
    ROLES,
    canonical,
)
from llama_load.record.read_exchange import SeenRequest
from llama_load.servers.apis.changed_prompts import common_length, excerpt
from llama_load.servers.prompt_images import TEXT, kind_of, with_names

_REASONING = ("reasoning", "reasoning_content", "thinking")
_TOOLS = "tools"


@dataclass(frozen=True, slots=True)
class Part:
    """The tools, the system prompt or a message of a request. `digest`: of its text; `bare`: of
    the same without reasoning, or of tools in no order; `pieces`: what a message has in place of a
    text, by kind and digest."""

    name: str
    digest: bytes
    bare: bytes
    chars: int
    text: str | None
    pieces: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """A message and its answer, b"" where there are none; `loose`: of the message the first line
    alone, b"" if it has none."""

    exact: bytes = b""
    loose: bytes = b""


NO_PAIR = Pair()


@dataclass(frozen=True, slots=True)
class RequestParts:
    """All parts of a request. `repeated`: the last message and answer of its history; `own`: its
    last message and the answer to it."""

    parts: list[Part]
    repeated: Pair = NO_PAIR
    own: Pair = NO_PAIR


def chars_of(parts: Sequence[Part]) -> int:
    """Of the texts of these parts."""
    total = 0
    for part in parts:
        total += part.chars
    return total


class PartReader:
    """Reads requests. Without `keeps_texts` parts have digests alone, whose key is in memory
    alone."""

    def __init__(self, *, keeps_texts: bool = True) -> None:
        self._keeps_texts = keeps_texts
        self._key = secrets.token_bytes(32)

    def read(self, seen: SeenRequest) -> RequestParts:
        """The parts of a request, before its texts are forgotten."""
        messages = seen.messages or []
        repeated = NO_PAIR
        for number in range(len(messages) - 1, 0, -1):
            if messages[number].get("role") == ASSISTANT:
                repeated = self._pair(messages[number - 1], messages[number])
                break
        own = NO_PAIR
        if messages and seen.reply is not None:
            own = self._pair(messages[-1], seen.reply)
        return RequestParts(self._parts(seen.body), repeated, own)

    def _parts(self, body: Mapping[str, Any]) -> list[Part]:
        parts = []
        if body.get("tools"):
            parts.append(self._part(_TOOLS, body["tools"]))
        for name in ("system", "instructions"):
            if body.get(name):
                parts.append(self._part(f"{name} prompt", body[name]))
        for number, message in enumerate(_messages(body)):
            parts.append(self._part(f"message {number} ({_role_of(message)})", message))
        return parts

    def _part(self, name: str, value: Any) -> Part:
        value = with_names(value)
        text = json.dumps(value, ensure_ascii=False)
        return Part(
            name,
            self._hash(text),
            self._hash(_bare(name, value)),
            len(text),
            text if self._keeps_texts else None,
            self._pieces(value),
        )

    def _pieces(self, value: Any) -> tuple[tuple[str, bytes], ...]:
        content = value.get("content") if isinstance(value, Mapping) else None
        if not isinstance(content, list):
            return ()
        found = []
        for piece in content:
            digest = self._hash(json.dumps(piece, ensure_ascii=False))
            found.append((kind_of(piece), digest))
        return tuple(found)

    def _pair(self, message: Mapping[str, Any], answer: Mapping[str, Any]) -> Pair:
        said = canonical(answer)
        exact = self._hash(canonical(message) + said)
        first = _first_line(message)
        if not first:
            return Pair(exact)
        return Pair(exact, self._hash(json.dumps([message.get("role"), first]) + said))

    def _hash(self, text: str) -> bytes:
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=16, key=self._key).digest()


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


def _first_line(message: Mapping[str, Any]) -> str:
    """Of a message's text, without blanks around it."""
    content = message.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if kind_of(part) == TEXT]
        content = texts[0] if texts else None
    if not isinstance(content, str):
        return ""
    return content.strip().partition("\n")[0].rstrip()


def _bare(name: str, value: Any) -> str:
    if name == _TOOLS and isinstance(value, list):
        tools = [json.dumps(tool, ensure_ascii=False) for tool in value]
        return "\n".join(sorted(tools))
    if isinstance(value, Mapping):
        value = {key: each for key, each in value.items() if key not in _REASONING}
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Difference:
    """`where`: the part, "message 0 (system)"; `common`: the characters that both texts of it begin
    with; `before` and `now`: the texts from there, None if they are not kept."""

    where: str
    common: int = 0
    before: str | None = None
    now: str | None = None


def difference(before: Part, now: Part | None) -> Difference:
    """Between a part and the one in its place; None: there is none."""
    if now is None:
        return Difference(f"{before.name}, which is missing")
    where = before.name
    if before.name != now.name:
        where = f"{before.name}, now {now.name}"
    elif before.bare == now.bare:
        how = "the order" if before.name == _TOOLS else "the reasoning"
        where = f"{before.name}, {how} alone"
    else:
        where += _differing_piece(before.pieces, now.pieces)
    if before.text is None or now.text is None:
        return Difference(where)
    common = common_length(before.text, now.text)
    return Difference(
        where, common, excerpt(before.text, common), excerpt(now.text, common)
    )


def _differing_piece(
    before: Sequence[tuple[str, bytes]], now: Sequence[tuple[str, bytes]]
) -> str:
    """The first part of a message's content that differs: ", part 1 (image)"."""
    for number, (mine, its) in enumerate(zip(before, now, strict=False)):
        if mine != its:
            return f", part {number} ({mine[0]})"
    common = min(len(before), len(now))
    if 0 < common < len(before):
        return f", part {common} ({before[common][0]}), which is missing"
    if 0 < common < len(now):
        return f", part {common} ({now[common][0]}), which is new"
    return ""
