"""One page of a server or an exporter."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from llama_load.foreign_text import printable
from llama_load.plain_http import Headers, NoAnswerError, request
from llama_load.telemetry.source import SourceError

WITHIN_S = 10.0  # llama-server answers between two batches; a long prompt is one
MOST_BYTES = 8 << 20


def get(url: str, headers: Headers = (), tls: Callable[[], ssl.SSLContext] | None = None) -> bytes:
    """The body of a 200 answer. Raises SourceError for everything else. `url` is a valid http(s) URL."""
    try:
        answer = request("GET", url, headers, within_s=WITHIN_S, most_bytes=MOST_BYTES, tls=tls)
    except NoAnswerError as error:
        raise SourceError(str(error)) from None
    if answer.status != 200:
        raise SourceError(f"answers {printable(f'{answer.status} {answer.reason}', 60)}")
    return answer.content
