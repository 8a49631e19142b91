"""The hot path: HTTP/1.1 requests, answers as events, and when the kernel received them.

Nothing here knows what a token is. A caller hands `Transport.send` a `Request` and a reader, and gets an
`Exchange` back that holds the stamps, the status and the failure, if there was one.
"""

from llama_load.wire.address import Address, parse_url
from llama_load.wire.exchange import Exchange
from llama_load.wire.request import EventReader, Request, Timeouts
from llama_load.wire.tls import TlsOptions
from llama_load.wire.transport import Transport
from llama_load.wire.wire_failure import WireFailure

__all__ = ["Address", "EventReader", "Exchange", "Request", "Timeouts", "TlsOptions", "Transport", "WireFailure", "parse_url"]
