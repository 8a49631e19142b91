"""Requests that a page of others may have caused, in a browser on this machine.

A page can send requests to every port of its reader's machine, and by DNS rebinding under a name of
its own, so that it reads the answers.
"""

from __future__ import annotations

from llama_load.loadgen.wire.local_names import is_of_strangers, is_own_name, name_of
from llama_load.outside.foreign_text import printable
from llama_load.record.http_framing import Head
from llama_load.servers.local_ports import is_loopback

_MOST_CHARS = 100


def page_of(head: Head) -> str | None:
    """The name or origin of a page that may be of others; None for a request of a program, or of a
    page of this machine."""
    for host in _texts_of_field(head, b"host"):
        if is_of_strangers(host):
            return printable(host, _MOST_CHARS) or "an empty name"
    origins = _texts_of_field(head, b"origin")
    if not origins and _is_of_another_site(head):
        return "a site of another name"
    for origin in origins:
        scheme = origin.partition(":")[0].lower()
        name = name_of(origin) or ""
        # programs made of pages have schemes of their own: file, vscode-webview, tauri
        is_page = scheme in ("http", "https", "null")
        if is_page and not (is_loopback(name) or is_own_name(name)):
            return printable(origin, _MOST_CHARS)
    return None


def _is_of_another_site(head: Head) -> bool:
    """An image or a script of a page is asked for without an origin; a link that somebody follows
    is answered."""
    is_foreign = head.text(b"sec-fetch-site").lower() == "cross-site"
    return is_foreign and head.text(b"sec-fetch-dest").lower() != "document"


def _texts_of_field(head: Head, field: bytes) -> list[str]:
    return [value.decode("latin-1") for value in head.values(field)]
