"""Plain HTTP for questions to a server, where speed does not matter: trusts and names itself as the load does."""

from __future__ import annotations

import ssl
import time
from typing import Any

import msgspec
import requests
import urllib3

from llama_load.wire.tls import TlsOptions

# What a server says of itself: model lists with their metadata and chat templates stay far below.
MOST_BYTES = 32 * 1024 * 1024
# However slowly it comes, byte by byte.
MOST_S = 30.0


class ControlSession(requests.Session):
    """A session that follows no redirect (keys in headers go to the server that was named, and nowhere else) and keeps no
    connection: some servers close those that they have announced to keep, and the next question would meet the reset."""

    def request(self, *args: Any, **settings: Any) -> requests.Response:
        """See requests.Session.request. Raises requests.RequestException also for an answer without end."""
        deadline_s = time.monotonic() + MOST_S
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
