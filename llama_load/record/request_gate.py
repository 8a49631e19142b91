"""Which requests a recording passes on, and with which head.

A head is changed only where it must be: `Host`, for a server on another machine, the client's key,
if the recording has a key of its own (it then listens to other machines), and cookies. A browser
sends those of all programs at this address, so only cookies go on that the server itself has set
through the recorder.
"""

from __future__ import annotations

import re
from collections import OrderedDict

from llama_load.outside.bound_headers import (
    NO_HEADERS,
    BoundHeaders,
    bearer,
    field_lines,
    is_bearer,
)
from llama_load.outside.secret_forms import pattern_of
from llama_load.record.foreign_pages import page_of
from llama_load.record.http_framing import Head
from llama_load.servers.address import Address
from llama_load.servers.local_ports import is_loopback

# Cookies of the server that are known, and the longest, as browsers have it (RFC 6265, section
# 6.1).
MOST_COOKIES = 1000
MOST_COOKIE_BYTES = 4096
# The pattern of all forms takes 1 ms for each character of the recorder's key.
MOST_CHARS_OF_FORMS = 256
_KEY_FIELDS = (b"authorization", b"x-api-key", b"api-key")


class RequestGate:
    """For the clients of one server. `key`: what a client must send, and the server never sees;
    `server_keys`: what the server gets in its place."""

    def __init__(
        self, to: Address, key: str | None, server_keys: BoundHeaders = NO_HEADERS
    ) -> None:
        self._to = to
        self._key = key
        self._forms_of_key = None if key is None else _forms_of(key)
        self._server_keys = server_keys
        # NAME=VALUE, the newest last
        self._cookies: OrderedDict[bytes, None] = OrderedDict()
        self.lost_cookies = 0
        self._keeps_host = to.scheme == "http" and is_loopback(to.host)

    def fault_of(self, head: Head) -> tuple[int, str] | None:
        """Why a request is not passed on: status and sentence."""
        if self._key is None:
            page = page_of(head)
            if page is not None:
                return 403, (
                    f"{page} may be a page of others: set a key in LLAMA_LOAD_RECORD_KEY, which "
                    "clients send as their API key"
                )
        elif not self._has_key(head, self._key):
            return 401, "send the key of llama-load record as your API key"
        if self._has_form_of_key(head.first_line):
            return (
                400,
                "the key of llama-load record belongs into a header, not into the URL",
            )
        if head.values(b"upgrade") or head.method == "CONNECT":
            return 501, "llama-load record passes on no upgrade of the protocol"
        if not head.path.startswith(("/", "*")):
            return (
                400,
                "llama-load record is no proxy to set in HTTP_PROXY: it is the base URL",
            )
        return None

    def _has_key(self, head: Head, key: str) -> bool:
        for name in _KEY_FIELDS:
            for value in head.values(name):
                text = value.decode("latin-1")
                (_, as_bearer), *_ = bearer(text) or (("", ""),)
                if is_bearer(text, key) or is_bearer(as_bearer, key):
                    return True
        return False

    def _has_form_of_key(self, line: bytes) -> bool:
        """Whether it contains the key of the relay, as it is or encoded."""
        pattern = self._forms_of_key
        return pattern is not None and bool(pattern.search(line.decode("latin-1")))

    def learn_cookies(self, answer: Head) -> None:
        """From now on what this answer of the server sets goes back to it."""
        for value in answer.values(b"set-cookie"):
            cookie = value.partition(b";")[0].strip(b" \t")
            if len(cookie) > MOST_COOKIE_BYTES:
                continue
            self._cookies[cookie] = None
            self._cookies.move_to_end(cookie)
            if len(self._cookies) > MOST_COOKIES:
                self._cookies.popitem(last=False)

    def as_sent(self, head: Head) -> bytes:
        """The head's bytes, unchanged unless the server needs another Host or key, or has not set
        the cookies in it."""
        has_cookie = bool(head.values(b"cookie"))
        if self._key is None and self._keeps_host and not has_cookie:
            return head.raw
        lines = head.raw.removesuffix(b"\r\n\r\n").split(b"\r\n")
        kept = [lines[0]]
        for line in lines[1:]:
            name = line.partition(b":")[0].lower()
            if name == b"host" and not self._keeps_host:
                kept.append(b"Host: " + self._to.host_header.encode("latin-1"))
            elif self._key is not None and (
                name in _KEY_FIELDS or self._has_form_of_key(line)
            ):
                continue
            elif name == b"cookie":
                kept += self._with_known_cookies(line)
            else:
                kept.append(line)
        if self._key is not None:
            fields = self._server_keys.for_origin(self._to.origin)
            kept += [line.encode("latin-1") for line in field_lines(fields)]
        return b"\r\n".join(kept) + b"\r\n\r\n"

    def _with_known_cookies(self, line: bytes) -> list[bytes]:
        """The field Cookie with those alone that the server has set. No line where none is left."""
        name, _, value = line.partition(b":")
        known = []
        for cookie in value.split(b";"):
            plain = cookie.strip(b" \t")
            if plain in self._cookies:
                known.append(plain)
            elif plain:
                self.lost_cookies += 1
        return [name + b": " + b"; ".join(known)] if known else []


def _forms_of(key: str) -> re.Pattern[str]:
    if len(key) > MOST_CHARS_OF_FORMS:
        return re.compile(re.escape(key))
    return re.compile(pattern_of(key))
