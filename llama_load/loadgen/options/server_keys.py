"""Which server gets which key.

The keys of a command line or of the environment are for the servers that the person names: those in
LLAMA_LOAD_KEYS_FOR, without it those that the command line or the plan gives. A server that we
found ourselves gets none.
"""

from __future__ import annotations

import os

from llama_load.outside.bound_headers import (
    BoundHeaders,
    Headers,
    bearer,
    bound,
    origin_of,
)
from llama_load.outside.command_secrets import is_secret_header
from llama_load.outside.foreign_text import keep_secret
from llama_load.servers.address import split_hosts

API_KEY = "LLAMA_LOAD_API_KEY"
# URLs of the servers that keys may go to. NOBODY: none of them.
KEYS_FOR = "LLAMA_LOAD_KEYS_FOR"
NOBODY = "none"
# What holds keys in the environment of a run.
KEY_VARIABLES = (API_KEY, "LLAMA_LOAD_HEADER", "LLAMA_LOAD_EXTRA_BODY")


def may_have_keys(url: str) -> bool:
    """Whether keys may go to the server at this URL, which the person has named."""
    named = os.environ.get(KEYS_FOR, "")
    if not named.strip():
        return True
    servers = [each for each in split_hosts(named) if each != NOBODY]
    return origin_of(url) in [origin_of(each) for each in servers]


def headers_for(url: str, headers: Headers) -> BoundHeaders:
    """These headers for the server at this URL; without the secret ones if it may not have keys."""
    if may_have_keys(url):
        return bound(url, headers)
    harmless = [header for header in headers if not is_secret_header(*header)]
    return bound(url, tuple(harmless))


def environment_key_for(url: str) -> BoundHeaders:
    """The header with the key of LLAMA_LOAD_API_KEY for this server; none without a key."""
    key = os.environ.get(API_KEY, "")
    keep_secret([key])
    return headers_for(url, bearer(key))
