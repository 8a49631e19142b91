"""The web server of the page and of --metrics-port: silent or slow connections, however many, use
up no file descriptors.

A head of a request has at most 64 KiB, and must come within 10 s. All servers of a process together
have an eighth of its descriptors (the master's port for workers has another one, see
`llama_load.loadgen.swarm.unknown_peers`): of those that still owe a head, the oldest makes room.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gevent
from gevent import pywsgi

from llama_load.loadgen.wire.limits import open_files
from llama_load.loadgen.wire.request_heads import BoundedHead

HEAD_WITHIN_S = 10.0
SHARE = 8
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-length: 0\r\n\r\n"
)


class _Connections:
    """The open connections of all servers of this process."""

    def __init__(self) -> None:
        self.open: set[_Connection] = set()
        self.waiting: dict[_Connection, None] = {}  # for a head; the oldest first

    def take(self, connection: _Connection) -> bool:
        """Add one, if there is room or another one can be ended for it."""
        most = max(1, open_files() // SHARE)
        if len(self.open) >= most:
            oldest = next(iter(self.waiting), None)
            if oldest is None:
                return False

            self.forget(oldest)
            oldest.kill(block=False)

        self.open.add(connection)
        self.waiting[connection] = None

        return True

    def forget(self, connection: _Connection) -> None:
        self.open.discard(connection)
        self.waiting.pop(connection, None)


_CONNECTIONS = _Connections()


class _Connection(gevent.Greenlet):  # type: ignore[misc] # gevent has no types
    """Serves one connection."""

    def __init__(self, serve: Callable[[], object]) -> None:
        super().__init__()
        self._serve = serve
        self._timer = gevent.Timeout(HEAD_WITHIN_S)

    def _run(self) -> None:
        self._timer.start()
        try:
            self._serve()
        except gevent.Timeout as error:
            if error is not self._timer:
                raise
        finally:
            self._timer.close()
            _CONNECTIONS.forget(self)

    def awaits_head(self) -> None:
        """From now on a request's head is waited for, also that of a further request."""
        _CONNECTIONS.waiting.pop(self, None)
        _CONNECTIONS.waiting[self] = None
        self._timer.close()
        self._timer = gevent.Timeout.start_new(HEAD_WITHIN_S)

    def has_head(self) -> None:
        """It is there: the answer may take as long as it takes."""
        _CONNECTIONS.waiting.pop(self, None)
        self._timer.close()


class _Handler(pywsgi.WSGIHandler):  # type: ignore[misc]
    def handle_one_request(self) -> Any:
        _current().awaits_head()
        return super().handle_one_request()

    def handle_one_response(self) -> Any:
        _current().has_head()
        return super().handle_one_response()

    def MessageClass(self, source: Any, *_: object) -> Any:
        """See gevent: the fields of a request's head."""
        return super().MessageClass(BoundedHead(source))

    def _handle_client_error(self, ex: Exception) -> Any:
        """Without a line of gevent in the log, or a traceback: who has no token writes none."""
        return ("400", _BAD_REQUEST)


def _current() -> _Connection:
    connection = gevent.getcurrent()
    assert isinstance(connection, _Connection)
    return connection


class BoundedServer(pywsgi.WSGIServer):  # type: ignore[misc]
    """gevent's server, with the limits above."""

    handler_class = _Handler

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, spawn=None, **settings)

    def do_handle(self, *accepted: Any) -> None:
        """See gevent's BaseServer."""
        serve = super().do_handle
        connection = _Connection(lambda: serve(*accepted))
        if _CONNECTIONS.take(connection):
            connection.start()
        else:
            self.do_close(*accepted)


def bound_locusts_page() -> None:
    """Locust's page is served by this server. To be called before Locust starts it."""
    module: Any = sys.modules["locust.web"]
    module.pywsgi = SimpleNamespace(WSGIServer=BoundedServer)
