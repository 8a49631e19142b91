"""The page of truth's results in a browser without a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.heavy.browser import chromium, opened

pytestmark = pytest.mark.heavy
PAGE = REPOSITORY / "truth" / "results" / "page.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def test_the_matrix_fits_a_window_and_begins_at_its_top(browser: Any) -> None:
    """Catches a matrix that a reader has to scroll: wider than 1280 pixels, or below the fold."""
    with opened(browser, PAGE.as_uri()) as (page, log):
        width = page.evaluate("document.documentElement.scrollWidth")
        first = page.locator("#matrix tbody tr").first.bounding_box()
        assert width <= 1280 and first["y"] + first["height"] < 400
        assert not log.faults and not log.requests


def test_a_click_on_a_cell_shows_its_figures(browser: Any) -> None:
    """Catches a mistake in the page's JavaScript."""
    with opened(browser, PAGE.as_uri()) as (page, _):
        page.locator("td.wrong[data-case=F3]").first.click()
        text = page.locator("#shown").inner_text()
        assert text.startswith("F3 an error event") and " is wrong" in text
        assert text.count("failed\t4\t0\t0\twrong") == 1

        page.locator("th[data-case=T3]").click()
        assert page.locator("#shown").inner_text().startswith("T3 400 synchronous")
