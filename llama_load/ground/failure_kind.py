"""The classes of failed requests: one row each, for the wire, records, reports, hints and the
documentation.

A class is the `status` of its records. Statuses outside of 2xx without a row are `http_<status>`.
"""

from __future__ import annotations

from enum import StrEnum

LIMIT = "limit"
END = "end"


class FailureKind(StrEnum):
    """A class of failures: its name, what it is called in reports, and what to do about it where a
    run's figures say no more.

    `trait`: LIMIT: the flag of this name sets a time limit, which `words` go on with; END: the
    server may have died.
    """

    words: str
    hint: str
    trait: str

    def __new__(
        cls, name: str, words: str, hint: str = "", trait: str = ""
    ) -> FailureKind:
        """A row."""
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.words = words
        kind.hint = hint
        kind.trait = trait
        return kind

    # Of the wire.
    CONNECT_REFUSED = (
        "connect_refused",
        "connection refused",
        "the server is not running at this address, or no longer: see its log",
        END,
    )
    CONNECT_TIMEOUT = (
        "connect_timeout",
        "no connection",
        "the server's backlog is full or a firewall drops it; raise --connect-timeout or lower "
        "the load",
        LIMIT,
    )
    CONNECT_FAILED = (
        "connect_failed",
        "no connection",
        "see the message: no route, or no local port left",
        END,
    )
    TLS = (
        "tls",
        "the TLS handshake failed",
        "see the message: --ca-file trusts your own CA, --insecure skips certificate verification",
    )
    RESET = (
        "reset",
        "connection reset by the server",
        "see the server's log: it may have died or run out of memory",
        END,
    )
    CUT_OFF = ("cut_off", "cut off before the end", "see the server's log", END)
    FIRST_TOKEN_TIMEOUT = (
        "first_token_timeout",
        "no first token",
        "lower the load or raise --first-token-timeout",
        LIMIT,
    )
    TOKEN_TIMEOUT = (
        "token_timeout",
        "no further token",
        "the server stalled; see its log or raise --token-timeout",
        LIMIT,
    )
    REQUEST_TIMEOUT = (
        "request_timeout",
        "no complete answer",
        "raise --request-timeout, lower --max-tokens or lower the load",
        LIMIT,
    )
    PROTOCOL = "protocol", "no valid HTTP", "is this the port of an HTTP server?"
    TOO_LARGE = "too_large", "an answer beyond the size limits"

    # Of complete answers.
    CONTEXT_EXCEEDED = (
        "context_exceeded",
        "context exceeded",
        "start the server with a larger -c or fewer slots, or shorten the prompts",
    )
    KV_POOL_FULL = (
        "kv_pool_full",
        "shared KV cache full during the answer",
        "the slots share one KV cache: start the server with a larger -c, or lower the load",
    )
    OVERLOADED = "overloaded", "refused as overloaded"
    QUOTA_EXCEEDED = (
        "quota_exceeded",
        "a quota or rate limit was reached",
        "see the message: the limit of an account was measured, not the server; raise it, or lower "
        "the load",
    )
    ERROR_EVENT = (
        "error_event",
        "an error in the stream",
        "see the message and the server's log",
        END,
    )
    BAD_EVENT = "bad_event", "an event that is no JSON chunk"
    BAD_BODY = "bad_body", "an answer that is no JSON of this API"
    NO_STREAM = (
        "no_stream",
        "no event stream",
        "see the message; a proxy may compress or replace the answer",
    )
    EMPTY_ANSWER = (
        "empty_answer",
        "empty answer",
        "see the message and the server's log",
    )
    WRONG_ANSWER = (
        "wrong_answer",
        "wrong answer",
        "read the answers (--save-texts): the model, its chat template or settings, or the "
        "expectation is wrong",
    )
    HTTP_400 = ("http_400", "HTTP status 400", "see the message and the server's log")
    HTTP_401 = (
        "http_401",
        "HTTP status 401",
        "give the server's key in LLAMA_LOAD_API_KEY",
    )
    HTTP_403 = (
        "http_403",
        "HTTP status 403",
        "give the server's key in LLAMA_LOAD_API_KEY",
    )
    HTTP_404 = (
        "http_404",
        "HTTP status 404",
        "see the message: the model's name (--model) or the path is unknown to the server",
    )
    HTTP_413 = (
        "http_413",
        "HTTP status 413",
        "the request is larger than the server or a proxy accepts",
    )

    # Of the client.
    CLIENT_TIMEOUT = "client_timeout", "the locustfile stopped waiting"
    CLIENT_ERROR = (
        "client_error",
        "an error in llama-load",
        "please report it with the message",
    )
