"""Plain HTTP for questions to a server, where speed does not matter: trusts and names itself as the load does."""

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

# What a server says of itself: model lists with their metadata and chat templates stay far below.
MOST_BYTES = 32 * 1024 * 1024
# However slowly it comes, byte by byte, unless the question has a timeout of its own.
MOST_S = 30.0


class ControlSession(requests.Session):
    """A session that follows no redirect (keys in headers go to the server that was named, and nowhere else) and keeps no
    connection: some servers close those that they have announced to keep, and the next question would meet the reset."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets = local()
        for scheme in ("http://", "https://"):
            self.mount(scheme, _WatchedAdapter(self._sockets))

    def request(self, *args: Any, **settings: Any) -> requests.Response:
        """See requests.Session.request. `timeout` is that of the whole answer, however slowly its head or its body comes. Raises
        requests.RequestException also for an answer without end."""
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
            if time.monotonic() < deadline_s:  # else its head or its body may end where it was cut
                return answer
        finally:
            watchdog.cancel()
        raise requests.ReadTimeout(f"no whole answer within {within_s:g} s")

    def _whole(self, args: Any, settings: dict[str, Any], deadline_s: float) -> requests.Response:
        try:
            answer = super().request(*args, **settings | {"allow_redirects": False, "stream": True})
            body = bytearray()
            for piece in answer.iter_content(64 * 1024):
                body += piece
                if len(body) > MOST_BYTES or time.monotonic() > deadline_s:
                    raise requests.ConnectionError(f"{answer.url} answers without end ({len(body)} bytes so far)")
        finally:
            self.close()
        answer._content = bytes(body)
        return answer


class _WatchedAdapter(HTTPAdapter):
    """Puts the sockets of each thread's request where a watchdog finds them."""

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
                sockets.open.append(sock := super()._new_conn())
                return sock

            def connect(self) -> None:
                super().connect()
                sockets.open.append(self.sock)

        return Watched


def _cut(sockets: list[Any]) -> None:
    """The time is over: whoever reads from these gets the end of the connection."""
    for sock in sockets:
        with suppress(OSError, ValueError):
            sock.shutdown(socket.SHUT_RDWR)


def json_of(answer: requests.Response) -> Any:
    """The JSON value of an answer; raises ValueError if it is none. Strict: lone surrogates, NaN and Infinity are no JSON."""
    try:
        return msgspec.json.decode(answer.content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def control_session(headers: tuple[tuple[str, str], ...], tls: TlsOptions) -> ControlSession:
    """A session that goes straight to the server, whatever proxy the environment names, because the load does, too."""
    session = ControlSession()
    session.trust_env = False
    session.headers["Connection"] = "close"
    session.headers.update(dict(headers))
    authorities = tls.ca_file or ssl.get_default_verify_paths().cafile
    session.verify = False if tls.insecure else str(authorities) if authorities else True
    if tls.insecure:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return session
