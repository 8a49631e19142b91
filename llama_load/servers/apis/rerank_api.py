"""Reranking: how relevant is each document to a query? The scores are counted, not kept.
llama-server's and vLLM's /v1/rerank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.servers.answer import AnswerReader
from llama_load.servers.apis.api import Api
from llama_load.servers.apis.prompt_content import Content, Messages
from llama_load.servers.body import BodyOptions
from llama_load.servers.prompt import Message, Prompt
from llama_load.servers.server_errors import Count
from llama_load.servers.unstreamed import JsonBody, ResultsAnswer

if TYPE_CHECKING:
    from llama_load.servers.target import Target


class _Ranked(msgspec.Struct):
    index: Count
    relevance_score: float


class _Ranking(JsonBody):
    results: list[_Ranked] = msgspec.field(default_factory=list)


class RankingAnswer(ResultsAnswer):
    """Counts the documents that an answer ranks."""

    body_type = _Ranking

    def read(self, body: _Ranking) -> None:
        """See `JsonAnswer.read`."""
        self.received = len({ranked.index for ranked in body.results})


class RerankApi(Api):
    """/v1/rerank. The content is the query, then the documents."""

    name = "rerank"
    path = "/v1/rerank"
    bench_name = "vllm-rerank"
    is_cached = False

    def content(
        self, prompt: str | Messages | Prompt, history: Sequence[Message], prefix: str
    ) -> Content:
        """See `Api.content`."""
        if not isinstance(prompt, Prompt) or not prompt.text or not prompt.inputs:
            raise UsageError(
                "brings no query with documents: use locustfiles/rerank.py, or write "
                "self.rerank(query, documents)"
            )
        return [prefix + prompt.text, *prompt.inputs]

    def fields(
        self,
        content: Content,
        options: BodyOptions,
        max_tokens: int | None,
        target: Target,
    ) -> dict[str, Any]:
        """See `Api.fields`."""
        return {"query": content[0], "documents": list(content[1:])}

    def results(self, content: Content) -> int | None:
        """See `Api.results`."""
        return len(content) - 1

    def prompt_bytes(
        self, body: Mapping[str, Any], size: int, results: int | None
    ) -> int | None:
        """See `Api.prompt_bytes`: each document is computed with the whole query before it."""
        return size * (results or 1)

    def reader(
        self, results: int | None = None, *, streams: bool = True
    ) -> AnswerReader:
        """See `Api.reader`."""
        return RankingAnswer(results or 0)


RERANK = RerankApi()
