"""Terminals of any width: every output ends, keeps its words, and is not much longer than in a wide
one."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress as Bar

from llama_load.analysis.comparison.compare import compare
from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.check_lines import check_lines
from llama_load.analysis.reports.first_screen import first_screen
from llama_load.analysis.reports.html.charts import ChartPage
from llama_load.analysis.reports.run_list import COLUMNS, run_lines
from llama_load.analysis.reports.show import show
from llama_load.analysis.reports.stage_table import stage_table
from llama_load.analysis.reports.write import RunReports
from llama_load.analysis.results.results import Results
from llama_load.cli import compare_command
from llama_load.cli.main import main
from llama_load.lab.search.capacity_answer import Answer, sentence
from llama_load.lab.search.closed import search_users
from llama_load.lab.search.report import charts, terminal_lines
from llama_load.lab.search.search_probe import Goal
from llama_load.lab.sweep.folder import open_folder
from llama_load.lab.sweep.runner import Sweep
from llama_load.lab.sweep.sweep_progress import Progress
from llama_load.loadgen.preflight.prepare import print_table
from llama_load.loadgen.run.progress import Counts, bar_columns
from llama_load.run_folder import load_run
from llama_load.tables import text_lines
from llama_load.tables.text_width import LEAST_TEXT, wrapped
from scripts.record_printed import PRINTED
from tests.analysis.reports.test_comparison import three_sides
from tests.lab.test_search import SEARCHED, probe_of
from tests.lab.test_sweep_run import plan_and_cells
from tests.printed import analyzed
from tests.repository.source import name_in_package, nodes_of, package_files, written

WIDTHS = range(1, 301)
# What breaks a layout breaks it below the width of a column, or at that of a line.
SOME_WIDTHS = (0, 1, 2, 7, 20, 40, 80, 120)
TEXTS = (
    "",
    "a few words that are broken between each other",
    "一句没有空格的中文句子它必须在任何宽度下断开",
    "the path /data/runs/20260101-120000-sharegpt/requests.parquet stays whole",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
)


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_wrapped_at_any_width(text: str) -> None:
    """At the width of a label it never ended: blank lines at full CPU."""
    for width in WIDTHS:
        for bullet, indent in (
            ("", None),
            ("✓  a label as wide as a sentence  ", None),
            ("- ", " " * 40),
        ):
            lines = list(wrapped(text, width, bullet, indent))
            assert "".join("".join(lines).split()) == "".join((bullet + text).split())
            edge = max(
                width,
                cell_len(bullet) + LEAST_TEXT,
                cell_len(indent or "") + LEAST_TEXT,
            )
            assert all(cell_len(line) <= edge or "/" in line for line in lines)


@cache
def staged() -> Results:
    return analyzed("stages")


def shown_at(width: int) -> str:
    """All that the commands print that asks for the width of the terminal."""
    results = staged()
    table = stage_table(results, str)
    assert table is not None
    rows = [("20260101-120000", "a label", "VALID", *["1"] * (len(COLUMNS) - 3))]
    checks = check_lines(results.verdict.checks, width)
    return "\n".join([*checks, *text_lines(table, width), *run_lines(rows, width)])


def test_tables_and_checks_end_at_any_width() -> None:
    """Whatever is left out of a narrow table, each stage stays."""
    widest = shown_at(300)
    stages = {stage.name for stage in staged().stages}
    for width in SOME_WIDTHS[1:]:
        shown = shown_at(width)
        assert len(shown) < 4 * len(widest)
        assert stages <= set(shown.split())


def test_the_preflight_is_printed_at_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = load_run(PRINTED / "demo").manifest.preflight
    words = {word for row in rows for word in row.name.split()}
    for width in SOME_WIDTHS[1:]:
        monkeypatch.setenv("COLUMNS", str(width))
        out = io.StringIO()
        with contextlib.redirect_stderr(out):
            print_table(rows)
        assert words <= set(out.getvalue().split())


def test_the_progress_line_is_drawn_at_any_width() -> None:
    """And takes no more of the terminal than a screen."""
    for width in SOME_WIDTHS[1:]:
        assert len(drawn_bar(width)) < 20_000


def drawn_bar(width: int) -> str:
    """The bar of a run, drawn three times."""
    out = io.StringIO()
    bar = Bar(
        *bar_columns(),
        console=Console(file=out, width=width, height=24, force_terminal=True),
        auto_refresh=False,
    )
    counts = Counts("measuring", 3, 100, 4)
    with bar:
        task = bar.add_task("preparing", total=None, line="")
        for _ in range(3):
            bar.update(
                task,
                description=counts.phase,
                completed=3,
                total=100,
                line=counts.line(),
                refresh=True,
            )
    return out.getvalue()


# ---------------------------------------------------------------------- all that asks for the width
# of a terminal


class Terminal(io.StringIO):
    """What was printed to a terminal."""

    def isatty(self) -> bool:
        return True


def shown_results() -> None:
    results = staged()
    show(RunReports(results, block(results), {}, first_screen(results)), sys.stdout)


def shown_comparison() -> None:
    compare_command._show([("all", compare(three_sides()))], "text", None)


@cache
def searched() -> Answer:
    return Answer(
        SEARCHED,
        search_users(probe_of(lambda level: 1.0 if level <= 20 else 0.5), Goal()),
    )


def shown_search() -> None:
    answer = searched()
    notes = ["a note of some words that is wrapped"] * 3
    print(*terminal_lines(answer, notes), sep="\n")


def shown_preflight() -> None:
    print_table(load_run(PRINTED / "demo").manifest.preflight)


@cache
def swept() -> Sweep:
    plan, cells = plan_and_cells()
    return Sweep(plan, cells, open_folder(Path("sweep"), cells, b"plan", "1"))


def shown_sweep() -> None:
    sweep = swept()
    with Progress(sweep, sweep.cells) as progress:
        progress.began(sweep.cells[0], "measuring")


def test_a_search_fits_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was wrong with a probe is a note below the table."""
    monkeypatch.setenv("COLUMNS", "80")
    probe = probe_of(lambda level: 0.95, fault_from=8, fault="a long sentence " * 9)
    answer = Answer(SEARCHED, search_users(probe, Goal()))
    lines = terminal_lines(answer, [])
    assert max(map(len, lines)) <= 80
    assert len(lines) < 24
    text = " ".join(" ".join(lines).split())
    assert text.endswith(sentence(answer).strip())
    assert text.count("a long sentence") == 9


# By the function that asks for the width.
RENDERERS: dict[str, Callable[[], object]] = {
    "cli/main.py:_flags": lambda: main(["flags", "--all"]),
    "cli/main.py:_more": lambda: main(["more"]),
    "cli/main.py:_runs": lambda: main(["runs", str(PRINTED)]),
    "cli/compare_command.py:_show": shown_comparison,
    "cli/datasets_command.py:_datasets_list": lambda: main(["datasets", "list"]),
    "lab/search/report.py:terminal_lines": shown_search,
    "lab/sweep/sweep_progress.py:__enter__": shown_sweep,
    "loadgen/preflight/prepare.py:print_table": shown_preflight,
    "analysis/reports/show.py:_print_coloured": shown_results,
}
# The bar of a run has a test above; of an inspection one word turns.
DRAWN_ELSEWHERE = {
    "loadgen/run/progress.py:start",
    "cli/datasets_command.py:_datasets_inspect",
}


def at_width(
    draw: Callable[[], object], width: int, monkeypatch: pytest.MonkeyPatch
) -> str:
    """What it prints in a terminal of this width."""
    out = Terminal()
    monkeypatch.setenv("COLUMNS", str(width))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        draw()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())


@pytest.mark.parametrize(
    "widths", [SOME_WIDTHS, pytest.param(WIDTHS, marks=pytest.mark.heavy)], ids=len
)
@pytest.mark.parametrize("name", RENDERERS)
def test_every_output_ends_at_any_width(
    name: str, widths: Sequence[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`COLUMNS=0`, which is no width, printed empty lines in place of the flags; a narrow table
    lost its words."""
    monkeypatch.chdir(tmp_path)
    draw = RENDERERS[name]
    widest = at_width(draw, 300, monkeypatch)
    assert len(widest.split()) > 3
    for width in widths:
        shown = at_width(draw, width, monkeypatch)
        assert len(shown) < 4 * len(widest) + 2000
        assert len(shown.split()) > 3


ASKING = {"bounded_console", "Console", "get_terminal_size"}


def askers() -> Iterator[str]:
    """The functions of the package that ask for the width of a terminal."""
    for file in package_files():
        text = file.read_text(encoding="utf-8")
        if not any(name in text for name in ASKING):
            continue
        for function in nodes_of(file):
            if isinstance(function, ast.FunctionDef):
                calls = {
                    written(node.func)
                    for node in ast.walk(function)
                    if isinstance(node, ast.Call)
                }
                names = {call.rpartition(".")[2] for call in calls}
                if names & ASKING:
                    yield f"{name_in_package(file)}:{function.name}"


def test_no_output_is_left_out() -> None:
    assert set(askers()) - {"tables/bounded_console.py:bounded_console"} == {
        *RENDERERS,
        *DRAWN_ELSEWHERE,
    }


def test_the_chart_of_a_search_has_failed_probes_and_percent() -> None:
    probe = probe_of(lambda level: 0.95, fault_from=6, fault="others")
    chart, *_ = charts(Answer(SEARCHED, search_users(probe, Goal())))
    assert chart.figure.y_axis.properties["axis_label"].endswith("(%)")
    assert "probe that says nothing" in [key.text for key in chart.keys]
    document = json.dumps(ChartPage([chart]).json())
    # a marker that is named like a column would be taken from it
    assert "cross" in document
