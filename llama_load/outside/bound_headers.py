"""Header fields for one server: keys among them go to its scheme, host and port, and nowhere else.

Whatever sends a request takes its keys in a `BoundHeaders` and asks it for the fields of the
request's own URL. No other module makes an Authorization header
(tests/repository/test_key_doors.py).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

Headers = tuple[tuple[str, str], ...]

AUTHORIZATION = "Authorization"
# With what the names of the cookies of our pages begin, which are keys, too.
COOKIE_OF_PAGES = "llama-load-"
_SCHEME = "Bearer"
# All but the tab: with a line end in it a field would be two.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PORTS = {"http": 80, "https": 443}


class UnsendableError(ValueError):
    """A field of a header has a control character. The text names the field, and not its value."""


class OtherServerError(Exception):
    """Headers were about to go to a server that they are not for. The text names both, and no
    key."""


@dataclass(frozen=True, slots=True)
class BoundHeaders:
    """Names and values of headers, and the origin (see `origin_of`) that they are for. Without
    fields the origin is not used."""

    origin: str = ""
    fields: Headers = ()

    def for_origin(self, origin: str) -> Headers:
        """The fields of a request to this origin. Raises OtherServerError: they are for another."""
        if not self.fields:
            return ()
        if not origin or origin != self.origin:
            raise OtherServerError(
                f"the keys are for {self.origin or 'no server'} and are not sent to "
                f"{origin or 'another one'}"
            )
        return self.fields

    def with_fields(self, fields: Iterable[tuple[str, str]]) -> BoundHeaders:
        """These and more fields for the same origin."""
        return replace(self, fields=(*self.fields, *fields))

    def only(self, fields: Headers) -> BoundHeaders:
        """Other fields for the same origin."""
        return replace(self, fields=fields)

    def without(self, names: Collection[str]) -> BoundHeaders:
        """The fields without those of these names, which are in lower case."""
        return replace(
            self,
            fields=tuple(
                field for field in self.fields if field[0].lower() not in names
            ),
        )


NO_HEADERS = BoundHeaders()


def bound(url: str, fields: Iterable[tuple[str, str]]) -> BoundHeaders:
    """Fields for the server at this URL, which a person has named."""
    return BoundHeaders(origin_of(url), tuple(fields))


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL: http://127.0.0.1:8080. Without a scheme it is http; "" for
    what is no URL of a server."""
    text = url.strip()
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host = parts.hostname or ""
        port = parts.port or _PORTS[parts.scheme]
        if not host.isascii():
            host = host.encode("idna").decode()
    except (ValueError, KeyError):  # UnicodeError is a ValueError
        return ""
    return origin(parts.scheme, host, port) if host else ""


def origin(scheme: str, host: str, port: int) -> str:
    """The same from its parts."""
    return f"{scheme}://{host.lower()}:{port}"


def bearer(key: str | None) -> Headers:
    """The header with an API key or a token; none without a key."""
    return ((AUTHORIZATION, f"{_SCHEME} {key}"),) if key else ()


def is_bearer(given: str, token: str) -> bool:
    """Whether the Authorization header of a request has this token. Takes the same time for every
    wrong one."""
    return hmac.compare_digest(
        given.encode("utf-8", "replace"), f"{_SCHEME} {token}".encode()
    )


def field_lines(fields: Iterable[tuple[str, str]]) -> list[str]:
    """The lines of fields in the head of a message: nothing else writes any. Raises
    UnsendableError."""
    lines = []
    for name, value in fields:
        line = f"{name}: {value}"
        if _CONTROL.search(line):
            raise UnsendableError(
                f"the header {name[:100]!a} has a control character, which cannot be sent"
            )
        lines.append(line)
    return lines
