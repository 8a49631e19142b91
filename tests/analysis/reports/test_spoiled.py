"""Figures that a check spoils are marked where they stand, and nothing that was not judged is
praised."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from llama_load.analysis.checks.statements import arranged
from llama_load.analysis.checks.verdict import Verdict
from llama_load.analysis.comparison.foreign_results import run_of as run_of_result
from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.level import levels_of
from llama_load.analysis.figures.spoiled import OF_MISSING_STAGES, are_whole
from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.check_lines import check_lines
from llama_load.analysis.reports.first_screen import first_screen
from llama_load.analysis.reports.html.charts_stages import stage_chart
from llama_load.analysis.reports.html.html_tables import cards
from llama_load.analysis.reports.html.page import html_page
from llama_load.analysis.reports.picture import as_svg
from llama_load.analysis.reports.result_json import result_json
from llama_load.analysis.reports.run_list import run_row
from llama_load.analysis.reports.shared_run import shared_markdown, shared_run
from llama_load.analysis.reports.write import markdown, write_reports
from llama_load.analysis.results.keys import spoiled, with_checks_of_run
from llama_load.analysis.results.results import Results, analyze
from llama_load.analysis.results.run_summary import read_summary, summary_of
from llama_load.page.run_files import RunFiles
from llama_load.page.run_view import GOOD, run_view
from llama_load.run_folder import Manifest, Run, StageRecord
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.vocabulary.definitions import LATENCIES
from llama_load.run_folder.vocabulary.verdict_words import BLURRED
from tests.analysis.figures.test_verdict import cancelled
from tests.analysis.reports.test_html import page_of
from tests.make_records import MS, manifest, record, table

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
    """Each figure that a row of the limits names is known to `analysis.figures.spoiled`."""
    known = {latency.key for latency in LATENCIES}
    for name in LIMITS:
        check: Check = limited(name, 1e9, "")
        assert check.spoils, name
        assert check.word
    assert information("retries", 1, "").spoils == ()
    assert {"ttft", "e2el", "scheduled_ttft", "scheduled_e2el", "answer_ttft"} <= known


PARTIAL = [name for name, row in LIMITS.items() if not are_whole(row.spoils)]


WHOLE = [
    name
    for name, row in LIMITS.items()
    if are_whole(row.spoils) and name != OF_MISSING_STAGES
]
SHOWN = ["ttft", "tpot", "itl", "e2el"]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Three answers, before any check fails."""
    about = manifest(num_prompts=3, percentile_metrics=SHOWN)
    rows = [record(i, start_ms=1000 * i) for i in range(3)]
    return run_of(*rows, path=tmp_path_factory.mktemp("clean"), about=about)


def with_failed(results: Results, name: str) -> Results:
    """These results where this check failed."""
    failed = limited(name, 1e9, "it failed")
    verdict = Verdict(failed.word, [failed], [failed.word], failed.word)
    return replace(results, verdict=verdict)


@pytest.mark.parametrize("name", PARTIAL)
def test_every_surface_marks_the_figures_that_the_first_screen_marks(
    name: str, clean: Results
) -> None:
    """Of a run in which this check failed: those that summary.json calls uncertain."""
    results = with_failed(clean, name)
    doubts = set(spoiled(results.run.manifest, results.verdict.checks, results.total))
    marked = {line for line in block(results).splitlines() if line.endswith(" !")}
    in_block = {line.partition(":")[0] for line in marked}
    screen = [line.text for line in first_screen(results)]
    tiles = {card.name for card in cards(results, str) if card.why}
    summary = summary_of(result_json(results))
    shared = shared_run(results)["llama_load"]["uncertain"]
    compared = run_of_result(result_json(results), name)

    def agree(key: str, *surfaces: bool) -> None:
        assert {*surfaces} == {key in doubts}, key
        # `runs`, the page's results and the pytest plugin leave it out, a sweep marks it.
        assert (key in summary.spoiled()) is (key in doubts)
        assert (key in summary.numbers(key)) is (key not in doubts)
        assert (key in shared) is (key in doubts)

    for key, latency in (("ttft", "TTFT"), ("itl", "ITL"), ("e2el", "E2EL")):
        marks = [
            f"Mean {latency} (ms)" in in_block,
            any(line.startswith(f"{latency} (ms) !") for line in screen),
        ]
        if key != "itl":
            marks.append(f"{latency} median" in tiles)
        agree(f"mean_{key}_ms", *marks)
        # A comparison marks the latency, or refuses the run by its word.
        is_refused = bool(set(compared.words) - {BLURRED})
        is_marked = key in compared.spoiled or is_refused
        assert is_marked >= (f"mean_{key}_ms" in doubts)

    for key, unit, words, tile in (
        ("output_throughput", "tok/s all", "Output token throughput (tok/s)", "Output"),
        ("request_throughput", "req/s", "Request throughput (req/s)", "Requests"),
    ):
        agree(
            key,
            words in in_block,
            any(f" {unit} !" in line for line in screen),
            tile in tiles,
        )


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Three stages with different rates, without a failed check."""
    stages = [
        StageRecord(
            str(n), n, begun_mono_ns=(n - 1) * 5000 * MS, ended_mono_ns=n * 5000 * MS
        )
        for n in (1, 2, 3)
    ]
    rows = [
        record(
            10 * n + i,
            start_ms=5000 * (n - 1) + 400 * i // n,
            stage=n - 1,
            gaps_ms=(280.0,),
        )
        for n in (1, 2, 3)
        for i in range(8)
    ]
    about = manifest(num_prompts=len(rows), stages=stages)
    return run_of(*rows, path=tmp_path_factory.mktemp("staged"), about=about)


@pytest.mark.parametrize("name", WHOLE)
def test_what_spoils_the_whole_run_spoils_its_stages_on_every_surface(
    name: str, staged: Results
) -> None:
    failed = limited(name, 1e9, "it failed")
    results = replace(
        with_failed(staged, name), stages=with_checks_of_run(staged.stages, [failed])
    )
    chart = stage_chart(results.stages, str)
    assert chart is not None
    assert [key.text for key in chart.keys] == ["not comparable"]
    lines = [line.text for line in first_screen(results)]
    assert sum("†" in line for line in lines) == 3 + 1
    assert "† 1, 2, 3: it failed" in lines
    assert all(card.why for card in cards(results, str))
    assert not any(level.is_rate_sure for level in levels_of(results.stages))


def test_a_run_is_analyzed_with_what_spoils_it_as_a_whole_in_its_stages(
    staged: Results,
) -> None:
    """A request of the plan has no record: no stage of such a run is ranked."""
    run = staged.run
    more = replace(run.manifest, num_prompts=len(run.records) + 1)
    found = analyze(replace(run, manifest=more))
    assert found.verdict.word == "INCOMPLETE"
    assert not any(stage.is_comparable for stage in found.stages)
