"""A server's address: a parsed URL with its name resolved once, before any measurement."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, quote, urlsplit

from llama_load.outside.bound_headers import origin

DEFAULT_PORTS = {"http": 80, "https": 443}
# Of a name. Each is tried for the whole connect timeout, and an answer of DNS has room for 4000.
MOST_ENDPOINTS = 16
# What stands between a server's own pages and its APIs, unless the server has another path there.
API_ROOT = "/v1"
# Parts of a URL's query that hold no key. Azure's APIs need theirs with every request.
HARMLESS_QUERY = frozenset(("api-version",))


@dataclass(frozen=True, slots=True)
class Address:
    """One base URL: scheme, host, port, base path without trailing slash, and its resolved socket
    addresses.

    `endpoints` is a tuple of (family, sockaddr) in the resolver's order, empty until `resolved()`.
    `api_root`: what the server has in place of /v1; `query`: what follows the path of each request
    to an API, with its question mark.
    """

    scheme: str
    host: str
    port: int
    base_path: str
    endpoints: tuple[tuple[int, tuple[object, ...]], ...] = ()
    api_root: str = API_ROOT
    query: str = ""

    @property
    def url(self) -> str:
        """The base URL without a trailing slash."""
        return f"{self.scheme}://{self.host_header}{self.base_path}"

    def path_of(self, path: str) -> str:
        """Where the server has this path: `/v1/…` of an API, or a page of its own."""
        if not path.startswith(API_ROOT + "/"):
            return self.base_path + path
        below = path.removeprefix(API_ROOT)
        return f"{self.base_path}{self.api_root}{below}{self.query}"

    def url_of(self, path: str) -> str:
        """The URL of this path, see `path_of`."""
        return f"{self.scheme}://{self.host_header}{self.path_of(path)}"

    @property
    def host_header(self) -> str:
        """The value of the Host header: IPv6 in brackets, the default port left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"
        )

    @property
    def origin(self) -> str:
        """Scheme, host and port, which keys are bound to."""
        return origin(self.scheme, self.host, self.port)

    def resolved(self) -> Address:
        """The same address with its name resolved, to at most MOST_ENDPOINTS. Raises OSError
        (socket.gaierror) when that fails."""
        answers = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        distinct = dict.fromkeys(
            (int(family), tuple(sockaddr)) for family, _, _, _, sockaddr in answers
        )
        endpoints = tuple(distinct)[:MOST_ENDPOINTS]
        return replace(self, endpoints=endpoints)


def split_hosts(text: str) -> list[str]:
    """The URLs in a --host that may name several replicas, separated by commas or blanks; empty if
    there is none."""
    return text.replace(",", " ").split()


def shown_url(url: str) -> str:
    """The URL without its user, query and fragment, which may contain a key."""
    plain = re.split(r"[?#]", url.strip(), maxsplit=1)[0]
    scheme, separator, rest = plain.rpartition("://")
    return scheme.rpartition("@")[2] + separator + rest.rpartition("@")[2]


def parse_url(url: str) -> Address:
    """Parse a base URL such as `http://[::1]:8080/llm`. Raises ValueError with a message for
    users."""
    address = parse_server_url(url)
    if address.query:
        raise ValueError(
            f"{shown_url(url)!r} must be a plain base URL, without a query"
        )
    return address


def parse_server_url(url: str) -> Address:
    """The same for a server of APIs, whose URL may have a query that is needed with every request
    (`HARMLESS_QUERY`)."""
    text = url.strip()
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
    except ValueError:  # an open bracket
        raise ValueError(f"{shown_url(url)!r} has no valid host name") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError(f"{shown_url(url)!r} is not an http:// or https:// URL")
    if not parts.hostname:
        raise ValueError(
            f"{shown_url(url)!r} has no host; write it like http://127.0.0.1:8080"
        )
    names = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    has_query = parts.query and not names <= HARMLESS_QUERY
    if has_query or parts.fragment or "@" in parts.netloc:
        raise ValueError(
            f"{shown_url(url)!r} must be a plain base URL, without user, query or fragment; give "
            "keys with --api-key or --header"
        )
    try:
        port = parts.port or DEFAULT_PORTS[parts.scheme]
    except ValueError:
        raise ValueError(f"{shown_url(url)!r} has no valid port") from None
    try:
        host = parts.hostname
        if not host.isascii():
            host = host.encode("idna").decode()
    except UnicodeError:
        raise ValueError(f"{shown_url(url)!r} has no valid host name") from None
    # The request line and Host must be ASCII; existing escapes are kept.
    path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
    query = quote(f"?{parts.query}", safe="?%&=+") if parts.query else ""
    return Address(parts.scheme, host, port, path, query=query)
