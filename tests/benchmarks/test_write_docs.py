"""Tables that a benchmark writes into the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.write_docs import (
    BENCHMARKS,
    DISTRIBUTED,
    MEASUREMENTS,
    PAPER,
    WHY,
    paper_table,
    parts,
    replace_block,
    sentence,
    with_rows,
)

PRINTED = """2026-11-23, Linux, 2 cores

| streams x 50 tok/s | client | CPU us/token | TTFT error p50 / p99 (ms) | ITL error p50 / p99 (ms) |
|---:|---|---:|---:|---:|
| 64 | HttpUser | 70.5 | 13.39 / 38.65 | 0.07 / 1.68 |
| 400 | C floor | 9.3 |  |  |
| 400 | HttpUser | 34.3 | 129.92 / 168.47 | 0.08 / 27.99 |
| 400 | llama-load | 18.5 | 0.03 / 0.08 | 0.00 / 0.00 |

- met: a goal
"""
PAPER_TABLE = """| streams x 50 tok/s | client | TTFT error p50 / p99 (ms) | ITL error p50 / p99 (ms) |
| ---: | --- | ---: | ---: |
| 400 | HttpUser | 129.92 / 168.47 | 0.08 / 27.99 |
| 400 | llama-load | 0.03 / 0.08 | 0.00 / 0.00 |"""


def test_the_paper_and_the_readme_show_parts_of_the_same_table() -> None:
    machine, table = parts(PRINTED)
    assert machine == "2026-11-23, Linux, 2 cores"
    assert paper_table(table) == PAPER_TABLE
    assert sentence(table) == (
        "The error of the time to first token at 400 streams, p99: HttpUser 168.47 ms, "
        "llama-load 0.08 ms."
    )


def test_a_table_goes_between_its_marks_and_nowhere_else(tmp_path: Path) -> None:
    """A page without the marks is an error, and stays as it is."""
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- measured: x -->\nold\n<!-- end -->\nb\n")
    replace_block(page, "x", "| new \\1 |")
    assert page.read_text() == "a\n<!-- measured: x -->\n| new \\1 |\n<!-- end -->\nb\n"
    with pytest.raises(SystemExit, match="has 0 places"):
        replace_block(page, "y", "text")


def test_the_pages_have_the_marks() -> None:
    for name in MEASUREMENTS:
        assert BENCHMARKS.read_text().count(f"<!-- measured: {name} -->") == 1
    for page in (PAPER, WHY):
        assert page.read_text().count("<!-- measured: clients -->") == 1


def test_all_pages_have_the_figures_of_the_same_table() -> None:
    block = BENCHMARKS.read_text().partition("<!-- measured: clients -->\n")[2]
    _, table = parts(block.partition("<!-- end -->")[0])
    assert sentence(table) in WHY.read_text()
    assert paper_table(table) in PAPER.read_text()
    page = DISTRIBUTED.read_text()
    assert with_rows(page, table) == page
    other = table.replace(" 0.03 / ", " 0.03 / 9")
    assert with_rows(page, other).count("p99 TTFT error 90.") == 3
