"""Pages of servers and exporters."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from llama_load.outside.foreign_text import printable
from llama_load.outside.plain_http import NoAnswerError, request
from llama_load.run_folder.sampler_config import Endpoint
from llama_load.telemetry.source import Source, SourceError

WITHIN_S = 10.0  # llama-server answers between two batches; a long prompt is one
MOST_BYTES = 8 << 20


class PageSource(Source):
    """A source that is one page of a server."""

    def __init__(
        self, endpoint: Endpoint, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        self.name = endpoint.name
        self._endpoint = endpoint
        self._tls = tls

    def page(self) -> bytes:
        """The body of a 200 answer. Raises SourceError for everything else."""
        endpoint = self._endpoint
        try:
            answer = request(
                "GET",
                endpoint.url,
                endpoint.headers,
                within_s=WITHIN_S,
                most_bytes=MOST_BYTES,
                tls=self._tls,
            )
        except NoAnswerError as error:
            raise SourceError(str(error)) from None
        if answer.status != 200:
            raise SourceError(
                f"answers {printable(f'{answer.status} {answer.reason}', 60)}"
            )
        return answer.content
