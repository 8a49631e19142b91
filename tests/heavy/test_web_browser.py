"""The page in Chromium, on the real llama-server: fill the form, make mistakes, start, watch, stop,
download, compare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llama_load.servers.serving.launch import Server
from tests.heavy.browser import Log, chromium, opened, until
from tests.json_server import json_server
from tests.page.web_pages import LlmPage, llm_page
from tests.web_client import TOKEN_QUERY

pytestmark = pytest.mark.heavy

WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(llama_server: Server, tmp_path: Path) -> Iterator[LlmPage]:
    with llm_page(tmp_path, "--host", llama_server.url) as found:
        yield found
        assert "Traceback" not in found.log


def unfold(tab: Any) -> None:
    """Open all groups of the form."""
    tab.evaluate(
        "document.querySelectorAll('details.more').forEach((each) => { each.open = true; })"
    )


def completed(tab: Any) -> int:
    return int(tab.locator(".tile b").first.inner_text().replace(",", ""))


def fits(tab: Any) -> bool:
    """Nothing sticks out on the right."""
    return tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def wait_for_chip(tab: Any, text: str) -> None:
    until(tab, f"document.getElementById('state').textContent.startsWith('{text}')")


def own_only(log: Log, page: LlmPage) -> None:
    """The page asked for nothing from elsewhere, and no script or policy complained."""
    host = page.url.removesuffix("/llm")
    assert all(url.startswith((host, "data:", "blob:")) for url in log.requests), (
        log.requests
    )
    assert [
        fault for fault in log.faults if "422" not in fault and "webrtc" not in fault
    ] == []  # a policy that Chromium does not know yet


@pytest.mark.real
def test_from_the_first_mistake_to_a_comparison(
    browser: Any, page: LlmPage, tmp_path: Path
) -> None:
    """What a person does in the first ten minutes, in one window; others look on, from a phone and
    in the dark. Catches a mistake in the page's JavaScript on the way of a first user."""
    with opened(browser, page.url + "/" + TOKEN_QUERY, offline=False) as (tab, log):
        wait_for_chip(tab, "ready")
        tab.locator("[name=num_users]").fill("many")
        unfold(tab)
        tab.locator("[name=fail_if]").fill("p99_ttft_ms>5000\nnonsense")
        tab.locator("[name=goodput]").fill("ttft:fast")
        tab.locator("#go").click()
        tab.locator(".field[data-name=num_users] .fault").wait_for()
        assert (
            "must be a whole number"
            in tab.locator(".field[data-name=num_users] .fault").inner_text()
        )
        assert (
            "'nonsense'" in tab.locator(".field[data-name=fail_if] .fault").inner_text()
        )
        assert tab.locator("[name=goodput]").get_attribute("aria-invalid") == "true"
        assert "3 entries need a change" in tab.locator("#refused").inner_text()
        assert tab.locator("#state").inner_text() == "ready" and page.runs == []

        tab.locator("[name=num_users]").fill("4")
        tab.locator("[name=fail_if]").fill("mean_ttft_ms>60000\nmean_e2el_ms>60000")
        tab.locator("[name=goodput]").fill("")
        tab.locator("[name=max_tokens]").fill("60")
        tab.locator("[name=label]").fill("first 第一 🙂")
        tab.locator("#check").click()
        tab.locator("#preflight tr").first.wait_for()
        assert (
            "llama-server" in tab.locator("#preflight").inner_text() and page.runs == []
        )

        tab.locator("[name=num_prompts]").fill("")
        tab.locator("[name=run_time]").fill("5m")
        tab.locator("#go").click()
        tab.locator("#watch").wait_for()
        wait_for_chip(tab, "running")
        until(
            tab,
            "document.querySelector('.tile b') && Number(document.querySelector('.tile b').textContent) > 5",
        )
        before = completed(tab)
        until(
            tab,
            f"Number(document.querySelector('.tile b').textContent.replace(',', '')) > {before}",
        )
        until(tab, "document.querySelectorAll('.chart').length >= 5")
        assert "0" in tab.locator("#figures td").nth(1).inner_text()

        for scheme, (name, width) in zip(
            ("dark", "light"), WIDTHS.items(), strict=True
        ):
            with opened(
                browser,
                page.url + "/" + TOKEN_QUERY,
                width=width,
                scheme=scheme,
                offline=False,
            ) as (other, others):
                until(other, "document.querySelectorAll('.chart').length >= 5")
                until(
                    other,
                    "document.querySelector('.tile b') && document.querySelector('.tile b').textContent !== '0'",
                )
                assert completed(other) >= before, "a late visitor sees the history"
                assert fits(other)
                other.screenshot(
                    path=tmp_path / f"watch-{name}-{scheme}.png", full_page=True
                )
                own_only(others, page)
        tab.reload()
        wait_for_chip(tab, "running")
        tab.locator("#watch").wait_for()

        tab.locator("#stop").click()
        wait_for_chip(tab, "ready")
        tab.locator("#results").wait_for()
        assert tab.locator("#outcome").inner_text() != ""
        tab.screenshot(path=tmp_path / "after-desktop-light.png", full_page=True)

        tab.locator("#again").click()
        tab.locator("#start").wait_for()
        unfold(tab)
        assert tab.locator("[name=max_tokens]").input_value() == "60", "values are kept"
        assert (
            tab.locator("[name=fail_if]").input_value()
            == "mean_ttft_ms>60000\nmean_e2el_ms>60000"
        )
        assert tab.locator("[name=run_time]").input_value() == "5m"
        tab.locator("[name=run_time]").fill("")
        tab.locator("[name=num_prompts]").fill("40")
        tab.locator("[name=num_users]").fill("2")
        tab.locator("[name=label]").fill("second")
        tab.locator("#go").click()
        tab.locator("#watch").wait_for()
        until(tab, "!document.getElementById('results').hidden")
        tab.locator("#results").click()
        tab.locator("iframe, pre").first.wait_for()
        tab.locator(".menu summary").click()
        with tab.expect_download() as download:
            tab.get_by_role("link", name="requests.csv").click()
        assert Path(download.value.path()).read_text().count("\n") > 40
        assert fits(tab)
        tab.screenshot(path=tmp_path / "run-desktop-light.png", full_page=True)

        tab.get_by_role("link", name="Results").click()
        for place in range(2):
            assert tab.locator("#compare").is_disabled()
            tab.locator("input[name=run]").nth(place).check()
        tab.locator("#compare").click()
        assert tab.locator("h1").inner_text() == "Comparison"
        tab.locator("iframe").wait_for()
        shown = tab.frames[1]
        until(shown, "document.documentElement?.dataset.charts !== undefined")
        assert "second against first 第一 🙂" in shown.content().replace(" †", "")
        assert shown.evaluate("document.querySelectorAll('[data-chart]').length") > 2, (
            "distributions over each other"
        )
        own_only(log, page)
    assert len(page.runs) == 2
    for run in page.runs:
        assert msgspec.json.decode((run / "summary.json").read_bytes())["completed"] > 0


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("desktop", "light"), ("desktop", "dark"), ("phone", "light"), ("phone", "dark")],
)
def test_the_form_fits_and_says_everything(
    browser: Any, page: LlmPage, tmp_path: Path, name: str, scheme: str
) -> None:
    """All texts whole at any width; what is folded can be opened. Catches a text that is cut at the
    width of a phone."""
    with opened(
        browser,
        page.url + "/" + TOKEN_QUERY,
        width=WIDTHS[name],
        scheme=scheme,
        offline=False,
    ) as (tab, log):
        wait_for_chip(tab, "ready")
        assert fits(tab)
        unfold(tab)
        assert fits(tab)
        cut = "[...document.querySelectorAll('.help')].filter((each) => each.scrollWidth > each.clientWidth + 1).length"
        assert tab.evaluate(cut) == 0
        names = tab.evaluate(
            "[...document.forms.form.elements].map((each) => each.name)"
        )
        assert "num_users" in names and tab.locator("[name=images]").is_hidden()
        tab.locator("[name=workload]").select_option("bundled vision")
        assert (
            tab.locator("[name=images]").is_visible()
            and tab.locator("[name=turns]").is_hidden()
        )
        tab.screenshot(path=tmp_path / f"start-{name}-{scheme}.png", full_page=True)
        own_only(log, page)


def test_a_report_opens_in_its_sandbox(browser: Any, page: LlmPage) -> None:
    """Its charts are drawn, and it can reach neither our routes nor anything else. Catches a
    sandbox that a browser does not keep."""
    run = page.start(
        num_users="2", num_prompts="10", max_tokens="10", no_report_html=False
    )
    page.wait_for("idle", timeout_s=60)
    with opened(
        browser, f"{page.url}/runs/{run}/report.html{TOKEN_QUERY}", offline=False
    ) as (tab, log):
        tab.locator("iframe").wait_for()
        report = tab.frames[1]
        until(report, "document.documentElement?.dataset.charts !== undefined")
        assert report.evaluate("document.documentElement?.dataset.charts") == "drawn"
        assert report.evaluate("self.origin") == "null"
        reached = "fetch('/llm/api/live').then(() => 'reached', () => 'refused')"
        assert report.evaluate(reached) == "refused"
        del log.faults[:]


def test_a_foreign_report_cannot_call_another_server(
    browser: Any, page: LlmPage
) -> None:
    """Neither by `location`, a link or a refresh, nor by a new window. Catches a way out of the
    page that its policy leaves open."""
    folder = page.folder / "runs" / "foreign"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text("{}")
    with json_server({"/": {}}) as other:
        ways = (
            f"<script>location = '{other.url}/location'</script>",
            f"<meta http-equiv=refresh content='0;url={other.url}/refresh'>",
            f"<a id=out href='{other.url}/link' target=_blank>x</a><script>document.getElementById('out').click()</script>",
            f"<script>open('{other.url}/open')</script>",
            f"<script>top.location = '{other.url}/top'</script>",
            f"<script>open('report.html?framed').location = '{other.url}/opened'</script>",
        )
        for text in ways:
            (folder / "report.html").write_text(text)
            with opened(
                browser,
                f"{page.url}/runs/foreign/report.html{TOKEN_QUERY}",
                offline=False,
            ) as (tab, log):
                tab.wait_for_timeout(700)
                del log.faults[:], log.requests[:]
            assert other.headers == [], text


def test_a_server_that_is_gone_is_shown_and_the_page_recovers(
    browser: Any, page: LlmPage
) -> None:
    """A refused start is no run; when Locust ends, the page says that it has no answer. Catches a
    page that stands still once Locust has ended."""
    with opened(browser, page.url + "/" + TOKEN_QUERY, offline=False) as (tab, _):
        wait_for_chip(tab, "ready")
        tab.locator("[name=host]").fill("http://127.0.0.1:9")
        tab.locator("#go").click()
        tab.locator(".field[data-name=host] .fault").wait_for()
        assert tab.evaluate("document.activeElement.name") == "host", (
            "the focus is where something is to be done"
        )
        assert (
            tab.locator("#start").is_visible()
            and tab.locator("#state").inner_text() == "ready"
        )
        assert page.runs == []
        page.process.terminate()
        page.process.wait(20)
        tab.locator("#offline").wait_for(timeout=20_000)
