"""Locust's Enter opens the page with its token, which no other user sees."""

from __future__ import annotations

import stat
import webbrowser
from pathlib import Path

import pytest

from llama_load.page.open_page import open_by_file


def test_enter_opens_the_page_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser's arguments have no token, and the file is this user's alone."""
    opened: list[str] = []
    monkeypatch.setattr(
        webbrowser, "open_new_tab", lambda url: opened.append(url) or True
    )
    open_by_file("http://127.0.0.1:8089/llm?token=canary-of-enter")
    assert webbrowser.open_new_tab("http://0.0.0.0:8089")

    (uri,) = opened
    assert "canary" not in uri
    file = Path(uri.removeprefix("file://"))
    try:
        assert "http://127.0.0.1:8089/llm?token=canary-of-enter" in file.read_text(
            encoding="utf-8"
        )
        assert stat.S_IMODE(file.stat().st_mode) == stat.S_IRUSR | stat.S_IWUSR
    finally:
        file.unlink()
