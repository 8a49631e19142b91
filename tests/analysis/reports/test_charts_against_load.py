"""Charts of TTFT and output against the load, and the pages of sweeps and searches."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from llama_load.analysis.comparison.compare import compare
from llama_load.analysis.comparison.foreign_results import run_of
from llama_load.analysis.comparison.reasons import RATES, Reason
from llama_load.analysis.comparison.side import Side
from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.level import Level, levels_of
from llama_load.analysis.figures.spoiled import COUNTS
from llama_load.analysis.reports.comparison.comparison_page import comparison_page
from llama_load.analysis.reports.html.charts import Chart
from llama_load.analysis.reports.html.charts_levels import level_charts
from llama_load.analysis.reports.html.html_tables import cards
from llama_load.analysis.reports.html.page import html_page
from llama_load.analysis.reports.result_json import result_json
from llama_load.analysis.results.results import Results
from llama_load.ground.languages import CHINESE, ENGLISH
from llama_load.lab.sweep.measured_subject import subject_of
from llama_load.lab.sweep.sweep_page import best_figure, page
from llama_load.tables import Cell, Table, columns
from tests.analysis.comparison.sides import side
from tests.analysis.reports.test_html import charts_of
from tests.printed import analyzed

USERS = (Level(1, False, 10.0, 100.0), Level(8, False, 40.0, 300.0))


@cache
def staged() -> Results:
    return analyzed("stages")


def names_of(charts: list[Chart]) -> list[str]:
    return [chart.title for chart in charts]


def test_ttft_and_output_are_drawn_against_the_load() -> None:
    charts = level_charts({"": USERS}, str)
    assert names_of(charts) == [
        "TTFT median against the load",
        "Output against the load",
    ]
    assert (
        "1: 10.0, 8: 40.0" in charts[0].summary
        and "1: 100, 8: 300" in charts[1].summary
    )
    assert charts[0].keys == [] and charts[0].note == ""


def test_each_run_has_its_colour_and_name() -> None:
    other = (Level(4, False, 20.0, None),)
    ttft, output = level_charts({"base": USERS, "new": other}, str)
    assert [(key.colour, key.text) for key in ttft.keys] == [
        ("blue", "base"),
        ("orange", "new"),
    ]
    assert output.keys == [], "no output of the other is known"


def test_a_figure_that_a_check_spoils_is_hollow() -> None:
    spoiled = (USERS[0], Level(8, False, 40.0, 300.0, is_ttft_sure=False))
    ttft, output = level_charts({"": spoiled}, str)
    assert ttft.note == "Hollow: a check spoils this figure." and output.note == ""


def test_one_load_or_two_kinds_of_load_have_no_chart() -> None:
    rates = (Level(1, True, 10.0, 100.0), Level(2, True, 10.0, 100.0))
    assert level_charts({"": USERS[:1]}, str) == []
    assert level_charts({}, str) == level_charts({"a": USERS, "b": rates}, str) == []


def test_a_report_of_stages_shows_them_unfolded() -> None:
    results = staged()
    html = html_page(results, "", "en")
    unfolded = html.partition("<details")[0]
    assert unfolded.index('id="parts"') < unfolded.index('id="stages"')
    assert "Output against the load" in unfolded
    assert unfolded.count("data-chart=") == 4
    loads = [level.load for level in levels_of(results.stages)]
    assert loads == [1, 4, 8]


def test_runs_with_stages_are_drawn_over_each_other() -> None:
    """From their summaries. Each stage is a comparison of its own; the charts have all of them."""
    summary = json.loads(json.dumps(result_json(staged())))
    parts = []
    for stage in ("1", "4", "8"):
        sides = [
            Side(label, [run_of(summary, label, stage)]) for label in ("base", "new")
        ]
        parts.append((f"stage {stage}", compare(sides)))
    html = comparison_page(parts)
    assert html.index("Against the load") < html.index("Stage 1")
    figure = html[html.index("<figcaption>") : html.index("</figcaption>")]
    assert "</i>base</li>" in figure and "</i>new</li>" in figure
    charts_of(html)


def test_the_banner_has_the_reason_that_most_figures_are_not_ranked() -> None:
    """A blurred ITL of one side is named after prompts that differ."""
    comparison = compare([side("a"), side("b")])
    blurred = Reason("a is BLURRED", (0,), "itl")
    rates = Reason("requests failed", (0, 1), RATES)
    prompts = Reason("other prompts", (0, 1))
    for reasons, first in (
        ([blurred, prompts], "other prompts (and 1 other reason, below)"),
        ([blurred, rates, prompts], "other prompts (and 2 other reasons, below)"),
        ([blurred, rates], "requests failed (and 1 other reason, below)"),
        ([blurred], "a is BLURRED"),
    ):
        html = comparison_page([("", replace(comparison, reasons=reasons))])
        assert f'<p class="headline">{first}</p>' in html


def table() -> Table:
    """Two settings at two loads; 300 tok/s is marked as the best."""
    rows = []
    for threads in ("4", "8"):
        for users in (1, 16):
            best = (threads, users) == ("8", 16)
            rate = 300.0 if best else 100.0 + users
            rows.append(
                [
                    f"threads={threads}",
                    f"u={users}",
                    Cell(f"{rate:.0f}", rate, is_best=best),
                ]
            )
    return Table("Runs", columns("setting", "load", "tok/s", texts=2), rows)


def test_the_page_of_a_sweep_has_its_answer_colours_and_a_legend() -> None:
    best = best_figure([table()])
    assert best == ("300", "tok/s: threads=8, u=16")
    html = page("Sweep", "4 cells", [table()], [], answer=best)
    assert '<p class="value">300 <small>tok/s: threads=8, u=16</small></p>' in html
    figure = html[html.index("<figcaption>") : html.index("</figcaption>")]
    for colour, text in (
        ("blue", "threads=4"),
        ("orange", "threads=8"),
        ("ink", "best"),
    ):
        assert f'<i style="background:var(--{colour})"></i>{text}' in figure


def test_a_sweep_without_a_best_row_has_no_large_number() -> None:
    plain = Table("Runs", columns("setting", "tok/s"), [["a", Cell("1", 1.0)]])
    assert best_figure([plain]) is None


def test_the_page_of_a_sweep_names_server_model_and_date(tmp_path: Path) -> None:
    for number, date in enumerate(("20260102-120000", "20260101-120000")):
        target = {"backend": "llama-server", "model": "m", "url": "http://h:1"}
        (tmp_path / str(number)).mkdir()
        manifest = json.dumps({"targets": [target], "date": date})
        (tmp_path / str(number) / "run.json").write_text(manifest)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    subject = subject_of(tmp_path)
    assert subject == [
        ("Server", "llama-server · m · http://h:1"),
        ("Date", "2026-01-01 12:00:00 – 2026-01-02 12:00:00"),
    ]
    html = page("Capacity", "", [table()], [], subject=subject)
    assert "<dt>Server</dt><dd>llama-server · m · http://h:1</dd>" in html
    assert subject_of(tmp_path / "nothing") == []


@pytest.mark.parametrize(
    ("backend", "urls", "servers"),
    [
        ("vllm", ["http://h:1", "http://h:2", "http://h:3"], ["vllm · 2 slots"]),
        ("vllm", ["http://h:1", "http://h:1"], ["vllm · 2 slots · http://h:1"]),
        (
            "vllm",
            ["http://a:1", "http://b:1"],
            ["vllm · 2 slots · http://a:1", "vllm · 2 slots · http://b:1"],
        ),
        (
            "vllm",
            ["http://h:1", "http://h:2", "http://h:1"],
            ["vllm · 2 slots · http://h:1", "vllm · 2 slots · http://h:2"],
        ),
        ("", ["http://h:1", "http://h:2"], ["http://h:1", "http://h:2"]),
    ],
)
def test_a_server_that_every_run_started_anew_is_one(
    tmp_path: Path, backend: str, urls: list[str], servers: list[str]
) -> None:
    for number, url in enumerate(urls):
        target = (
            {"backend": backend, "slots": 2, "url": url} if backend else {"url": url}
        )
        (tmp_path / str(number)).mkdir()
        manifest = json.dumps({"targets": [target]})
        (tmp_path / str(number) / "run.json").write_text(manifest)
    assert subject_of(tmp_path) == [("Server", server) for server in servers]


@pytest.mark.parametrize(
    ("language", "note"),
    [
        (ENGLISH, "† not ranked: the table says why"),
        (CHINESE, "† 不参与排名：原因见表"),
    ],
)
def test_bars_of_figures_that_are_not_ranked_are_marked(
    language: str, note: str
) -> None:
    rows = [["a", Cell("5 †", 5.0)], ["b", Cell("4", 4.0)], ["a †", Cell("3", 3.0)]]
    marked = page(
        "Sweep",
        "",
        [Table("Runs", columns("setting", "tok/s"), rows)],
        [],
        language=language,
    )
    assert note in marked

    from bokeh.models import ColumnDataSource  # takes a fifth of a second

    opacities = {}
    for drawn in charts_of(marked).select({"type": ColumnDataSource}):
        opacities |= dict(zip(drawn.data["name"], drawn.data["opacity"], strict=True))
    assert opacities == {"a †": 0.4, "b": 1.0, "a † (3)": 1.0}

    rows = [["a", Cell("5", 5.0)], ["b", Cell("4", 4.0)]]
    plain = page("Sweep", "", [Table("Runs", columns("setting", "tok/s"), rows)], [])
    assert "†" not in plain


def test_cards_of_spoiled_figures_are_marked() -> None:
    """Output that a check spoils is shown with its mark and the check, and not left out."""
    results = analyzed("demo")
    why = "the counts do not fit what was seen"
    check = Check(next(iter(LIMITS)), 1.0, 0.0, False, why, spoils=(COUNTS,))
    verdict = replace(results.verdict, checks=[*results.verdict.checks, check])
    doubted = replace(results, verdict=verdict)

    assert not any(card.why for card in cards(results, str))
    marked = [card.name for card in cards(doubted, str) if card.why == why]
    assert marked == ["Output"]
    html = html_page(doubted, "", "en")
    assert html.count('class="card figure spoiled"') == 1
    assert f'<p class="note why">! {why}</p>' in html
