"""Debian's Chromium without a network, for tests of pages: `with chromium() as browser,
opened(browser, address) as (page, log)`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

WITHIN_S = 60.0


@dataclass
class Log:
    """What a page complained about, and what it requested besides itself."""

    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    assert path is not None, "scripts/debian.sh installs chromium"
    with sync_playwright() as playwright:
        # root has no sandbox
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: Any,
    address: str,
    *,
    width: int = 1280,
    scheme: str = "light",
    offline: bool = True,
) -> Iterator[tuple[Any, Log]]:
    """A page at an address, in a window of its own, with its log. `scheme`: light or dark."""
    context = browser.new_context(
        offline=offline, viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    page, log = context.new_page(), Log()
    page.on(
        "console",
        lambda message: (
            log.faults.append(message.text)
            if message.type in ("error", "warning")
            else None
        ),
    )
    page.on("pageerror", lambda error: log.faults.append(str(error)))
    page.on(
        "request",
        lambda request: (
            log.requests.append(request.url) if request.url != address else None
        ),
    )
    try:
        page.goto(address)
        yield page, log
    finally:
        context.close()


def until(page: Any, expression: str) -> None:
    """Wait until this is true in the page. (Playwright's own wait runs eval, which the policy of
    our pages forbids.)"""
    end = time.monotonic() + WITHIN_S
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)


def drawn(page: Any) -> None:
    """Wait until the charts of a page are drawn."""
    until(page, "document.documentElement?.dataset.charts !== undefined")
    assert page.evaluate("document.documentElement?.dataset.charts") == "drawn"
