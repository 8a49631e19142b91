"""Failure classes of an exchange on the wire. A failure is data for a record; it is never raised.

connect_refused      the connection was refused
connect_timeout      no connection within the connect timeout
connect_failed       any other network error (no route, address not available)
tls                  the TLS handshake failed
reset                the peer reset the connection
cut_off              the peer closed before the answer was complete
first_token_timeout  no progress within the first-token timeout
token_timeout        progress stopped for longer than the token timeout
request_timeout      no complete answer within the request timeout
protocol             bytes that are not HTTP/1.1, or not an event stream
too_large            a header block, event or body beyond the limits in `response`, `sse` and `exchange`
client_error         an error in llama-load while reading; please report it
"""

from __future__ import annotations

import errno
import os
import ssl
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WireFailure:
    """Why an exchange failed: a class from the list above and a message."""

    kind: str
    text: str


def tls_text(error: ssl.SSLError) -> str:
    """OpenSSL's message without C file names, with a remedy for the usual cases."""
    reason = (getattr(error, "verify_message", "") or error.reason or str(error)).lower().replace("_", " ")
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: {reason}; give its CA with --ca-file, or use --insecure"
    if "wrong version number" in reason or "record layer" in reason or "packet length" in reason:
        return "the server does not speak TLS; try http:// instead of https://"
    return f"TLS failed: {reason}"


def connect_failure(code: int) -> WireFailure:
    """The failure for an errno of connect(2)."""
    text = os.strerror(code)
    if code == errno.ECONNREFUSED:
        return WireFailure("connect_refused", "connection refused: is the server running at this address?")
    if code == errno.ETIMEDOUT:
        return WireFailure("connect_timeout", text)
    if code == errno.ECONNRESET:
        return WireFailure("reset", "connection reset while connecting")
    if code == errno.EADDRNOTAVAIL:
        return WireFailure("connect_failed", "no local port left: too many connections in TIME_WAIT")
    return WireFailure("connect_failed", text)
