"""Locust's Enter, which opens the page in the person's browser: with its token.

Arguments of a program are seen by every user of the machine, so the browser gets the path of a file
that only this user reads, and which leads on to the URL with the token.
"""

from __future__ import annotations

import atexit
import html
import os
import tempfile
import webbrowser
from pathlib import Path

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>llama-load</title>
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={0}"><a href="{0}">Open the page</a></html>"""


def open_by_file(page: str) -> None:
    """Make Locust's Enter open this URL in place of its own, which has no token."""
    opened = webbrowser.open_new_tab

    def open_page(url: str) -> bool:
        return opened(_page_that_leads_to(page).as_uri())

    webbrowser.open_new_tab = open_page


def _page_that_leads_to(url: str) -> Path:
    """A file of this user alone, until the process ends."""
    descriptor, name = tempfile.mkstemp(prefix="llama-load-", suffix=".html")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_PAGE.format(html.escape(url)))
    path = Path(name)
    atexit.register(path.unlink, missing_ok=True)
    return path
