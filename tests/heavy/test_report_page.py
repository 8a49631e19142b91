"""report.html in a browser without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_load.analysis.reports.write import write_html, write_reports
from tests.analysis.reports.test_html import HOSTILE, hostile_results, staged_results
from tests.heavy.browser import chromium, drawn, opened, until

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found = {}
    for name, make in (("hostile", hostile_results), ("stages", staged_results)):
        folder: Path = tmp_path_factory.mktemp(name)
        results = make(folder)
        assert write_html(write_reports(results)) is None
        found[name] = (folder / "report.html").as_uri()
    return found


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("hostile", 360, "light"),
        ("hostile", 1600, "dark"),
        ("stages", 800, "light"),
        ("stages", 360, "dark"),
    ],
)
def test_the_page_draws_all_its_charts_and_asks_for_nothing(
    browser: Any, addresses: dict[str, str], name: str, width: int, scheme: str
) -> None:
    """No fault in the console, nothing loaded, nothing of the hostile texts has run, and nothing is
    wider than the window. Catches a chart that Bokeh does not draw, a fault in the console, a
    request."""
    with opened(browser, addresses[name], width=width, scheme=scheme) as (page, log):
        drawn(page)
        page.wait_for_timeout(300)
        drawings = page.evaluate(
            "[...document.querySelectorAll('[data-chart]')].map(each => each.childElementCount)"
        )
        assert len(drawings) > 8
        assert set(drawings) == {1}
        assert page.evaluate("window.pwned") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert (log.faults, log.requests) == ([], [])


def test_a_figure_is_not_cut_at_the_edge_of_its_card(
    browser: Any, addresses: dict[str, str]
) -> None:
    """A million requests were shown as "1,000,000 of 1,0". Catches a figure that a real font makes
    wider than its card."""
    fill = "document.querySelector('.figure .value').innerHTML = '1,000,000 <small>of 1,000,000</small>'"
    fits = "[...document.querySelectorAll('.figure .value')].every(each => each.scrollWidth <= each.clientWidth)"
    for width in (360, 800, 1600):
        with opened(browser, addresses["stages"], width=width) as (page, _):
            page.evaluate(fill)
            assert page.evaluate(fits)


@pytest.mark.real
def test_hostile_texts_are_shown_as_texts(
    browser: Any, addresses: dict[str, str]
) -> None:
    """Catches a script in a label that a browser runs."""
    with opened(browser, addresses["hostile"]) as (page, _):
        drawn(page)
        assert HOSTILE in page.inner_text("h1")
        assert (
            page.locator("body img, body svg, body iframe, body script[src]").count()
            == 0
        )


def test_charts_change_their_colours_with_the_reader(
    browser: Any, addresses: dict[str, str]
) -> None:
    """From light to dark and back: the colour of an axis label. Catches colours that stay when the
    reader's scheme changes."""
    colour = "[...Bokeh.documents[0]._all_models.values()].find(each => each.type === 'LinearAxis').axis_label_text_color"
    with opened(browser, addresses["stages"]) as (page, _):
        drawn(page)
        light = page.evaluate(colour)
        page.emulate_media(color_scheme="dark")
        until(page, f"({colour}) !== '{light}'")
        page.emulate_media(media="print")  # paper is light, whatever the screen is
        until(page, f"({colour}) === '{light}'")
        page.emulate_media(media="screen")
        until(page, f"({colour}) !== '{light}'")
        page.emulate_media(color_scheme="light")
        until(page, f"({colour}) === '{light}'")


@pytest.mark.real
def test_charts_over_time_zoom_together(
    browser: Any, addresses: dict[str, str]
) -> None:
    """Catches axes that our script no longer ties together."""
    shared = """() => {
      const ranges = [...document.querySelectorAll('#time [data-chart]')].map(
        each => Bokeh.index.get_by_id(JSON.parse(document.getElementById('charts').textContent).roots[each.dataset.chart]).model.x_range);
      return ranges.length > 4 && ranges.every(each => each === ranges[0]);
    }"""
    with opened(browser, addresses["stages"]) as (page, _):
        drawn(page)
        assert page.evaluate(shared)


def test_the_page_prints(browser: Any, addresses: dict[str, str]) -> None:
    """Catches a page that is empty in print."""
    with opened(browser, addresses["stages"]) as (page, _):
        drawn(page)
        assert page.pdf().startswith(b"%PDF")
