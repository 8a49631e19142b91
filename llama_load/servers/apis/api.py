"""What an API is: its path, the bodies that it takes, and the readers of its answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.servers.answer import AnswerReader
from llama_load.servers.answer_form import form_fields
from llama_load.servers.apis.prompt_content import (
    Content,
    Messages,
    conversation,
    in_one_text,
    prefixed,
)
from llama_load.servers.body import BodyOptions, is_text
from llama_load.servers.prompt import Message, Prompt
from llama_load.servers.unstreamed import JsonAnswer

if TYPE_CHECKING:
    from llama_load.servers.target import Target

# A token's event takes 300 bytes, 4000 with its 20 most likely tokens; refusals, comments and usage
# are extra.
MOST_BYTES_A_TOKEN = 4 * 1024
MOST_BYTES_BESIDE = 64 * 1024


class Api(ABC):
    """One API of LLM servers; each file of this folder has one such object.

    `name`: in --endpoint and in records. `bench_name`: what vLLM's benchmark calls it.
    `is_offered`: --endpoint takes it. `has_template`: the server puts messages into its chat
    template. `is_cached`: servers keep prompts in their prompt cache. `takes_messages`,
    `takes_images`, `takes_tools`: whether content may be a list of messages, and have images, or
    tool calls and their results.
    """

    name: ClassVar[str]
    path: ClassVar[str]
    bench_name: ClassVar[str] = "openai"
    is_offered: ClassVar[bool] = True
    has_template: ClassVar[bool] = False
    is_cached: ClassVar[bool] = True
    takes_messages: ClassVar[bool] = True
    takes_images: ClassVar[bool] = False
    takes_tools: ClassVar[bool] = False

    # ------------------------------------------------------------------ the request

    @abstractmethod
    def content(
        self, prompt: str | Messages | Prompt, history: Sequence[Message], prefix: str
    ) -> Content:
        """The content of a body, from a workload's prompt or the locustfile's own; `prefix` goes in
        front. UsageError, a message without a subject: this API does not take such a prompt."""

    @abstractmethod
    def fields(
        self,
        content: Content,
        options: BodyOptions,
        max_tokens: int | None,
        target: Target,
    ) -> dict[str, Any]:
        """The fields of a body besides `model` and --extra-body."""

    def build(
        self,
        content: Content,
        target: Target,
        options: BodyOptions,
        max_tokens: int | None = None,
        model: str | None = None,
    ) -> dict[str, Any]:
        """The body of a request to `target`, before it is encoded."""
        body: dict[str, Any] = {}
        name = model or target.model
        if name is not None:
            body["model"] = name

        body |= self.fields(content, options, max_tokens, target)
        body |= options.extra
        return body

    def encoded(self, body: Mapping[str, Any]) -> tuple[str, bytes]:
        """Content-Type and bytes of a body. TypeError, ValueError: it cannot be encoded."""
        return "application/json", msgspec.json.encode(body)

    def results(self, content: Content) -> int | None:
        """The number of results that the content asks for (vectors, scores); None: a generated
        text."""
        return None

    def prompt_bytes(
        self, body: Mapping[str, Any], size: int, results: int | None
    ) -> int | None:
        """Most bytes that the prompt's tokens can be made of, with a body of `size` bytes; None
        with images."""
        return size if is_text(body) else None

    # ------------------------------------------------------------------ the answer

    @abstractmethod
    def reader(
        self, results: int | None = None, *, streams: bool = True
    ) -> AnswerReader:
        """A reader of one answer. UsageError: only streams are supported."""

    def most_bytes(self, tokens: int | None, results: int | None) -> int | None:
        """Most bytes of an answer of so many tokens (of all choices), or with so many results: 64
        KiB plus 4 KiB per token; None where the request does not limit it."""
        return MOST_BYTES_BESIDE + MOST_BYTES_A_TOKEN * tokens if tokens else None


class GeneratingApi(Api):
    """An API that generates a text. `length_field`: its name for the maximum answer length.
    `stream_reader`: of its streams."""

    length_field: ClassVar[str] = "max_tokens"
    stream_reader: ClassVar[type[AnswerReader]] = AnswerReader
    streams_only: ClassVar[bool] = False

    def content(
        self, prompt: str | Messages | Prompt, history: Sequence[Message], prefix: str
    ) -> Content:
        """See `Api.content`."""
        if not isinstance(prompt, Prompt):
            return prefixed(prompt, prefix)
        if prompt.inputs:
            raise UsageError(
                "brings batches of texts: write self.embed() or self.rerank() in the task"
            )
        messages = (*history, *prompt.added)
        if not self.takes_images and any(message.images for message in messages):
            raise UsageError(
                "sends images, for which only the chat endpoint is supported"
            )
        if not self.takes_tools and any(
            message.calls or message.call_id for message in messages
        ):
            raise UsageError(
                "sends tool calls and their results, for which only the chat endpoint is supported"
            )
        if self.has_template:
            return conversation(prompt, history, prefix)
        return in_one_text(prompt, history, prefix)

    def prompt_fields(self, content: Content) -> dict[str, Any]:
        """The fields of the prompt alone."""
        return {"prompt": content}

    def fields(
        self,
        content: Content,
        options: BodyOptions,
        max_tokens: int | None,
        target: Target,
    ) -> dict[str, Any]:
        """See `Api.fields`."""
        body = self.prompt_fields(content)
        if max_tokens is not None:
            body[self.length_field] = max_tokens
        if options.temperature is not None:
            body["temperature"] = options.temperature
        if options.ignore_eos:
            body["ignore_eos"] = True
        if options.form is not None:
            body |= form_fields(options.form, self.name, target)
        return (
            body
            | target.kind.body_fields(options.cache_prompt)
            | {"stream": options.stream}
        )

    def reader(
        self, results: int | None = None, *, streams: bool = True
    ) -> AnswerReader:
        """See `Api.reader`."""
        if streams:
            return self.stream_reader()
        if self.streams_only:
            raise UsageError(
                f"--endpoint {self.name} is supported with streams only: leave out --no-stream"
            )
        return JsonAnswer()


class OpenAiText(GeneratingApi):
    """OpenAI's chat and text completions: one layout of answers, and usage on request."""

    def fields(
        self,
        content: Content,
        options: BodyOptions,
        max_tokens: int | None,
        target: Target,
    ) -> dict[str, Any]:
        """See `Api.fields`."""
        body = super().fields(content, options, max_tokens, target)
        return body | (
            {"stream_options": dict(target.kind.stream_options)}
            if options.stream
            else {}
        )
