"""Plain HTTP for questions to a server, where speed does not matter: trusts and names itself as the load does."""

from __future__ import annotations

import ssl
from typing import Any

import requests
import urllib3

from llama_load.wire.tls import TlsOptions


class ControlSession(requests.Session):
    """A session that follows no redirect (keys in headers go to the server that was named, and nowhere else) and keeps no
    connection: some servers close those that they have announced to keep, and the next question would meet the reset."""

    def request(self, *args: Any, **settings: Any) -> requests.Response:
        """See requests.Session.request."""
        try:
            return super().request(*args, **settings | {"allow_redirects": False})
        finally:
            self.close()


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
