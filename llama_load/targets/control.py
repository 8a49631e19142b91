"""HTTP to a server's control endpoints, with the headers and TLS options of the load. Not for measurements."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from threading import Timer, local
from typing import Any

import msgspec
import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from llama_load.wire.tls import TlsOptions

# Of one answer; model lists with metadata and chat templates stay far below.
MOST_BYTES = 32 * 1024 * 1024
# For the whole answer, however slowly its bytes arrive, unless the request has a timeout.
MOST_S = 30.0


class ControlSession(requests.Session):
    """A session that follows no redirect (API keys must not go to another server) and keeps no connection (some servers close
    connections that they announced to keep, so the next request would fail)."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets = local()
        for scheme in ("http://", "https://"):
            self.mount(scheme, _WatchedAdapter(self._sockets))

    def request(self, *args: Any, **settings: Any) -> requests.Response:
        """See requests.Session.request. `timeout` is for the whole answer, however slowly its head or its body arrives. Raises
        requests.RequestException also for an endless answer."""
        within_s = settings.get("timeout") or MOST_S
        deadline_s = time.monotonic() + within_s
        sockets: list[Any] = []
        self._sockets.open = sockets
        watchdog = Timer(within_s, _cut, (sockets,))
        watchdog.daemon = True
        watchdog.start()
        try:
            answer = self._whole(args, settings, deadline_s)
        except requests.RequestException:
            if time.monotonic() < deadline_s:
                raise
        else:
            if time.monotonic() < deadline_s:  # else its head or its body may be cut off
                return answer
        finally:
            watchdog.cancel()
            for sock in sockets:
                sock.close()
        raise requests.ReadTimeout(f"no complete answer within {within_s:g} s")

    def _whole(self, args: Any, settings: dict[str, Any], deadline_s: float) -> requests.Response:
        try:
            answer = super().request(*args, **settings | {"allow_redirects": False, "stream": True})
            body = bytearray()
            for piece in answer.iter_content(64 * 1024):
                body += piece
                if len(body) > MOST_BYTES or time.monotonic() > deadline_s:
                    raise requests.ConnectionError(f"{answer.url} sends an endless answer ({len(body)} bytes so far)")
        finally:
            self.close()
        answer._content = bytes(body)
        return answer


class _WatchedAdapter(HTTPAdapter):
    """Records the sockets of each thread's request for the watchdog."""

    def __init__(self, sockets: Any) -> None:
        self._sockets = sockets
        super().__init__()

    def init_poolmanager(self, *args: Any, **settings: Any) -> None:
        """See HTTPAdapter."""
        super().init_poolmanager(*args, **settings)
        self.poolmanager.pool_classes_by_scheme = {
            "http": type("Pool", (HTTPConnectionPool,), {"ConnectionCls": self._watched(HTTPConnection)}),
            "https": type("Pool", (HTTPSConnectionPool,), {"ConnectionCls": self._watched(HTTPSConnection)}),
        }

    def _watched(self, base: Any) -> Any:
        sockets = self._sockets

        class Watched(base):  # type: ignore[misc]
            def _new_conn(self) -> Any:
                # A copy, because the TLS layer takes the descriptor away from the socket before the handshake.
                sockets.open.append((sock := super()._new_conn()).dup())
                return sock

        return Watched


def _cut(sockets: list[Any]) -> None:
    """Shut down these sockets at the deadline, which ends any blocked read."""
    for sock in sockets:
        with suppress(OSError, ValueError):
            sock.shutdown(socket.SHUT_RDWR)


def json_of(answer: requests.Response) -> Any:
    """The JSON value of an answer. Raises ValueError if it is not JSON, also for lone surrogates, NaN and Infinity."""
    try:
        return msgspec.json.decode(answer.content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def control_session(headers: tuple[tuple[str, str], ...], tls: TlsOptions) -> ControlSession:
    """A session that ignores proxies in the environment, as the load does."""
    session = ControlSession()
    session.trust_env = False
    session.headers["Connection"] = "close"
    session.headers.update(dict(headers))
    authorities = tls.ca_file or ssl.get_default_verify_paths().cafile
    session.verify = False if tls.insecure else str(authorities) if authorities else True
    if tls.insecure:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return session
