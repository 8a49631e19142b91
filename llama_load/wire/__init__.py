"""The hot path: HTTP/1.1 requests, answers as events, and the kernel's receive timestamps.

This package does not know tokens. A caller passes a `Request` and a reader to `Transport.send` and gets an `Exchange` with
timestamps, status and, if the request failed, the failure.
"""

from llama_load.wire.address import Address, parse_url
from llama_load.wire.exchange import Exchange
from llama_load.wire.request import EventReader, Request, Timeouts
from llama_load.wire.tls import TlsOptions
from llama_load.wire.transport import Transport
from llama_load.wire.wire_failure import WireFailure

__all__ = ["Address", "EventReader", "Exchange", "Request", "Timeouts", "TlsOptions", "Transport", "WireFailure", "parse_url"]
