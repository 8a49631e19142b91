"""The hot path: HTTP/1.1 requests, answers as events, and the kernel's receive timestamps.

This package does not know tokens. A caller passes a `Request` and a reader to `Transport.send` and gets an `Exchange` with
timestamps, status and, if the request failed, the failure. Imports are lazy: what waits is gevent's, the rest needs no engine
(docs/decisions/022-a-second-engine.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_load.wire.address import Address, parse_url
    from llama_load.wire.exchange import Exchange
    from llama_load.wire.request import EventReader, Request, Timeouts
    from llama_load.wire.tls import TlsOptions
    from llama_load.wire.transport import Transport
    from llama_load.wire.wire_failure import WireFailure

__all__ = ["Address", "EventReader", "Exchange", "Request", "Timeouts", "TlsOptions", "Transport", "WireFailure", "parse_url"]

_HOMES = {
    "Address": "address",
    "EventReader": "request",
    "Exchange": "exchange",
    "Request": "request",
    "Timeouts": "request",
    "TlsOptions": "tls",
    "Transport": "transport",
    "WireFailure": "wire_failure",
    "parse_url": "address",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'llama_load.wire' has no attribute {name!r}")
    return getattr(import_module(f"llama_load.wire.{_HOMES[name]}"), name)
