"""Prompts as blocks of tokens with numbers in place of texts, as published traces have them.

A block's number stands for its 16 tokens and all before them: two prompts whose first numbers are
the same begin with the same tokens. The tokens come from the server, which puts the messages into
its own template (llama-server: /apply-template and /tokenize; vLLM: /tokenize), from a
tokenizer.json, or from an estimate. Hashes have a key that is in memory alone, and the numbers are
given in the order of appearance, so that no text can be looked up by them.

An image is as many tokens as the prompt has beside its text, by the server's own count, where
llama-server tells the image's place in the template.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from llama_load.outside.plain_http import NoAnswerError, Session
from llama_load.servers.block_tokens import BAILIAN_BLOCK
from llama_load.servers.json_fields import fields
from llama_load.servers.prompt_images import image_names, with_names, with_pixels

# Numbers that are remembered: 80 million tokens. Beyond that the oldest are forgotten.
MOST_BLOCKS = 5_000_000
TIMEOUT_S = 60
# Of an image's digest, in the text of a prompt.
SHOWN_DIGITS = 12
# So many questions in a row without an answer, and the server is not asked again.
MOST_UNANSWERED = 3
# Images whose sizes are remembered.
MOST_IMAGES = 100_000
# Of llama-server's template, in the place of an image; newer builds add letters of their own.
_MARKER = re.compile(r"<__media(?:_\w+)?__>")
# Estimated tokens: words in pieces of four letters, and single characters of other scripts.
_PIECE = re.compile(r"\s?[a-zA-Z]{1,5}|\s?[0-9]{1,3}|\s+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CountedTokens:
    """The tokens of a prompt, and what they come from."""

    tokens: list[Any]
    source: str


class PromptTokens(Protocol):
    """Turns requests into tokens."""

    @property
    def source(self) -> str:
        """What they come from."""

    def tokens(
        self, body: Mapping[str, Any], length: int | None
    ) -> CountedTokens | None:
        """The tokens of a request's prompt, in the layout of the chat API, or of completions with
        `prompt`; None: it cannot tell. `length`: as many as the answer reported."""


class Blocks:
    """Gives numbers to blocks."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        self._count = 0

    def of(self, tokens: Sequence[Any]) -> list[int]:
        """The numbers of these tokens' whole blocks."""
        found = []
        before = b""
        for begin in range(0, len(tokens) - BAILIAN_BLOCK + 1, BAILIAN_BLOCK):
            block = json.dumps(tokens[begin : begin + BAILIAN_BLOCK])
            data = before + block.encode("utf-8", "surrogatepass")
            before = hashlib.blake2b(data, digest_size=16, key=self._key).digest()
            found.append(self._number(before))
        return found

    def _number(self, block: bytes) -> int:
        number = self._numbers.get(block)
        if number is not None:
            self._numbers.move_to_end(block)
            return number
        self._count += 1
        self._numbers[block] = self._count
        if len(self._numbers) > MOST_BLOCKS:
            self._numbers.popitem(last=False)
        return self._count


@dataclass(frozen=True, slots=True)
class ImageToken:
    """An image in the place of its tokens, whose number is not known."""

    name: str


@dataclass(frozen=True, slots=True)
class ServerPrompt:
    """A prompt as a server has it: its tokens, with an `ImageToken` per image, and the text that
    they are made of, None where it does not give that."""

    tokens: list[Any]
    text: str | None = None


class ServerTokens:
    """Tokens of the server that answers the requests. Nothing is generated for it."""

    source = "the server"

    def __init__(self, session: Session, url: str) -> None:
        self._session = session
        self._url = url
        self._unanswered = 0
        self._sizes = _ImageSizes()

    def tokens(
        self, body: Mapping[str, Any], length: int | None
    ) -> CountedTokens | None:
        """See `PromptTokens`."""
        prompt = self.prompt(body)
        if prompt is None:
            return None
        found = self._sizes.expanded(prompt.tokens, length)
        return None if found is None else CountedTokens(found, self.source)

    def prompt(self, body: Mapping[str, Any]) -> ServerPrompt | None:
        """The prompt of a request. None: the server does not have these endpoints, or cannot tell
        where images are."""
        if "messages" not in body:
            text = body.get("prompt")
            return _server_prompt(self._tokenized(text), text)
        images = image_names(body["messages"])
        if images is None:
            return None

        known = ("model", "messages", "tools", "tool_choice", "chat_template_kwargs")
        asked = {name: body[name] for name in known if body.get(name) is not None}
        if images:
            asked["messages"] = with_pixels(body["messages"])
        text = self._posted("/apply-template", asked).get("prompt")
        if isinstance(text, str):
            return self._of_template(text, images)
        if images:
            return None
        return _server_prompt(self._posted("/tokenize", asked).get("tokens"), None)

    def _of_template(self, text: str, images: Sequence[str]) -> ServerPrompt | None:
        """The tokens of a prompt as the template has it, with a marker for each image."""
        pieces = [text]
        if images:
            pieces = _MARKER.split(text)
        if len(pieces) != len(images) + 1:
            return None
        tokens: list[Any] = []
        shown = ""
        for number, piece in enumerate(pieces):
            if number:
                name = images[number - 1]
                tokens.append(ImageToken(name))
                shown += f"<image {name[:SHOWN_DIGITS]}>"
            shown += piece
            found = self._tokenized(piece, is_first=not number, parse_special=True)
            if found is None:
                return None
            tokens += found
        return ServerPrompt(tokens, shown)

    def _tokenized(
        self, text: Any, *, is_first: bool = True, **more: bool
    ) -> list[Any] | None:
        """llama-server takes `content`, vLLM `prompt`."""
        asked = {**more, "add_special": is_first, "content": text, "prompt": text}
        found = self._posted("/tokenize", asked).get("tokens")
        return found if isinstance(found, list) else None

    def _posted(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._unanswered >= MOST_UNANSWERED:
            return {}
        try:
            answer = self._session.post(
                self._url + path, dict(body), within_s=TIMEOUT_S
            )
            self._unanswered = 0
            return fields(answer.json()) if answer.ok else {}
        except NoAnswerError:
            self._unanswered += 1
            return {}
        except ValueError:
            return {}


def _server_prompt(tokens: Any, text: Any) -> ServerPrompt | None:
    if not isinstance(tokens, list):
        return None
    return ServerPrompt(tokens, text if isinstance(text, str) else None)


class _ImageSizes:
    """The tokens of images, by the prompts in which they were."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def expanded(self, tokens: list[Any], length: int | None) -> list[Any] | None:
        """Tokens with as many in place of each image as the prompt of this length has beside its
        text; None: that is not known."""
        images = [each.name for each in tokens if isinstance(each, ImageToken)]
        if not images:
            return tokens
        if length is None:
            return None
        self._learn(images, length - (len(tokens) - len(images)))
        found: list[Any] = []
        for each in tokens:
            if isinstance(each, ImageToken):
                size = self._sizes.get(each.name, 0)
                found += [f"{each.name} {number}" for number in range(size)]
            else:
                found.append(each)
        return found

    def _learn(self, images: Sequence[str], together: int) -> None:
        """Of these images, which have so many tokens together: an equal share for each new one."""
        known = sum(self._sizes.get(name, 0) for name in images)
        new = [name for name in images if name not in self._sizes]
        for name in new:
            self._sizes[name] = max(0, together - known) // len(new)
        while len(self._sizes) > MOST_IMAGES:
            self._sizes.popitem(last=False)


class FileTokens:
    """Tokens of a tokenizer.json; messages are joined without a chat template."""

    def __init__(self, path: Path) -> None:
        """UsageError: it cannot be read."""
        from llama_load.servers.counting import LocalCounter

        self._counter = LocalCounter(path)
        self.source = self._counter.source

    def tokens(
        self, body: Mapping[str, Any], length: int | None
    ) -> CountedTokens | None:
        """See `PromptTokens`."""
        return CountedTokens(self._counter.ids(_text_of(body)), self.source)


class EstimatedTokens:
    """Pieces of about a token each. Lengths are off by 20 % and more; shared beginnings are
    those of the texts."""

    source = "an estimate"

    def tokens(
        self, body: Mapping[str, Any], length: int | None
    ) -> CountedTokens | None:
        """See `PromptTokens`."""
        return CountedTokens(_PIECE.findall(_text_of(body)), self.source)


class FirstThatCan:
    """The tokens of the first of these that can tell them. `source`: of all that were needed."""

    def __init__(self, *ways: PromptTokens) -> None:
        self._ways = ways
        self._used: dict[str, int] = {}

    @property
    def source(self) -> str:
        """What the tokens come from, the estimated prompts counted."""
        if len(self._used) < 2:
            return next(iter(self._used), self._ways[0].source)
        return ", ".join(f"{name} ({count})" for name, count in self._used.items())

    def tokens(
        self, body: Mapping[str, Any], length: int | None
    ) -> CountedTokens | None:
        """See `PromptTokens`."""
        for way in self._ways:
            found = way.tokens(body, length)
            if found is not None and found.tokens:
                self._used[found.source] = self._used.get(found.source, 0) + 1
                return found
        return None


def _text_of(body: Mapping[str, Any]) -> str:
    """The text of a prompt without a template: tools, then each message with its role."""
    if "messages" not in body:
        return str(body.get("prompt") or "")
    parts = [json.dumps(body["tools"])] if body.get("tools") else []
    for message in body["messages"]:
        content = message.get("content")
        text = content
        if not isinstance(content, str):
            text = json.dumps(with_names(content or ""))
        calls = message.get("tool_calls")
        more = json.dumps(calls) if calls else ""
        parts.append(f"{message.get('role')}\n{text}{more}\n")
    return "\n".join(parts)
