"""A comparison as people read it: terminal of 80 and of 120 columns, Markdown, HTML; as programs
do; and the command."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.cells import cell_len

from llama_load.analysis.comparison.compare import compare
from llama_load.analysis.comparison.gates import parse_gate
from llama_load.analysis.comparison.side import Side
from llama_load.analysis.reports.comparison.comparison_page import comparison_page
from llama_load.analysis.reports.comparison.comparison_tables import COMMANDS_TITLE
from llama_load.analysis.reports.comparison.comparison_text import (
    comparison_lines,
    comparison_markdown,
)
from llama_load.analysis.reports.comparison.result import comparisons_json
from llama_load.cli.main import command_parser
from llama_load.ground.errors import UsageError
from llama_load.tables.text_width import cut_to_width
from tests.analysis.comparison.sides import run, scattered, side

HOSTILE = "evil | `x` <b>**\x1b[31m\u202e"

GOLDEN = """\
          Duration     Req/s    Output     Total  Mean TTFT  Mean TPOT
               (s)               tok/s     tok/s       (ms)       (ms)
a            10.00*     6.40*  1280.00*  1920.00*    100.00      20.00*
b            11.00      6.40*  1200.00   1800.00      90.00*     21.00
partial †    10.00      6.40   1280.00   1920.00         NA       1.00"""


def three_sides() -> list[Side]:
    slower = {
        "duration": 11.0,
        "output_throughput": 1200.0,
        "total_token_throughput": 1800.0,
        "mean_ttft_ms": 90.0,
        "mean_tpot_ms": 21.0,
    }
    partial = run(
        planned=64, values={"completed": 36, "mean_ttft_ms": None, "mean_tpot_ms": 1.0}
    )
    return [side("a"), side("b", run(values=slower)), side("partial", partial)]


def test_a_row_per_side_with_the_best_marked_and_missing_ones_as_na() -> None:
    """Equal request rates are both best, and marked."""
    lines = list(comparison_lines(compare(three_sides())))
    assert "\n".join(lines[:5]) == GOLDEN
    assert "† is shown, but not ranked" in lines


@pytest.mark.parametrize("width", [80, 120])
def test_lines_fit_the_terminal(width: int) -> None:
    """With long labels, labels in Chinese, large figures and repeats."""
    rng = random.Random(1)
    labels = (
        "一个很长很长很长很长很长很长的标签",
        "a label of so many words that it needs a line of its own in any table 🦙",
    )
    large = run(
        values={
            "duration": 123456.78,
            "output_throughput": 1234567.89,
            "total_token_throughput": 2234567.89,
        }
    )
    sides = [
        *(scattered(label, 5, rng, 0.2) for label in labels),
        side("large", large, large),
    ]
    gates = [parse_gate("mean_ttft_ms:+5%")]
    for comparison in (
        compare(sides, gates),
        compare(sides[:2], gates),
        compare(three_sides()),
    ):
        lines = list(comparison_lines(comparison, width))
        commands = (
            lines.index(f"{COMMANDS_TITLE}:") if f"{COMMANDS_TITLE}:" in lines else None
        )
        assert max(map(cell_len, lines[:commands])) <= width


def test_the_spread_between_repeats_is_shown() -> None:
    twice = [run(values={"mean_tpot_ms": value}) for value in (20.0, 22.0)]
    both = compare([side("a", *twice), side("b", *twice)])
    assert any("±1.41" in line for line in comparison_lines(both, 80))
    assert any("21.00 ± 1.41*" in line for line in comparison_lines(both, 120))
    assert "**21.00** ± 1.41" in comparison_markdown(both)


def test_markdown_marks_the_best_in_bold() -> None:
    text = comparison_markdown(compare(three_sides()))
    assert (
        "| b | 64 requests | 11.00 | **6.40** | 1200.00 | 1800.00 | **90.00** | 21.00 |"
        in text
    )
    assert (
        "| partial † | 36 of 64 requests | 10.00 | 6.40 | 1280.00 | 1920.00 | NA | 1.00 |"
        in text
    )


def test_foreign_text_is_escaped() -> None:
    sides = [
        side("a", run(setup={"model": "x"})),
        side(HOSTILE, run(HOSTILE, words=(HOSTILE,), setup={"model": HOSTILE})),
    ]
    comparison = compare(sides)
    text = comparison_markdown(comparison)
    assert "\x1b" not in text and "\u202e" not in text
    tables = text.partition("```")[0]  # in a block of code nothing is markup
    assert "<b>" not in tables and "evil |" not in tables
    shown = "\n".join(comparison_lines(comparison))
    assert "\x1b" not in shown and "\u202e" not in shown


def test_wide_characters_take_two_columns() -> None:
    assert cut_to_width("基准基准", 5) == "基准…" and cut_to_width("基准", 4) == "基准"


def test_the_page_runs_only_its_own_scripts_and_shows_foreign_text_as_text() -> None:
    """Hostile labels and set-ups; distributions of both sides, and the intervals of the changes."""
    rng = random.Random(1)
    samples = {
        key: np.random.default_rng(1).gamma(4, 25, 300) for key in ("ttft", "itl")
    }
    sides = [
        scattered(label, 3, rng)
        for label in (
            "plain",
            '</script><script>alert(1)</script>"><img src=x onerror=alert(2)>\u202e',
        )
    ]
    sides = [
        Side(
            each.label,
            [
                replace(run, samples=samples, setup={"model": each.label})
                for run in each.runs
            ],
        )
        for each in sides
    ]
    page = comparison_page(
        [("stage 8", compare(sides, [parse_gate("mean_ttft_ms:+5%")]))]
    )
    assert page.count("<script") == 3 and "<img" not in page and "\u202e" not in page
    policies = re.findall(r'Content-Security-Policy" content="([^"]*)', page)
    assert (
        len(policies) == 1
        and policies[0].startswith("default-src &#39;none&#39;")
        and "http" not in policies[0]
    )
    assert (
        "Changes with 95 % intervals" in page
        and "Time to First Token (TTFT)" in page
        and "Stage 8" in page
    )
    assert "mean_ttft_ms:+5% passed for" in page


def test_a_page_without_values_has_tables_and_no_scripts() -> None:
    page = comparison_page([("", compare(three_sides()))])
    assert (
        "<script" not in page
        and "script-src &#39;none&#39;" in page
        and "partial †" in page
    )


def test_the_values_for_programs_are_json() -> None:
    rng = random.Random(2)
    sides = [scattered("a", 3, rng), scattered(HOSTILE, 3, rng, slower=1.5)]
    text = msgspec.json.encode(
        comparisons_json([("", compare(sides, [parse_gate("mean_tpot_ms:+5%")]))])
    ).decode()
    found = msgspec.json.decode(text)
    (comparison,) = found["comparisons"]
    (tpot,) = [
        metric for metric in comparison["metrics"] if metric["key"] == "mean_tpot_ms"
    ]
    (change,) = tpot["changes"]
    assert (
        change["outcome"] == "worse"
        and change["low"] < 1.5 < change["high"]
        and change["p_adjusted"] < 0.05
    )
    assert (
        tpot["best"] == [0]
        and len(tpot["values"][1]) == 3
        and comparison["gates"][0]["outcome"] == "failed"
    )
    assert "\\u001b" not in text and "\u202e" not in text


# ---------------------------------------------------------------------- the command


def command(*words: str) -> int:
    arguments = command_parser().parse_args(["compare", *words])
    return int(arguments.run(arguments))


def test_repeats_without_dates_prove_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether they took turns is not known."""
    for name, tpot_ms in (("base", 20), ("slow", 30)):
        for number in range(5):
            result = RESULT | {
                "mean_tpot_ms": tpot_ms + number / 10,
                "mean_ttft_ms": 30 + number,
            }
            (tmp_path / f"{name}-{number}.json").write_bytes(
                msgspec.json.encode(result)
            )
    assert (
        command(
            f"base={tmp_path}/base-*",
            f"slow={tmp_path}/slow-*",
            "--gate",
            "mean_tpot_ms:+5%",
        )
        == 3
    )
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "when the runs of base and slow were taken is not known" in shown
        and "worse" not in shown
    )


def test_the_command_and_its_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results of vllm bench serve: five a side in the order A B B A, the second with a TPOT of half
    as much again."""
    for number in range(5):
        for place, (name, tpot_ms) in enumerate((("base", 20), ("slow", 30))):
            minute = 2 * number + (place + number) % 2
            result = RESULT | {
                "date": f"20261121-10{minute:02}00",
                "mean_ttft_ms": 30 + number + place / 4,
            }
            file = tmp_path / f"{name}-{number}.json"
            file.write_bytes(
                msgspec.json.encode(result | {"mean_tpot_ms": tpot_ms + number / 10})
            )
    base, slow = tmp_path / "base-0.json", tmp_path / "slow-0.json"
    sides = (f"base={tmp_path}/base-*.json", f"slow={tmp_path}/slow-*.json")
    assert command(*sides, "--gate", "mean_tpot_ms:+5%") == 1
    assert (
        "mean_tpot_ms:+5% failed for slow: worse with confidence"
        in capsys.readouterr().out
    )
    assert command(*sides, "--gate", "mean_tpot_ms:+90%") == 0
    assert command(str(base), str(slow), "--gate", "mean_tpot_ms:+5%") == 3
    assert (
        command(*sides, "--gate", "mean_tpot_ms:+5%", "--gate", "p99_ttft_ms:+5%") == 1
    )
    with pytest.raises(UsageError, match="there is no metric 'speed'"):
        command(*sides, "--gate", "speed:+5%")
    assert (
        command(*sides, "--format", "html", "--output", str(tmp_path / "page.html"))
        == 0
    )
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(UsageError, match="--gate needs two sides"):
        command(sides[0], "--gate", "mean_tpot_ms:+5%")
    with pytest.raises(UsageError, match=r"add --output"):
        command(*sides, "--format", "html")


RESULT = {
    "completed": 64,
    "duration": 10.0,
    "total_input_tokens": 6400,
    "total_output_tokens": 12800,
    "request_throughput": 6.4,
}
