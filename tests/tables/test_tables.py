"""A table in every format: aligned, the best marked, foreign text as text; narrow terminals;
numbers as people read them."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from llama_load.tables import (
    LEFT,
    Cell,
    Column,
    Table,
    columns,
    document_lines,
    figure,
    html_table,
    markdown_lines,
    table_json,
    text_lines,
    titled_lines,
)
from llama_load.tables.numbers import (
    change,
    duration,
    fixed,
    percent,
    percent_of,
    size,
    without_long_decimals,
)

EVIL = "a|b <img src=x> **c** \x1b[31m\u202e"
SPEEDS = Table(
    "Speeds",
    [
        Column("", LEFT),
        Column("Runs", LEFT, drop=1),
        Column("Output tok/s", lines=("Output", "tok/s")),
        Column("Req/s"),
    ],
    [
        [
            "a",
            "5 runs",
            Cell("1234567.89", 1234567.89, "2.10", is_best=True),
            figure(6.4),
        ],
        ["基准", "1 run", figure(20.0), figure(None)],
    ],
    ["a note"],
)


def test_a_terminal_shows_an_asterisk_behind_the_best_figure() -> None:
    """Chinese characters take two columns; a long figure loses its decimals; a heading may have two
    lines."""
    assert text_lines(SPEEDS) == [
        "      Runs            Output   Req/s",
        "                       tok/s",
        "a     5 runs  1234568 ± 2.10*   6.40",
        "基准  1 run            20.00     n/a",
    ]
    (line,) = text_lines(Table("", columns("", ""), [["one\ntwo", EVIL]]))
    assert (
        line.startswith("one; two  a|b <img")
        and "\x1b" not in line
        and "\u202e" not in line
    )
    assert (
        titled_lines(SPEEDS)[:2] == ["Speeds", ""]
        and titled_lines(SPEEDS)[-1] == "a note"
    )


def test_a_narrow_terminal_loses_columns_then_has_spreads_below() -> None:
    """What the left-out column says stands beside the spread, as far as it fits."""
    assert text_lines(SPEEDS, 30)[2] == "a     1234568 ± 2.10*   6.40"
    assert text_lines(SPEEDS, 24) == [
        "         Output  Req/s",
        "          tok/s",
        "a       1234568*  6.40",
        " 5 runs   ±2.10",
        "基准      20.00    n/a",
    ]
    assert text_lines(SPEEDS, 24, spread_below=False)[3] == "基准      20.00    n/a"


@given(
    st.lists(
        st.tuples(
            st.text("ab 基", min_size=1, max_size=60),
            st.floats(0, 9e6),
            st.floats(0, 9e3),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_no_line_is_wider_than_80_columns(rows: list[tuple[str, float, float]]) -> None:
    """Six figures with spreads, and labels of any length."""
    heads = [
        Column("", LEFT),
        Column("Runs", LEFT, drop=1),
        *(Column(f"Column {n}", lines=(f"C{n}", "(ms)"), width=9) for n in range(6)),
    ]
    cells = [
        [label, "5 runs", *([Cell(fixed(mean), mean, fixed(std), is_best=True)] * 6)]
        for label, mean, std in rows
    ]
    assert max(map(cell_len, text_lines(Table("", heads, cells), 80, gap=" "))) <= 80


def test_markdown_has_the_best_in_bold_and_lines_within_a_cell() -> None:
    table = Table(
        "T",
        columns("", "x"),
        [["one\ntwo", figure(1.0)], [EVIL, Cell("2.00", spread="0.10", is_best=True)]],
        ["n|ote"],
    )
    lines = markdown_lines(table)
    assert lines[:3] == ["|  | x |", "|---|---:|", "| one<br>two | 1.00 |"]
    assert (
        lines[3].endswith("| **2.00** ± 0.10 |")
        and "a\\|b &lt;img" in lines[3]
        and "\x1b" not in lines[3]
    )
    document = document_lines("Title", [table], [("Empty", []), ("Why", ["because"])])
    assert (
        document[:4] == ["# Title", "", "## T", ""]
        and "- n\\|ote" in document
        and "## Empty" not in document
    )
    assert document[-4:] == ["## Why", "", "- because", ""]


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs).get("class") or ""))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_shows_foreign_text_as_text_and_marks_the_best() -> None:
    """Also in headings and notes, and where `clean` puts something else in its place."""
    rows = [
        [EVIL, Cell("2.00", spread="0.10", is_best=True), Cell("worse", tone="worse")]
    ]
    table = Table(
        EVIL, [*columns(EVIL, "x"), Column("", LEFT, is_long=True)], rows, [EVIL]
    )
    page = _Tags(html_table(table))
    assert not {tag for tag, _ in page.tags} - {
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "p",
        "small",
    }
    assert (
        ("td", "n best") in page.tags
        and ("td", "long worse") in page.tags
        and page.text.count("<img src=x>") == 3
    )
    assert "\x1b" not in page.text and "\u202e" not in page.text
    assert "<b>" not in html_table(table, lambda _: "<b>")


def test_programs_get_texts_and_numbers() -> None:
    found = table_json(SPEEDS)
    assert found["columns"] == ["", "Runs", "Output tok/s", "Req/s"] and found[
        "notes"
    ] == ["a note"]
    assert found["rows"][0][2] == {
        "text": "1234567.89 ± 2.10",
        "best": True,
        "value": 1234567.89,
    }
    assert found["rows"][1][3] == {"text": "n/a", "best": False, "value": None}


def test_columns_are_left_out_by_their_place() -> None:
    """Also where two columns are equal."""
    table = Table("", columns("", "x", ""), [["a", "b", "c"]])
    assert text_lines(table.without(1)) == ["a  c"] and text_lines(table) == [
        "   x",
        "a  b  c",
    ]


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (change(1.078), "+7.8%"),
        (change(0.5, gap=" "), "-50.0 %"),
        (change(12.0), "x 12"),
        (change(None), "n/a"),
        (percent(0.055, gap=" "), "5.5 %"),
        (percent(0.012345, 2, sign="+"), "+1.23%"),
        (percent_of(9999, 10000), "99.99 %"),
        (percent_of(0, 10), "0 %"),
        (size(5 * 2**30), "5.00 GiB"),
        (size(2**20), "1.0 MiB"),
        (duration(89), "89 s"),
        (duration(5400), "1 h 30 min"),
        (without_long_decimals("-1234567.89"), "-1234568"),
        (without_long_decimals("1234567.89 ms"), "1234567.89 ms"),
        (without_long_decimals("²²²²²²²²²"), "²²²²²²²²²"),
    ],
)
def test_numbers_are_written_as_their_docstrings_say(shown: str, text: str) -> None:
    assert shown == text


def test_a_wide_table_can_be_scrolled_with_the_keyboard() -> None:
    """It can have the focus (axe-core: scrollable-region-focusable)."""
    table = Table("Runs", columns("setting", "tok/s"), [["a", "1"]])
    assert html_table(table).startswith('<div class="scroll card" tabindex="0">')
