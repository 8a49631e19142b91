"""Failures of an exchange on the wire. A failure is data for a record; it is never raised."""

from __future__ import annotations

import errno
import os
import ssl
from dataclasses import dataclass

from llama_load.ground.failure_kind import FailureKind


@dataclass(frozen=True, slots=True)
class WireFailure:
    """Why an exchange failed: its class and a message."""

    kind: FailureKind
    text: str


def tls_text(error: ssl.SSLError) -> str:
    """OpenSSL's message without C file names, with a remedy for the usual cases."""
    # Only OpenSSL's own errors have these.
    message = getattr(error, "verify_message", "") or getattr(error, "reason", "")
    reason = (message or str(error)).lower().replace("_", " ")
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate is not trusted: {reason}; give its CA with --ca-file, or "
            "use --insecure"
        )
    if (
        "wrong version number" in reason
        or "record layer" in reason
        or "packet length" in reason
    ):
        return "the server does not speak TLS; try http:// instead of https://"
    return f"TLS failed: {reason}"


def connect_failure(code: int) -> WireFailure:
    """The failure for an errno of connect(2)."""
    text = os.strerror(code)
    if code == errno.ECONNREFUSED:
        return WireFailure(
            FailureKind.CONNECT_REFUSED,
            "connection refused: is the server running at this address?",
        )
    if code == errno.ETIMEDOUT:
        return WireFailure(FailureKind.CONNECT_TIMEOUT, text)
    if code == errno.ECONNRESET:
        return WireFailure(FailureKind.RESET, "connection reset while connecting")
    if code == errno.EADDRNOTAVAIL:
        return WireFailure(
            FailureKind.CONNECT_FAILED,
            "no local port left: too many connections in TIME_WAIT",
        )
    return WireFailure(FailureKind.CONNECT_FAILED, text)
