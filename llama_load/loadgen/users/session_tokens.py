"""Servers that hand out sessions: a token in a header of the first answer, which the later turns of
the conversation send back (--session-header); and the name of the replica that answered
(--replica-header)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from llama_load.outside.bound_headers import AUTHORIZATION
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.observed.record import (
    KEPT_SESSION,
    NEW_SESSION,
    NO_SESSION,
    OTHER_SESSION,
)

# Values of headers are read up to this length (see `foreign_text.printable`).
MOST_TOKEN_CHARS = 1000
MOST_NAME_CHARS = 100
# Shorter values may be words of any message.
LEAST_SECRET_CHARS = 6
# A server's cookie has this name in its answer, and another one in the next request.
SET_COOKIE = "set-cookie"
COOKIE = "Cookie"
# Headers that llama-load or the connection sets.
TAKEN = frozenset(
    (
        AUTHORIZATION.lower(),
        *(
            "connection",
            "content-length",
            "content-type",
            "cookie",
            "host",
            "te",
            "transfer-encoding",
            "upgrade",
        ),
        "x-request-id",
    )
)


@dataclass(frozen=True, slots=True)
class SessionHeaders:
    """The names of two response headers: of the session's token and of the replica; None: not
    read."""

    token: str | None = None
    replica: str | None = None

    def token_in(self, headers: Mapping[str, str]) -> str | None:
        """The token in an answer's headers (names in lower case); None without one, or where it
        cannot be sent back: too long, or not printable ASCII."""
        if self.token is None:
            return None
        value = headers.get(self.token.lower(), "")
        if self.token.lower() == SET_COOKIE:
            value, _, _ = value.partition(";")
            value = value.strip()

        if not value or len(value) > MOST_TOKEN_CHARS:
            return None
        if not value.isascii() or not value.isprintable():
            return None

        return value

    def to_send(self, token: str | None) -> tuple[tuple[str, str], ...]:
        """The request's header with the token of its conversation."""
        if self.token is None or token is None:
            return ()

        name = self.token
        if name.lower() == SET_COOKIE:
            name = COOKIE

        return ((name, token),)

    def replica_in(self, headers: Mapping[str, str]) -> str | None:
        """The replica that an answer's headers name. A session's token is not kept: a part of its
        hash names the replica."""
        if self.replica is None:
            return None

        value = headers.get(self.replica.lower())
        if not value:
            return None

        if self.token is not None and self.replica.lower() == self.token.lower():
            digest = hashlib.sha256(value.encode()).hexdigest()
            return f"session {digest[:8]}"

        return printable(value, MOST_NAME_CHARS)

    def state(self, sent: str | None, headers: Mapping[str, str]) -> str | None:
        """What became of the session: see `RequestRecord.session`. None without --session-header,
        or without an answer."""
        if self.token is None or not headers:
            return None

        got = self.token_in(headers)
        if sent is None and got is None:
            return NO_SESSION
        if sent is None:
            return NEW_SESSION
        if got is None or got == sent:
            return KEPT_SESSION

        return OTHER_SESSION


NO_SESSIONS = SessionHeaders()


def without_token(sentence: str, token: str | None) -> str:
    """The message of a failure, without the token that the server may quote in it."""
    if token is None or len(token) < LEAST_SECRET_CHARS:
        return sentence
    return sentence.replace(token, "***")
