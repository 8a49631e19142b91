"""The hot path: HTTP/1.1 requests, answers as events, and when the kernel received them.

Nothing here knows what a token is. A caller hands `Hub.send` a `Request` and a reader, and gets an
`Exchange` back that holds the stamps, the status and the failure, if there was one.
"""

from llama_load.wire.address import Address, parse_url
from llama_load.wire.errors import WireFailure
from llama_load.wire.exchange import Exchange
from llama_load.wire.hub import Hub
from llama_load.wire.request import EventReader, Request, Timeouts
from llama_load.wire.tls import TlsOptions

__all__ = ["Address", "EventReader", "Exchange", "Hub", "Request", "Timeouts", "TlsOptions", "WireFailure", "parse_url"]
