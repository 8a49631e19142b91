"""Terminals of any width: every output ends, keeps its words, and is not much longer than in a wide one."""

from __future__ import annotations

import contextlib
import io
from functools import cache

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress as Bar

from llama_load.analysis.results import Results, analyze
from llama_load.preflight.prepare import print_table
from llama_load.reports.check_lines import check_lines
from llama_load.reports.run_list import COLUMNS, run_lines
from llama_load.reports.stage_table import stage_table
from llama_load.run.progress import Counts, bar_columns
from llama_load.run_folder import load_run
from llama_load.tables import text_lines
from llama_load.tables.text_width import LEAST_TEXT, wrapped
from scripts.record_printed import PRINTED

WIDTHS = range(1, 301)
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
        for bullet, indent in (("", None), ("✓  a label as wide as a sentence  ", None), ("- ", " " * 40)):
            lines = list(wrapped(text, width, bullet, indent))
            assert "".join("".join(lines).split()) == "".join((bullet + text).split())
            edge = max(width, cell_len(bullet) + LEAST_TEXT, cell_len(indent or "") + LEAST_TEXT)
            assert all(cell_len(line) <= edge or "/" in line for line in lines)


@cache
def staged() -> Results:
    return analyze(load_run(PRINTED / "stages"))


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
    for width in WIDTHS:
        shown = shown_at(width)
        assert len(shown) < 4 * len(widest)
        assert stages <= set(shown.split())


def test_the_preflight_is_printed_at_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = load_run(PRINTED / "demo").manifest.preflight
    words = {word for row in rows for word in row.name.split()}
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        out = io.StringIO()
        with contextlib.redirect_stderr(out):
            print_table(rows)
        assert words <= set(out.getvalue().split())


@pytest.mark.parametrize("width", [1, 2, 3, 7, 10, 13, 20, 40, 80, 300])
def test_the_progress_line_is_drawn_at_any_width(width: int) -> None:
    """And takes no more of the terminal than a screen."""
    out = io.StringIO()
    bar = Bar(*bar_columns(), console=Console(file=out, width=width, height=24, force_terminal=True), auto_refresh=False)
    counts = Counts("measuring", 3, 100, 4)
    with bar:
        task = bar.add_task("preparing", total=None, line="")
        for _ in range(3):
            bar.update(task, description=counts.phase, completed=3, total=100, line=counts.line(), refresh=True)
    assert len(out.getvalue()) < 20_000
