"""Headers with fields that differ from request to request: `X-Session: {conversation}`, as routers with session affinity want it.

    {conversation}   of the data set; without one each prompt is a conversation
    {prompt}         place of the request in the plan, with a w before it in a warm-up
    {user}           user of Locust, {worker} and a number
    {worker}         worker process

What no header can hold is percent-encoded. Everything else in braces stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote

Headers = tuple[tuple[str, str], ...]

_FIELD = re.compile(r"\{(conversation|prompt|user|worker)\}")
_SAFE = "/:@!$&'()*+,;="


@lru_cache
def has_fields(headers: Headers) -> bool:
    """Whether any of them differs from request to request."""
    return any(_FIELD.search(value) for _, value in headers)


def filled(headers: Headers, values: Mapping[str, object]) -> Headers:
    """The headers with the values of this request in them."""
    return tuple((name, _FIELD.sub(lambda match: quote(str(values[match[1]]), _SAFE), value)) for name, value in headers)
