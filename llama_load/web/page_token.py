"""The token of the web page: an address is no person, on loopback any user of the machine reaches the port.

The printed URL has the token, which the page turns into a cookie; programs send it as `Authorization: Bearer TOKEN`. With
--web-login there is no token: Locust's login asks who somebody is.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from llama_load.bound_headers import Headers, is_bearer
from llama_load.errors import UsageError
from llama_load.foreign_text import keep_secret

TOKEN = "token"  # noqa: S105 - the name of a field of the query
LEAST_CHARACTERS = 16
# Answers everybody: the container's health check has no token. It says nothing else.
HEALTH = "/health"
_RANDOM_BYTES = 24
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>llama-load</title>
<body style="font:16px sans-serif;max-width:40em;margin:4em auto"><h1>llama-load</h1>
<p>This page needs its token. Open the URL that was printed when locust started, or type the token:</p>
<form method="get"><input name="token" type="password" autocomplete="off" autofocus size="40"><button>Open</button></form>
<p>{}</p></body></html>"""
_TEXT = "this page needs its token: open the URL that was printed at the start, or send 'Authorization: Bearer TOKEN'\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer without the page."""

    status: str
    headers: Sequence[tuple[str, str]]
    body: bytes = b""


class PageToken:
    """The token of one page, and who has it. `port`: cookies are shared by the ports of a host, so their names differ."""

    def __init__(self, given: str | None, port: int, base_path: str = "") -> None:
        """`given`: by --web-token; else it is made up. Raises UsageError if it can be guessed or cannot be sent."""
        if given and not (given.isascii() and given.isprintable() and " " not in given):
            raise UsageError("--web-token contains characters that cannot be sent in a header")
        if given and len(given) < LEAST_CHARACTERS:
            raise UsageError(f"--web-token must have at least {LEAST_CHARACTERS} characters: make one with 'openssl rand -hex 16'")
        self.is_given = bool(given)
        self._token = given or secrets.token_urlsafe(_RANDOM_BYTES)
        keep_secret([self._token])
        self._cookie = f"llama-load-{port}"
        # Who learns the cookie does not learn a token that other pages may have, too.
        self._cookie_value = hmac.new(self._token.encode(), self._cookie.encode(), hashlib.sha256).hexdigest()
        self._base_path = base_path.rstrip("/")

    def url(self, page: str) -> str:
        """The URL to print: it opens the page. With a token of the person's own it has none."""
        return page if self.is_given else f"{page}?{TOKEN}={self._token}"

    def refusal(self, environ: dict[str, Any]) -> Reply | None:
        """What to answer instead of the page; None: the request has the token."""
        path = environ.get("PATH_INFO", "")
        is_read = environ["REQUEST_METHOD"] in ("GET", "HEAD")
        if is_read and path in (HEALTH, self._base_path + HEALTH):
            return Reply("200 OK", _plain(), b"ok\n")
        query = _query(environ)
        typed = query.pop(TOKEN, [])
        if is_read and typed:
            is_right = hmac.compare_digest(typed[-1].strip().encode("utf-8", "replace"), self._token.encode())
            return self._open(path, query) if is_right else _asking(environ, "That was not the token.")
        if is_bearer(environ.get("HTTP_AUTHORIZATION", ""), self._token) or self._has_cookie(environ):
            return None
        return _asking(environ, "")

    def _has_cookie(self, environ: dict[str, Any]) -> bool:
        try:
            found = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(self._cookie)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode("utf-8", "replace"), self._cookie_value.encode())

    def _open(self, path: str, query: dict[str, list[str]]) -> Reply:
        """To the same page, without the token in its URL and with the cookie."""
        decoded = path.encode("latin-1").decode("utf-8", "replace")
        place = "/" + quote(decoded.lstrip("/\\"))  # // would be another host
        if query:
            place += "?" + urlencode(query, doseq=True)
        cookie = f"{self._cookie}={self._cookie_value}; Path={self._base_path or '/'}; HttpOnly; SameSite=Lax"
        headers = (("Location", place), ("Set-Cookie", cookie), ("Referrer-Policy", "no-referrer"), *_plain())
        return Reply("303 See Other", headers)


def _query(environ: dict[str, Any]) -> dict[str, list[str]]:
    try:
        return parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return {}


def _plain() -> Headers:
    return (("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store"))


def _asking(environ: dict[str, Any], sentence: str) -> Reply:
    """401, for a person with a field to type the token in."""
    challenge = ("WWW-Authenticate", "Bearer")
    if "text/html" not in environ.get("HTTP_ACCEPT", ""):
        return Reply("401 Unauthorized", (challenge, *_plain()), _TEXT.encode())
    headers = (
        challenge,
        ("Content-Type", "text/html; charset=utf-8"),
        ("Cache-Control", "no-store"),
        ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"),
        ("X-Content-Type-Options", "nosniff"),
    )
    return Reply("401 Unauthorized", headers, _PAGE.format(html.escape(sentence)).encode())
