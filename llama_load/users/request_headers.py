"""Headers whose fields differ between requests: `X-Session: {conversation}`, as routers with session affinity need it.

    {conversation}   conversation in the data set; without conversations, the prompt
    {prompt}         the request's number in the plan, with a w before it in a warm-up
    {user}           Locust user: {worker} and a number
    {worker}         worker process

Characters not allowed in a header are percent-encoded. Everything else in braces is unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote

from llama_load.bound_headers import Headers

# Headers whose values hold no secret. The value of every other header is treated as a key, whatever its name: services take
# keys in X-Jwt, X-Team or Ocp-Apim-Subscription-Id as well.
HARMLESS = frozenset(
    (
        *("accept", "accept-charset", "accept-encoding", "accept-language", "anthropic-beta", "anthropic-version", "cache-control"),
        *("connection", "content-encoding", "content-language", "content-type", "date", "expect", "openai-beta", "origin"),
        *("pragma", "priority", "te", "traceparent", "tracestate", "user-agent", "via", "x-correlation-id", "x-request-id"),
    )
)
_FIELD = re.compile(r"\{(conversation|prompt|user|worker)\}")
_SAFE = "/:@!$&'()*+,;="


def is_secret_header(name: str, value: str) -> bool:
    """Whether the value must be treated as a key: it has letters or digits of its own, and no harmless name."""
    return name.strip().lower() not in HARMLESS and re.search(r"[^\W_]", _FIELD.sub("", value)) is not None


@lru_cache
def has_fields(headers: Headers) -> bool:
    """Whether any of them differs between requests."""
    return any(_FIELD.search(value) for _, value in headers)


def filled(headers: Headers, values: Mapping[str, object]) -> Headers:
    """The headers with the values of this request."""
    return tuple((name, _FIELD.sub(lambda match: quote(str(values[match[1]]), _SAFE), value)) for name, value in headers)
