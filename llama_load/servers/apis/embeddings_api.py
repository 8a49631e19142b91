"""OpenAI's embeddings: vectors of one text or several. The vectors are counted, not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from llama_load.servers.answer import AnswerReader
from llama_load.servers.apis.api import Api
from llama_load.servers.apis.prompt_content import Content, Messages, prefixed
from llama_load.servers.body import BodyOptions
from llama_load.servers.prompt import Message, Prompt
from llama_load.servers.unstreamed import JsonBody, ResultsAnswer

if TYPE_CHECKING:
    from llama_load.servers.target import Target

# A number takes up to 24 bytes: 10,000 dimensions.
MOST_BYTES_A_VECTOR = 2**18
MOST_BYTES_BESIDE = 2**20


class _Embedding(msgspec.Struct):
    embedding: msgspec.Raw


class _Vectors(JsonBody):
    data: list[_Embedding] = msgspec.field(default_factory=list)


class VectorsAnswer(ResultsAnswer):
    """Counts the vectors of an answer."""

    body_type = _Vectors

    def read(self, body: _Vectors) -> None:
        """See `JsonAnswer.read`."""
        self.received = len(body.data)


class EmbeddingsApi(Api):
    """/v1/embeddings."""

    name = "embeddings"
    path = "/v1/embeddings"
    bench_name = "openai-embeddings"
    is_offered = False  # self.embed() sends to it
    is_cached = False

    def content(
        self, prompt: str | Messages | Prompt, history: Sequence[Message], prefix: str
    ) -> Content:
        """See `Api.content`."""
        if not isinstance(prompt, Prompt):
            return prefixed(prompt, prefix)
        return [prefix + text for text in prompt.inputs or (prompt.text,)]

    def fields(
        self,
        content: Content,
        options: BodyOptions,
        max_tokens: int | None,
        target: Target,
    ) -> dict[str, Any]:
        """See `Api.fields`."""
        return {"input": [content] if isinstance(content, str) else list(content)}

    def results(self, content: Content) -> int | None:
        """See `Api.results`."""
        return len(content)

    def reader(
        self, results: int | None = None, *, streams: bool = True
    ) -> AnswerReader:
        """See `Api.reader`."""
        return VectorsAnswer(results or 0)

    def most_bytes(self, tokens: int | None, results: int | None) -> int | None:
        """See `Api.most_bytes`: 1 MiB plus 256 KiB per vector."""
        return (
            MOST_BYTES_BESIDE + MOST_BYTES_A_VECTOR * results
            if results
            else super().most_bytes(tokens, results)
        )


EMBEDDINGS = EmbeddingsApi()
