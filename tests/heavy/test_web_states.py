"""Every state of the page at three widths, light and dark: pictures, axe-core's rules of WCAG A and
AA, no fault in the console."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import simulated_server
from tests.heavy.browser import chromium, opened, until
from tests.page.web_pages import LlmPage, llm_page
from tests.web_client import TOKEN_QUERY

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

WIDTHS = (390, 820, 1400)
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of the npm package axe-core, newest of version 4."""
    folder = tmp_path_factory.mktemp("axe")
    command = [
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--prefix",
        str(folder),
        "axe-core@4",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmPage]:
    folder = tmp_path_factory.mktemp("states")
    with (
        simulated_server(folder, "--interval-ms", "20") as server,
        llm_page(folder, "--host", server.url) as found,
    ):
        yield found
        assert "Traceback" not in found.log


def violations(tab: Any, axe: str) -> list[str]:
    """What breaks the rules; the frames of reports are other documents."""
    tab.evaluate(axe + ";0")
    found = tab.evaluate(
        f"axe.run({{exclude: ['iframe']}}, {{runOnly: {RULES}, iframes: false}})"
    )
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


def looked_at(
    browser: Any,
    page: LlmPage,
    axe: str,
    pictures: Path,
    state: str,
    path: str,
    ready: str,
    act: str = "0",
) -> None:
    """A state in all widths and both schemes: opened once, then resized."""
    address = (
        page.url
        + path
        + (TOKEN_QUERY.replace("?", "&") if "?" in path else TOKEN_QUERY)
    )
    with opened(browser, address, width=WIDTHS[0], offline=False) as (tab, log):
        tab.evaluate(act)
        until(tab, ready)
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": 900})
            for scheme in ("light", "dark"):
                tab.emulate_media(color_scheme=scheme)
                tab.wait_for_timeout(250)
                tab.screenshot(
                    path=pictures / f"{state}-{width}-{scheme}.png", full_page=True
                )
                assert violations(tab, axe) == [], (state, width, scheme)
                assert tab.evaluate(
                    "document.documentElement.scrollWidth <= innerWidth"
                ), (state, width)
        assert [
            fault
            for fault in log.faults
            if "422" not in fault and "webrtc" not in fault
        ] == [], state


def test_every_state_is_readable(
    browser: Any, page: LlmPage, axe: str, tmp_path: Path
) -> None:
    """The pictures lie in the test's folder. Catches contrast, names of controls and faults in the
    console of a state that only a browser renders."""
    ready = "document.getElementById('state').textContent.startsWith('ready')"
    look = lambda *state: looked_at(browser, page, axe, tmp_path, *state)  # noqa: E731
    look("empty", "/runs", "document.querySelector('h1')")
    look("start", "/", ready)
    look(
        "unfolded",
        "/",
        f"{ready} && !!document.querySelectorAll('details.more').forEach((each) => {{ each.open = true; }}) || {ready}",
    )
    filled = f"{ready} && !document.getElementById('check').disabled"
    when_filled = (
        "const timer = setInterval(() => { if (%s) { clearInterval(timer); %s } }, 50)"
    )
    click = "document.getElementById('check').click();"
    wrong = "document.forms.form.elements.num_users.value = '0';"
    fault = "document.querySelector('.field.wrong .fault:not([hidden])') !== null"
    look("faults", "/", fault, when_filled % (filled, wrong + click))
    right = wrong.replace(
        "'0'", "'1'"
    )  # what was typed last is kept for the next visitor
    look(
        "checked",
        "/",
        "!document.getElementById('preflight').hidden",
        when_filled % (filled, right + click),
    )

    first = page.start(
        num_users="3",
        num_prompts="12",
        max_tokens="20",
        label="base",
        no_report_html=False,
        fail_if=["mean_ttft_ms>9000"],
    )
    page.wait_for("idle", timeout_s=60)
    page.start(
        num_users="2",
        num_prompts="",
        run_time="5m",
        max_tokens="60",
        label="base",
        no_report_html=True,
    )
    page.wait_for("running")
    charts = "document.querySelectorAll('.plot[aria-label]').length >= 5 && document.querySelector('.tile b').textContent > '1'"
    look("watch", "/", charts)
    page.post("/api/stop")
    page.wait_for("idle", timeout_s=60)
    second = page.live()["outcome"]["run"]
    look("after", "/", f"{charts} && !document.getElementById('outcome').hidden")
    look(
        "again",
        f"/?like={first}",
        f"{ready} && document.forms.form.elements.num_users.value === '3'",
    )
    damaged = page.folder / "runs" / "damaged 第一 🙂 <b>"
    damaged.mkdir(exist_ok=True)  # a second look at this test has the same page
    (damaged / "run.json").write_text('{"label": "<img src=x> 第一 🙂"}')
    look("list", "/runs", "document.querySelectorAll('tbody tr').length === 3")
    look("report", f"/runs/{first}", "document.querySelector('iframe') !== null")
    look(
        "block",
        f"/runs/{second}",
        "document.querySelector('.banner, pre') !== null && !document.querySelector('iframe')",
    )
    look(
        "damaged",
        "/runs/damaged%20%E7%AC%AC%E4%B8%80%20%F0%9F%99%82%20%3Cb%3E",
        "document.querySelector('.banner') !== null",
    )
    look(
        "compare",
        f"/compare?run={first}&run={second}",
        "document.querySelector('iframe') !== null",
    )
    look("searches", "/searches", "document.querySelector('#search') !== null")
    look("few", f"/compare?run={first}", "document.querySelector('.banner') !== null")
