"""Servers that refuse `max_tokens` and name `max_completion_tokens` for it, such as those of
OpenAI's reasoning models: found at the first refusal, as a rule the warm-up's, then sent always."""

from __future__ import annotations

import logging
from dataclasses import replace

import msgspec

from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.request import Request

REFUSED = b"max_tokens"
INSTEAD = b"max_completion_tokens"
REFUSALS = (400, 422)

logger = logging.getLogger(__name__)


def is_refused(exchange: Exchange | None) -> bool:
    """Whether the answer refuses the one field and names the other."""
    if exchange is None or exchange.status not in REFUSALS:
        return False
    said = bytes(exchange.body)
    return INSTEAD in said and REFUSED in said.replace(INSTEAD, b"")


def with_other_field(request: Request) -> Request | None:
    """The same request with the length under the other name; None: it has none under the first."""
    try:
        body = msgspec.json.decode(b"".join(request.pieces), type=dict)
    except msgspec.DecodeError:
        return None
    tokens = body.pop(REFUSED.decode(), None)
    if tokens is None:
        return None
    return replace(request, body=msgspec.json.encode(body | {INSTEAD.decode(): tokens}))


def tell(url: str) -> None:
    """Say once a process what is sent instead."""
    logger.warning(
        "%s refuses %s: the answer's length is asked for as %s",
        url,
        REFUSED.decode(),
        INSTEAD.decode(),
    )
