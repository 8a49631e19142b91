"""The token of the web page: an address is no person, on loopback any user of the machine reaches
the port.

The printed URL has the token, which the page turns into a cookie; programs send it as
`Authorization: Bearer TOKEN`. With --web-login there is no token: Locust's login asks who somebody
is.

Browsers send a cookie to every port of its host, so a program of somebody else at the same address
may get it. It is made for this run alone, whatever the token is, does not tell the token, and ends
some hours after the page was used last. It does not come along from pages of other hosts.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from llama_load.ground.errors import UsageError
from llama_load.loadgen.wire.request_heads import cookies_of
from llama_load.outside.bound_headers import COOKIE_OF_PAGES, Headers, is_bearer
from llama_load.outside.foreign_text import keep_secret

TOKEN = "token"  # noqa: S105 - the name of a field of the query
LEAST_CHARACTERS = 16
# Answers everybody: the container's health check has no token. It says nothing else.
HEALTH = "/health"
_RANDOM_BYTES = 24
# A page that stays open over night is used all the time.
COOKIE_S = 12 * 3600
RENEWED_S = 3600  # and gets a new one after this time
# Of earlier runs at this port: as many as a head of a request has room for are removed.
MOST_OLD_COOKIES = 50
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>llama-load</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; --ink: #1f2933; --paper: #f5f6f8; --card: #fff;
 --line: #c9d0d8; --blue: #2563b0; --red: #a4262c }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6e9ed; --paper: #15181c; --card: #1f242a;
 --line: #444d57; --blue: #6ea8e6; --red: #ff8a80 }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0; color: var(--ink);
 background: var(--paper) }}
main {{ max-width: 30rem; margin: 15vh auto 0; padding: 1.5rem 2rem; background: var(--card);
 border: 1px solid var(--line); border-radius: 8px }}
h1 {{ font-size: 1.25rem; margin: 0 }}
form {{ display: flex; gap: .5rem; flex-wrap: wrap }}
input {{ flex: 1 1 14rem }}
input, button {{ font: inherit; padding: .4rem .7rem; border: 1px solid var(--line);
 border-radius: 4px; color: inherit; background: transparent }}
button {{ background: var(--blue); border-color: var(--blue); color: var(--card) }}
p:last-child:not(:empty) {{ color: var(--red) }}
</style>
<main><h1>llama-load</h1>
<p>This page needs its token. Open the URL that was printed when the run started, press Enter
in that terminal, or type the token:</p>
<form method="get"><input name="token" type="password" aria-label="token" autocomplete="off"
 autofocus><button>Open</button></form>
<p role="alert">{}</p></main></html>"""
_GO_ON = """<!doctype html><html lang="en"><meta charset="utf-8"><title>llama-load</title>
<meta http-equiv="refresh" content="0; url={0}"><a href="{0}">Go on</a></html>"""
_TEXT = (
    "this page needs its token: open the URL that was printed at the start, "
    "or send 'Authorization: Bearer TOKEN'\n"
)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer without the page."""

    status: str
    headers: Sequence[tuple[str, str]]
    body: bytes = b""


class PageToken:
    """The token of one page, and who has it."""

    def __init__(
        self,
        given: str | None,
        port: int,
        base_path: str = "",
        *,
        is_https: bool = False,
    ) -> None:
        """`given`: by --web-token; else it is made up. `port`: names the cookie, with a random
        part. `is_https`: the cookie is sent encrypted alone. Raises UsageError if the token can be
        guessed or cannot be sent."""
        check_token(given)
        self.is_given = bool(given)
        self._token = given or secrets.token_urlsafe(_RANDOM_BYTES)
        keep_secret([self._token])
        self._of_port = f"{COOKIE_OF_PAGES}{port}-"
        self._cookie = self._of_port + secrets.token_hex(4)
        self._cookie_key = secrets.token_bytes(32)
        self._base_path = base_path.rstrip("/")
        self._scope = f"Path={self._base_path or '/'}; HttpOnly; SameSite=Strict"
        if is_https:
            self._scope += "; Secure"

    def url(self, page: str) -> str:
        """The URL to print: it opens the page. With a token of the person's own it has none."""
        return page if self.is_given else f"{page}?{TOKEN}={self._token}"

    def refusal(self, environ: dict[str, Any]) -> Reply | None:
        """What to answer instead of the page; None: the request has the token."""
        path = environ.get("PATH_INFO", "")
        is_read = environ["REQUEST_METHOD"] in ("GET", "HEAD")
        if is_read and path in (HEALTH, self._base_path + HEALTH):
            return Reply("200 OK", _plain_headers(), b"ok\n")

        query = _query(environ)
        typed = query.pop(TOKEN, [])
        if is_read and typed:
            is_right = hmac.compare_digest(
                typed[-1].strip().encode("utf-8", "replace"), self._token.encode()
            )
            return (
                self._open(environ, query)
                if is_right
                else _asking(environ, "That was not the token.")
            )
        if is_bearer(environ.get("HTTP_AUTHORIZATION", ""), self._token):
            return None
        if self._cookie_left_s(environ) > 0:
            return None

        return _asking(environ, "")

    def renewal(self, environ: dict[str, Any]) -> Headers:
        """The header of a new cookie, for the answer to a request whose own has been in use for an
        hour."""
        left_s = self._cookie_left_s(environ)
        return (self._new_cookie(),) if 0 < left_s < COOKIE_S - RENEWED_S else ()

    def _cookie_left_s(self, environ: dict[str, Any]) -> float:
        """For how long the cookie of a request is good; 0 without a good one."""
        found = _cookies(environ).get(self._cookie)
        if found is None:
            return 0.0
        end, _, mark = found.partition(".")
        is_right = hmac.compare_digest(
            mark.encode("utf-8", "replace"), self._mark(end).encode()
        )
        return max(0.0, int(end) - time.monotonic()) if is_right else 0.0

    def _mark(self, end: str) -> str:
        return hmac.new(
            self._cookie_key, end.encode("utf-8", "replace"), hashlib.sha256
        ).hexdigest()

    def _new_cookie(self) -> tuple[str, str]:
        end = str(int(time.monotonic()) + COOKIE_S)
        value = f"{end}.{self._mark(end)}"
        pair = f"{self._cookie}={value}"
        return ("Set-Cookie", f"{pair}; Max-Age={COOKIE_S}; {self._scope}")

    def _old_cookies(self, environ: dict[str, Any]) -> Headers:
        """Headers that remove what earlier runs at this port have left in the browser."""
        names = [name for name in _cookies(environ) if name.startswith(self._of_port)]
        old = [name for name in names if name != self._cookie]
        return tuple(
            ("Set-Cookie", f"{name}=; Max-Age=0; {self._scope}")
            for name in old[:MOST_OLD_COOKIES]
        )

    def _open(self, environ: dict[str, Any], query: dict[str, list[str]]) -> Reply:
        """To the same page, without the token in its URL and with the cookie."""
        decoded = (
            environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace")
        )
        place = "/" + quote(decoded.lstrip("/\\"))  # // would be another host
        if query:
            place += "?" + urlencode(query, doseq=True)
        headers = (
            self._new_cookie(),
            *self._old_cookies(environ),
            ("Referrer-Policy", "no-referrer"),
        )
        if environ.get("HTTP_SEC_FETCH_SITE", "none") == "none":
            return Reply(
                "303 See Other", (("Location", place), *headers, *_plain_headers())
            )
        # The browser sends this cookie along only to where our own page leads, not a stranger's.
        page = _GO_ON.format(html.escape(place)).encode()
        return Reply("200 OK", (*headers, *_html()), page)


def check_token(given: str | None) -> None:
    """Raises UsageError: a token that can be guessed or cannot be sent."""
    if given and not (given.isascii() and given.isprintable() and " " not in given):
        raise UsageError(
            "--web-token contains characters that cannot be sent in a header"
        )
    if given and len(given) < LEAST_CHARACTERS:
        raise UsageError(
            f"--web-token must have at least {LEAST_CHARACTERS} characters: "
            "make one with 'openssl rand -hex 16'"
        )


def _cookies(environ: dict[str, Any]) -> dict[str, str]:
    return dict(cookies_of(environ.get("HTTP_COOKIE", "")))


def _query(environ: dict[str, Any]) -> dict[str, list[str]]:
    try:
        return parse_qs(
            environ.get("QUERY_STRING", ""), keep_blank_values=True, max_num_fields=100
        )
    except ValueError:
        return {}


def _plain_headers() -> Headers:
    return (
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Cache-Control", "no-store"),
    )


def _asking(environ: dict[str, Any], sentence: str) -> Reply:
    """401, for a person with a field to type the token in."""
    challenge = ("WWW-Authenticate", "Bearer")
    if "text/html" not in environ.get("HTTP_ACCEPT", ""):
        return Reply("401 Unauthorized", (challenge, *_plain_headers()), _TEXT.encode())
    headers = (challenge, *_html())
    return Reply(
        "401 Unauthorized", headers, _PAGE.format(html.escape(sentence)).encode()
    )


def _html() -> Headers:
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; "
        "form-action 'self'; frame-ancestors 'none'"
    )
    return (
        ("Content-Type", "text/html; charset=utf-8"),
        ("Cache-Control", "no-store"),
        ("Content-Security-Policy", policy),
        ("X-Content-Type-Options", "nosniff"),
    )
