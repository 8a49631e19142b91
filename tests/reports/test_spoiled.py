"""Figures that a check spoils are marked where they stand, and nothing that was not judged is
praised."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from llama_load.analysis.keys import spoiled
from llama_load.analysis.results import Results, analyze
from llama_load.analysis.run_summary import read_summary
from llama_load.metrics.check import Check, information, limited
from llama_load.metrics.check_limits import LIMITS
from llama_load.metrics.definitions import LATENCIES
from llama_load.metrics.spoiled import are_whole
from llama_load.metrics.statements import arranged
from llama_load.metrics.verdict import Verdict
from llama_load.observed.record import RequestRecord
from llama_load.reports.block import block
from llama_load.reports.check_lines import check_lines
from llama_load.reports.first_screen import first_screen
from llama_load.reports.html.page import html_page
from llama_load.reports.picture import as_svg
from llama_load.reports.run_list import run_row
from llama_load.reports.shared_run import shared_markdown, shared_run
from llama_load.reports.write import markdown, write_reports
from llama_load.run_folder import Manifest, Run, StageRecord
from llama_load.web.run_files import RunFiles
from llama_load.web.run_view import GOOD, run_view
from tests.make_records import MS, manifest, record, table
from tests.metrics.test_verdict import cancelled
from tests.reports.test_html import page_of

# What nobody may say of something that was not judged.
PRAISE = re.compile(
    r"the same all the time|\bpassed\b|[Nn]one of these|At none|All checks are within|[Nn]o change by|✓ Same|✓ Alone"
)
# A verdict that says more than was seen. In a glossary it stands beside its meaning.
BARE = re.compile(r"\bVALID\b(?! as far as seen|</dt>)")
# It may say that it is not known.
DOUBT = re.compile(r"not known|whether|too few")
NEAR = 60  # characters before it


def praise(text: str) -> list[str]:
    """The praise without a doubt in front of it, with its surroundings."""
    plain = " ".join(text.split())
    places = [
        (max(0, match.start() - NEAR), match.start(), match.end())
        for match in PRAISE.finditer(plain)
    ]
    return [
        plain[since:until]
        for since, at, until in places
        if DOUBT.search(plain[since:at]) is None
    ]


def run_of(
    *records: RequestRecord, path: Path, about: Manifest | None = None
) -> Results:
    return analyze(
        Run(
            path,
            about or manifest(num_prompts=len(records)),
            table(*records),
            recovered=False,
        )
    )


@pytest.fixture
def cut_run(tmp_path: Path) -> Results:
    """Fifty answers of 1 s, and two that were still under way after 60 s: E2EL shows the short ones
    alone, TTFT is right."""
    answered = [
        record(i, start_ms=1100 * i, first_ms=100, gaps_ms=(900,)) for i in range(50)
    ]
    cut = [cancelled(50 + i, start_ms=0, end_ms=60_000, first_ms=100) for i in range(2)]
    about = manifest(
        end="time",
        run_time_s=60.0,
        cut_mono_ns=60_000 * MS,
        percentile_metrics=["ttft", "e2el"],
    )
    about.fail_if = ["mean_e2el_ms>5000", "mean_ttft_ms>5000"]
    return run_of(*answered, *cut, path=tmp_path, about=about)


def test_a_spoiled_figure_is_marked_in_every_output_and_the_others_are_not(
    cut_run: Results,
) -> None:
    assert (cut_run.verdict.word, cut_run.verdict.checks[0].spoils) == (
        "BLURRED",
        ("E2EL",),
    )
    reports = write_reports(cut_run)
    block = reports.text.splitlines()
    marked = {line.partition(":")[0] for line in block if line.endswith(" !")}
    assert marked == {
        "Mean E2EL (ms)",
        "Median E2EL (ms)",
    }  # p99 has another mark: too few values
    assert "! E2EL spoiled: 2 of 52 requests were cut" in reports.text
    assert any(line.text.startswith("E2EL (ms) !") for line in reports.screen)
    assert any(line.text.startswith("TTFT (ms)  ") for line in reports.screen)
    assert "E2EL (ms) !" in html_page(cut_run, reports.text, "en", "")
    assert "Mean E2EL (ms):                          1000.00    !" in markdown(
        cut_run, reports.text
    )
    doubts = read_summary(cut_run.run.path).doubts()
    assert "2 of 52 requests were cut" in doubts["mean_e2el_ms"]
    assert "mean_ttft_ms" not in doubts


def test_a_gate_on_a_spoiled_figure_is_not_judged_and_does_not_pass(
    cut_run: Results,
) -> None:
    spoiled, good = cut_run.thresholds
    assert (spoiled.failed, spoiled.value) == (True, None)
    assert spoiled.line.startswith(
        "mean_e2el_ms <= 5000: not judged (2 of 52 requests were cut"
    )
    assert (good.failed, good.value) == (False, 100.0)


def test_what_was_not_judged_is_praised_in_no_output(tmp_path: Path) -> None:
    """One request in each of two stages: too few for any statistics; no counters, no health, no
    tokenizer."""
    stages = [
        StageRecord(
            str(n), n, begun_mono_ns=(n - 1) * 500 * MS, ended_mono_ns=n * 500 * MS
        )
        for n in (1, 2)
    ]
    about = manifest(num_prompts=2, stages=stages, goodput=["ttft:500"])
    staged = run_of(
        record(0),
        record(1, start_ms=500, stage=1),
        path=tmp_path / "staged",
        about=about,
    )
    single = run_of(record(0), path=tmp_path / "single")
    for found in (staged, single):
        found.run.path.mkdir()
        (found.run.path / "run.json").write_text("{}", encoding="utf-8")
        reports = write_reports(found)
        outputs = {
            "block": reports.text,
            "screen": "\n".join(line.text for line in reports.screen),
            "markdown": markdown(found, reports.text),
            "page": page_of(found).text,
        }
        page = run_view(
            RunFiles(tmp_path, {found.run.path.name: found.run.path}),
            found.run.path.name,
        )
        outputs |= {
            "picture": as_svg(found),
            "shared": shared_markdown(shared_run(found)),
            "list of runs": " ".join(run_row(found.run.path)),
            "page's list": page.words[0],
        }
        for name, text in outputs.items():
            assert praise(text) == [], name
            assert BARE.search(text) is None, name
            assert "VALID as far as seen" in text, name
        assert page.style != GOOD
        assert found.verdict.headline.startswith("VALID as far as seen: ")
        assert {s.name: s.mark for s in arranged(found.verdict.checks)}["Same"] == "?"
        verdict = msgspec.json.decode((found.run.path / "summary.json").read_bytes())[
            "llama_load"
        ]["verdict"]
        same = next(
            statement
            for statement in verdict["statements"]
            if statement["name"] == "Same"
        )
        assert same["ok"] is None and same["missing"]


def test_each_check_without_a_value_is_marked_unknown() -> None:
    checks = [limited(name, None, "what is not known") for name in LIMITS]
    assert (
        {check.mark for check in checks}
        == {statement.mark for statement in arranged(checks)}
        == {"?"}
    )
    assert not any(line.lstrip().startswith("✓") for line in check_lines(checks, 80))


def test_figures_have_keys_that_exist() -> None:
    """Each figure that a row of the limits names is known to `metrics.spoiled`."""
    known = {latency.key for latency in LATENCIES}
    for name in LIMITS:
        check: Check = limited(name, 1e9, "")
        assert check.spoils, name
        assert check.word
    assert information("retries", 1, "").spoils == ()
    assert {"ttft", "e2el", "scheduled_ttft", "scheduled_e2el", "answer_ttft"} <= known


PARTIAL = [name for name, row in LIMITS.items() if not are_whole(row.spoils)]


@pytest.mark.parametrize("name", PARTIAL)
def test_the_first_screen_and_the_block_mark_the_same_figures(
    name: str, tmp_path: Path
) -> None:
    """Of a run in which this check failed: those that summary.json calls uncertain."""
    about = manifest(num_prompts=3, percentile_metrics=["ttft", "tpot", "itl", "e2el"])
    rows = [record(i, start_ms=1000 * i) for i in range(3)]
    judged = run_of(*rows, path=tmp_path, about=about)
    failed = limited(name, 1e9, "it failed")
    verdict = Verdict(failed.word, [failed], [failed.word], failed.word)
    results = replace(judged, verdict=verdict)
    doubts = set(spoiled(about, [failed]))
    marked = {line for line in block(results).splitlines() if line.endswith(" !")}
    in_block = {line.partition(":")[0] for line in marked}
    screen = [line.text for line in first_screen(results)]

    for key, label, words in (
        ("mean_ttft_ms", "TTFT (ms)", "Mean TTFT (ms)"),
        ("mean_itl_ms", "ITL (ms)", "Mean ITL (ms)"),
        ("mean_e2el_ms", "E2EL (ms)", "Mean E2EL (ms)"),
    ):
        assert (words in in_block) is (key in doubts)
        is_marked = any(line.startswith(f"{label} !") for line in screen)
        assert is_marked is (key in doubts)

    for key, unit, words in (
        ("output_throughput", "tok/s all", "Output token throughput (tok/s)"),
        ("request_throughput", "req/s", "Request throughput (req/s)"),
    ):
        assert (words in in_block) is (key in doubts)
        assert any(f" {unit} !" in line for line in screen) is (key in doubts)
