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


def shown(page: Any) -> list[str]:
    """The headings of the rows that can be seen."""
    heads = page.locator("tbody tr:not([hidden]) > th")
    return [text.split()[0] for text in heads.all_inner_texts()]


def test_rows_are_filtered_by_suite_verdict_and_text(browser: Any) -> None:
    """Catches a mistake in the page's JavaScript."""
    with opened(browser, PAGE.as_uri()) as (page, log):
        everything = shown(page)
        page.select_option("#suite", "faults")
        faults = shown(page)
        assert faults and all(name.startswith("F") for name in faults)

        page.select_option("#word", "reports")
        assert set(shown(page)) < set(faults) and "F3" in shown(page)

        page.fill("#text", "error event")
        assert shown(page) == ["F3"]
        page.select_option("#suite", "")
        page.select_option("#word", "")
        page.fill("#text", "")
        assert shown(page) == everything
        assert not log.faults and not log.requests


def test_the_figures_of_a_cell_open(browser: Any) -> None:
    """Catches a cell whose figures stay closed in a browser."""
    with opened(browser, PAGE.as_uri()) as (page, _):
        cell = page.locator("tr", has_text="F3 ").locator("td.reports").first
        assert "failed:" not in cell.inner_text()
        cell.get_by_text("figures").click()
        assert "failed: 0 (right: 4" in cell.inner_text()
