"""TLS over memory buffers: the socket is read directly, so every received segment keeps its kernel
receive timestamp.

A `TlsLayer` only transforms bytes. `received` takes bytes from the socket and returns the
handshake's reply and the decrypted bytes; `encrypt` takes bytes to send. The pool keeps sessions
per address and resumes them, because llama-server needs a new connection for every stream.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from llama_load.outside.plain_http import tls_context

DECRYPT_BYTES = 64 * 1024
# After the handshake a server is answered when it asks for new keys, with 27 bytes each time.
# OpenSSL answers any number, also for a server that never reads the answers, which would wait in
# memory.
MOST_REPLY_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Certificate verification: by the system's CAs, by those in `ca_file`, or (`insecure`)
    none."""

    ca_file: Path | None = None
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """The context that all connections of a pool share. Raises OSError or ssl.SSLError when
        `ca_file` is invalid."""
        return tls_context(
            str(self.ca_file) if self.ca_file else None, insecure=self.insecure
        )


class TlsLayer:
    """The client's side of one TLS connection. Errors of OpenSSL are raised as ssl.SSLError."""

    __slots__ = ("_in", "_object", "_out", "_replied_bytes", "ready")

    def __init__(
        self, context: ssl.SSLContext, host: str, session: ssl.SSLSession | None
    ) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._in, self._out, server_hostname=host, session=session
        )
        self.ready = False  # the handshake is done
        self._replied_bytes = 0  # since then

    def hello(self) -> bytes:
        """The first bytes to send."""
        self._handshake()
        return self._out.read()

    def received(self, data: bytes | memoryview) -> tuple[bytes, bytes]:
        """Process received bytes; returns (bytes to send in reply, decrypted bytes). Raises
        ssl.SSLError too where the replies would have no end."""
        self._in.write(data)
        was_ready = self.ready
        if not self.ready:
            self._handshake()
        plain = b""
        if self.ready:
            plain = self._decrypt()
        reply = self._out.read()

        if was_ready:
            self._replied_bytes += len(reply)
        if self._replied_bytes > MOST_REPLY_BYTES:
            raise ssl.SSLError(
                ssl.SSL_ERROR_SSL, "the server asks for new keys without end"
            )
        return reply, plain

    def encrypt(self, data: bytes) -> bytes:
        """The encrypted `data`; only once `ready`."""
        self._object.write(data)
        return self._out.read()

    @property
    def session(self) -> ssl.SSLSession | None:
        """The session that a later connection to the same server can resume."""
        return self._object.session

    @property
    def resumed(self) -> bool:
        """Whether this connection resumed an earlier session."""
        return bool(self._object.session_reused)

    def _handshake(self) -> None:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.ready = True

    def _decrypt(self) -> bytes:
        pieces = []
        while True:
            try:
                piece = self._object.read(DECRYPT_BYTES)
            except ssl.SSLWantReadError:
                break
            except (
                ssl.SSLZeroReturnError
            ):  # close_notify; the end of the socket follows
                break
            if not piece:
                break
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
