"""Headers whose fields differ between requests: `X-Session: {conversation}`, as routers with
session affinity need it.

    {conversation}   conversation in the data set; without conversations, the prompt
    {prompt}         the request's number in the plan, with a w before it in a warm-up
    {user}           Locust user: {worker} and a number
    {worker}         worker process

Characters not allowed in a header are percent-encoded. Everything else in braces is unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote

from llama_load.outside.bound_headers import Headers
from llama_load.outside.command_secrets import FIELD

_SAFE = "/:@!$&'()*+,;="


@lru_cache
def has_fields(headers: Headers) -> bool:
    """Whether any of them differs between requests."""
    return any(FIELD.search(value) for _, value in headers)


def filled(headers: Headers, values: Mapping[str, object]) -> Headers:
    """The headers with the values of this request."""
    return tuple(
        (name, FIELD.sub(lambda match: quote(str(values[match[1]]), _SAFE), value))
        for name, value in headers
    )
