"""The figures of stages, the table that compares them, and thresholds on one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_load.analysis.figures.stage_figures import (
    StageFigures,
    completed_within,
    repeated_prompts,
    with_window_rates,
)
from llama_load.analysis.figures.summary import Summary, summarize
from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.stage_table import (
    notes,
    speed_lines,
    stage_lines,
    stage_name,
    stage_table,
)
from llama_load.analysis.reports.write import write_junit, write_reports
from llama_load.analysis.results.results import Results, analyze
from llama_load.analysis.statistics.statistics import Distribution
from llama_load.run_folder import Run, RunWriter, StageRecord, load_run
from llama_load.run_folder.observed.window import Window
from llama_load.tables import Cell, Table, markdown_lines
from tests.make_records import MS, failed, manifest, record, table

# Three stages of two requests, 3 tokens out and 10 in each; they end 1 ms after their last token.
#   1  one after the other: 99 + 50 + 50 + 1 = 200 ms each, 0.4 s;
#      2/0.4 = 5 req/s, 6/0.4 = 15 tok/s, 26/0.4 = 65 in all
#   2  at a time: 149 + 75 + 75 + 1 = 300 ms;
#      2/0.3 = 6.67 req/s, 6/0.3 = 20 tok/s, 26/0.3 = 86.67 in all
#   4  one of them fails: 49 + 25 + 25 + 1 = 100 ms;
#      1/0.1 = 10 req/s, 3/0.1 = 30 tok/s, 13/0.1 = 130 in all
RECORDS = [
    record(0, stage=0, start_ms=0, first_ms=99, gaps_ms=(50, 50)),
    record(1, stage=0, start_ms=200, first_ms=99, gaps_ms=(50, 50)),
    record(2, stage=1, start_ms=1000, first_ms=149, gaps_ms=(75, 75)),
    record(3, stage=1, start_ms=1000, first_ms=149, gaps_ms=(75, 75)),
    record(4, stage=2, start_ms=2000, first_ms=49, gaps_ms=(25, 25)),
    replace(failed(5, start_ms=2000, end_ms=2050), stage=2),
]
STAGES = [
    StageRecord("1", users=1, begun_mono_ns=0, ended_mono_ns=400 * MS),
    StageRecord("2", users=2, begun_mono_ns=1000 * MS, ended_mono_ns=1300 * MS),
    StageRecord("4", users=4, begun_mono_ns=2000 * MS, ended_mono_ns=2100 * MS),
]
# The third would be the best in every column.
GOLDEN = """\
Concurrency Duration  Req/s  Output   Total  Mean TTFT  Mean TPOT
                 (s)          tok/s   tok/s       (ms)       (ms)
c=1             0.40   5.00   15.00   65.00      99.00*     50.00*
c=2             0.30*  6.67*  20.00*  86.67*    149.00      75.00
c=4 †           0.10  10.00   30.00  130.00      49.00      25.00"""
MARKDOWN = """\
| Model | Concurrency | Duration (s) | Req/s | Output Tok/s | Total Tok/s | Mean TTFT (ms) | Mean TPOT (ms) |
|---|---|---:|---:|---:|---:|---:|---:|
| tiny | c=1 | 0.40 | 5.00 | 15.00 | 65.00 | **99.00** | **50.00** |
| tiny | c=2 | **0.30** | **6.67** | **20.00** | **86.67** | 149.00 | 75.00 |
| tiny | c=4 † | 0.10 | 10.00 | 30.00 | 130.00 | 49.00 | 25.00 |
"""
# 30 blocks are 30 tok/s, and 1000/25 = 40 tok/s for one user (1000/50 = 20, 1000/75 = 13.33).
SPEEDS = f"""\
c=1   all users      15.00 {15 * "█"}
      one user       20.00 {15 * "█"}
c=2   all users      20.00 {20 * "█"}
      one user       13.33 {10 * "█"}
c=4 † all users      30.00 {30 * "█"}
      one user       40.00 {30 * "█"}"""


def run(folder: Path, **about: object) -> Results:
    """Written to disk and read back, as `llama-load report` does."""
    writer = RunWriter(
        folder / "run",
        manifest(**{"stages": STAGES, "num_prompts": len(RECORDS)} | about),
    )
    writer.append(RECORDS)
    writer.finish()
    return analyze(load_run(folder / "run"))


# Figures of a stage


def test_a_request_that_ends_after_its_stage_is_in_no_figure() -> None:
    """At the very end it is inside; other stages' requests do not count, whenever they ended."""
    first, second, *others = RECORDS
    late = replace(second, ended_mono_ns=400 * MS + 1)
    early = replace(others[0], ended_mono_ns=10)
    ended, crossing = completed_within(table(first, second, early), 0, 400 * MS)
    assert (len(ended), crossing) == (2, 0)
    ended, crossing = completed_within(table(first, late, early), 0, 400 * MS)
    assert (ended.strings("request_id"), crossing) == (["r0"], 1)
    ended, crossing = completed_within(table(first, late, early), 0, None)
    assert (len(ended), crossing) == (2, 0)
    ended, crossing = completed_within(table(first), 7, 400 * MS)
    assert (len(ended), crossing) == (0, 0)


def test_a_failure_is_its_stages_however_late_it_comes() -> None:
    """A request that hangs in a stage times out after it."""
    first, second, *_ = RECORDS
    hung = replace(second, status="token_timeout", ended_mono_ns=10_000 * MS)
    cut = replace(
        second, request_id="r9", status="cancelled", ended_mono_ns=10_000 * MS
    )
    ended, crossing = completed_within(table(first, hung, cut), 0, 400 * MS)
    assert (ended.strings("request_id"), crossing) == (
        [first.request_id, hung.request_id],
        1,
    )


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1000)), max_size=20),
    st.integers(0, 1000),
)
def test_every_request_of_a_stage_is_inside_or_crosses(
    ends: list[tuple[int, int]], end: int
) -> None:
    """By whether it ended later."""
    records = table(
        *(
            record(number, stage=stage, ended_mono_ns=at)
            for number, (stage, at) in enumerate(ends)
        )
    )
    own = [at for stage, at in ends if stage == 1]
    found, crossing = completed_within(records, 1, end)
    assert len(found) == sum(at <= end for at in own)
    assert len(found) + crossing == len(own)


def test_the_figures_of_a_stage_cover_only_its_requests(tmp_path: Path) -> None:
    """One of the first stage's is made to end after it: 1 of 2 crossed, and the throughput is that
    of the other, 3 tokens in 0.2 s."""
    stages = [replace(STAGES[0], ended_mono_ns=399 * MS), *STAGES[1:]]
    first, second, third = run(tmp_path, stages=stages).stages
    assert (first.crossing, first.crossing_ratio, first.figures.completed) == (
        1,
        0.5,
        1,
    )
    assert first.figures.output_throughput == pytest.approx(15.0)
    assert (second.crossing, second.crossing_ratio) == (0, 0.0)
    assert (third.figures.completed, third.figures.failed, third.is_comparable) == (
        1,
        1,
        False,
    )
    assert (
        list(notes([first]))[-1]
        == "1: 1 request that ended after the stage is left out of its latencies"
    )


def test_throughput_of_a_stage_with_a_time_is_that_of_its_time() -> None:
    """From 100 to 1100 ms: of a request that began before it, the end and the last three tokens
    count; of one inside it all; of one that ended after it, the prompt and the first three tokens.
    So 2 requests, 3 + 4 + 3 tokens and 2 prompts of 10 tokens in 1 s."""
    sent = dict.fromkeys(("prompt_tokens",), 10) | {"connection_reused": False}
    # start, first token, gap, tokens, end
    tokens = [
        (0, 50, 50.0, 4, 200),
        (300, 350, 100.0, 4, 700),
        (900, 950, 50.0, 5, 1300),
    ]
    records = table(
        *(
            record(
                number,
                started_mono_ns=start * MS,
                first_token_mono_ns=first * MS,
                ended_mono_ns=end * MS,
                itl_ms=[gap] * (count - 1),
                output_tokens=count,
                **sent,
            )
            for number, (start, first, gap, count, end) in enumerate(tokens)
        )
    )
    found = with_window_rates(
        summarize(records), records, Window(100 * MS, 1100 * MS, is_cut=True), ()
    )
    assert found.duration_s == 1
    assert found.request_throughput == 2
    # 100, 150, 200; all four; 950, 1000, 1050
    assert found.output_throughput == pytest.approx(3 + 4 + 3)
    assert found.total_token_throughput == pytest.approx(10 + 20)
    assert found.completed == 3  # the rest is as it was


def test_a_prompt_that_comes_again_in_a_later_stage_is_counted() -> None:
    sent = [
        (0, "a"),
        (0, "a"),
        (0, "b"),
        (1, "c"),
        (1, "b"),
        (2, "c"),
        (2, "a"),
        (2, "d"),
    ]
    records = table(
        *(
            record(number, stage=stage, prompt_sha256=digest)
            for number, (stage, digest) in enumerate(sent)
        )
    )
    assert repeated_prompts(records, 3) == 3


def test_a_level_that_was_never_reached_is_marked(tmp_path: Path) -> None:
    """Twice as many requests as users, and never that many in flight; few requests say nothing."""
    figures = run(tmp_path).stages[1].figures
    assert not StageFigures(
        "8", 8, None, replace(figures, completed=16), peak=7
    ).is_reached
    assert StageFigures("8", 8, None, replace(figures, completed=16), peak=8).is_reached
    assert StageFigures("8", 8, None, replace(figures, completed=15), peak=7).is_reached
    assert "† 8: at most 7 requests were in flight" in notes(
        [StageFigures("8", 8, None, replace(figures, completed=16), peak=7)]
    )


def test_a_stage_that_never_ended_is_not_whole(tmp_path: Path) -> None:
    """The run was broken off in it; those before it are whole, one after it was never begun."""
    found = run(
        tmp_path,
        end="interrupted",
        stages=[
            STAGES[0],
            replace(STAGES[1], ended_mono_ns=None),
            StageRecord("8", users=8),
        ],
    )
    assert [stage.is_whole for stage in found.stages] == [True, False, False]
    assert [stage.figures.completed for stage in found.stages] == [2, 2, 1]
    assert list(notes(found.stages)) == ["† 2, 8: the stage did not run to its end"]
    assert found.exit_code == 3


BASE = summarize(table(RECORDS[0]))


def figures(
    ttft_ms: float | None = 99.0, tpot_ms: float | None = 50.0, **changed: object
) -> Summary:
    latencies = {"ttft": ttft_ms, "tpot": tpot_ms, "e2el": 1000.0}
    std = changed.pop("std", 0.0)
    expected = {
        key: Distribution(17 if mean else 0, mean, mean, std)
        for key, mean in latencies.items()
    }
    return replace(BASE, distributions=BASE.distributions | expected, **changed)


def stage(
    name: str = "8",
    users: int | None = 8,
    rate_rps: float | None = None,
    **changed: object,
) -> StageFigures:
    mine = {
        key: changed.pop(key)
        for key in ("crossing", "dropped", "is_whole", "lost")
        if key in changed
    }
    return StageFigures(name, users, rate_rps, figures(**changed), **mine)


@pytest.mark.parametrize(
    ("changed", "comparable"),
    [
        ({}, True),
        ({"crossing": 5}, True),
        ({"failed": 1}, False),
        ({"dropped": 1}, False),
        ({"completed": 0}, False),
        ({"is_whole": False}, False),
        ({"lost": 1}, False),
    ],
)
def test_a_stage_is_ranked_if_all_was_answered(changed: dict, comparable: bool) -> None:
    """And its name says if not."""
    found = stage(**changed)
    assert found.is_comparable is comparable
    assert stage_name(found) == ("c=8" if comparable else "c=8 †")


def test_a_stage_goes_by_its_concurrency_or_as_it_was_written() -> None:
    assert stage_name(stage("16", 16)) == "c=16"
    assert stage_name(stage("1-16", 16)) == "1-16"
    assert stage_name(stage("8 3/6", 8)) == "8 3/6"
    assert stage_name(stage("2/s", None, 2.0)) == "2/s"


@pytest.mark.parametrize(
    ("tpot_ms", "speed"), [(20.0, 50.0), (None, None), (0.0, None)]
)
def test_the_speed_of_one_user_is_a_second_over_tpot(
    tpot_ms: float | None, speed: float | None
) -> None:
    """20 ms a token: 50 tokens/s; not known of answers of one token, nor where all tokens came at
    once."""
    assert stage(tpot_ms=tpot_ms).figures.tok_per_s_per_user == speed


# The table


def test_the_table_of_a_terminal_is_laid_out_by_hand(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert "\n".join(stage_lines(rows_of(found.stages, "tiny"))) == GOLDEN
    assert GOLDEN in block(found)
    assert "\n".join(speed_lines(found.stages)) == SPEEDS
    assert list(notes(found.stages)) == ["† 4: 1 of 2 requests failed"]


def test_report_md_has_the_table_with_the_best_in_bold(tmp_path: Path) -> None:
    """And what all users get against what one of them sees; summary.json has both, too."""
    write_reports(run(tmp_path))
    text = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert MARKDOWN in text
    assert (
        "| c=1 | 15.00 | 20.00 |\n| c=2 | 20.00 | 13.33 |\n| c=4 † | 30.00 | 40.00 |\n"
        in text
    )
    assert "† 4: 1 of 2 requests failed\n" in text
    by_stage = msgspec.json.decode((tmp_path / "run" / "summary.json").read_bytes())[
        "llama_load"
    ]["by_stage"]
    assert [
        (name, part["users"], part["completed"], part["failed"])
        for name, part in by_stage.items()
    ] == [("1", 1, 2, 0), ("2", 2, 2, 0), ("4", 4, 1, 1)]
    assert [part["tok_per_s_per_user"] for part in by_stage.values()] == pytest.approx(
        [20.0, 1000 / 75, 40.0]
    )


def rows_of(stages: Sequence[StageFigures], model: str | None) -> Table:
    empty = analyze(
        Run(Path("run"), manifest(model=model), table(*RECORDS), recovered=False)
    )
    found = stage_table(replace(empty, stages=stages), str)
    assert found is not None
    return found


def cells_of(found: Table) -> list[list[Cell]]:
    return [
        [Cell(cell) if isinstance(cell, str) else cell for cell in row]
        for row in found.rows
    ]


def best(stages: list[StageFigures]) -> list[str]:
    """A row a stage, x where a figure is marked: duration, req/s, output, total, TTFT, TPOT."""
    return (
        [
            "".join("x" if cell.is_best else "." for cell in row[2:])
            for row in cells_of(rows_of(stages, "tiny"))
        ]
        if stages
        else []
    )


def test_only_stages_without_failures_are_ranked() -> None:
    """However good the others are."""
    good, better = (
        stage(duration_s=4.0, output_throughput=10.0),
        stage(duration_s=2.0, output_throughput=20.0, ttft_ms=200.0),
    )
    fast = {"duration_s": 1.0, "output_throughput": 99.0, "ttft_ms": 1.0}
    spoilt = [
        stage(failed=1, **fast),
        stage(dropped=1, **fast),
        stage(is_whole=False, **fast),
        stage(completed=0, **fast),
    ]
    # Requests, total tokens and TPOT are the same in both, so both are the best.
    assert best([good, better, *spoilt]) == [".x.xxx", "xxxx.x", *["......"] * 4]


def test_a_single_row_is_not_the_best_of_anything() -> None:
    assert best([stage()]) == ["......"]
    assert best([stage(), stage(failed=1)]) == ["......"] * 2
    assert best([]) == []


def test_durations_are_ranked_only_where_all_sent_the_same_number() -> None:
    """A stage of half the requests is no faster for being over sooner; a stage with failures does
    not count."""
    one, two, more = (
        stage(duration_s=4.0),
        stage(duration_s=2.0),
        stage(duration_s=1.0, completed=2),
    )
    assert [row[0] for row in best([one, two])] == [".", "x"]
    assert [row[0] for row in best([one, two, more])] == [".", ".", "."]
    assert [row[0] for row in best([one, two, stage(completed=2, failed=1)])] == [
        ".",
        "x",
        ".",
    ]


def test_noise_is_not_marked_as_best() -> None:
    """Scatter of 100 ms in 17 requests: a standard error of 25 ms. Of a mean TTFT of 99 and 150 ms
    the difference is 1.4 errors of a difference, of 99 and 250 ms 4.3. Of rates, whose relative
    error is that of the mean E2EL (1000 ms), 3 % is noise, 20 % is not."""
    noisy = {"std": 100.0, "tpot_ms": None}
    assert [
        row[4]
        for row in best([stage(ttft_ms=99.0, **noisy), stage(ttft_ms=150.0, **noisy)])
    ] == [".", "."]
    assert [
        row[4]
        for row in best([stage(ttft_ms=99.0, **noisy), stage(ttft_ms=250.0, **noisy)])
    ] == ["x", "."]
    for rate, mark in ((10.3, "."), (12.0, "x")):
        assert [
            row[2]
            for row in best(
                [stage(output_throughput=each, **noisy) for each in (10.0, rate)]
            )
        ] == [".", mark]
    single = replace(
        stage(ttft_ms=1.0),
        figures=replace(
            figures(),
            distributions={
                **BASE.distributions,
                "ttft": Distribution(1, 1.0, 1.0, 0.0),
            },
        ),
    )
    assert [row[4] for row in best([single, stage()])] == [".", "."], (
        "one request has no scatter"
    )


def test_equal_figures_are_all_marked() -> None:
    assert [
        row[2]
        for row in best([stage(output_throughput=x) for x in (7.0, 9.0, 9.0, 8.0)])
    ] == [".", "x", "x", "."]


def test_what_was_not_measured_is_na_and_ranked_nowhere() -> None:
    """A single known value has nothing to be better than."""
    rows = cells_of(
        rows_of(
            [stage(ttft_ms=None, total_token_throughput=None), stage(tpot_ms=None)],
            None,
        )
    )
    assert [cell.text for cell in rows[0]][:2] == ["n/a", "c=8"]
    assert (rows[0][6].text, rows[0][5].text, rows[1][7].text) == ("n/a", "n/a", "n/a")
    assert not any(row[at].is_best for row in rows for at in (5, 6, 7))


names = st.sampled_from(
    ["8", "1024", "1-1024", "100/s-1000/s", "100/s-1000/s (2)", "1000/s spike", "8 3/6"]
)
large = st.one_of(st.none(), st.floats(0.001, 9_999_999))


@settings(max_examples=settings().max_examples // 4)
@given(st.lists(st.tuples(names, *[large] * 6, st.booleans()), min_size=1, max_size=4))
def test_the_table_fits_a_terminal_of_80_columns(drawn: list[tuple]) -> None:
    """Up to ten million in every column at once, marked or not."""
    stages = [
        stage(
            name,
            1024,
            duration_s=duration or 0.0,
            request_throughput=requests,
            output_throughput=output,
            total_token_throughput=total,
            ttft_ms=ttft,
            tpot_ms=tpot,
            failed=int(fails),
        )
        for name, duration, requests, output, total, ttft, tpot, fails in drawn
    ]
    for line in [
        *stage_lines(rows_of(stages, "a model's name that is in no column")),
        *speed_lines(stages),
    ]:
        assert len(line) <= 80


def test_large_figures_stand_without_decimals_in_a_terminal() -> None:
    """1 000 000 tokens/s; the report keeps them."""
    found = rows_of(
        [
            stage(
                "64",
                64,
                output_throughput=1e6,
                total_token_throughput=1234567.89,
                ttft_ms=99999.99,
            )
        ],
        "tiny",
    )
    (*_, line) = stage_lines(found)
    assert line.split()[3:6] == ["1000000", "1234568", "99999.99"]
    assert "| 1000000.00 | 1234567.89 | 99999.99 |" in markdown_lines(found)[2]


def test_the_block_of_a_run_in_stages_fits_80_columns(tmp_path: Path) -> None:
    assert max(map(len, block(run(tmp_path)).splitlines())) <= 80


def test_one_stage_alone_has_no_bars() -> None:
    """There is nothing to compare; nor is there without token times."""
    assert list(speed_lines([stage()])) == []
    assert list(speed_lines([stage(tpot_ms=None), stage()])) == []


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (stage(), []),
        (stage(is_whole=False, failed=1), ["† 8: the stage did not run to its end"]),
        (
            stage(completed=0),
            ["† 8: no request began and ended in the stage; make it longer"],
        ),
        (stage(lost=1), ["† 8: 1 of the workers were lost during the stage"]),
        (stage(completed=3, failed=2), ["† 8: 2 of 5 requests failed"]),
        (
            stage(completed=3, dropped=2),
            ["† 8: 0 of 3 requests failed, 2 arrivals dropped"],
        ),
        (
            stage(crossing=2),
            ["8: 2 requests that ended after the stage are left out of its latencies"],
        ),
    ],
)
def test_every_mark_is_explained(found: StageFigures, expected: list[str]) -> None:
    assert list(notes([found])) == expected


# Thresholds


def test_a_threshold_on_a_stage_looks_at_that_stage_alone(tmp_path: Path) -> None:
    """TTFT is 99, 149 and 49 ms; TPOT 50, 75 and 25; a stage that is not there fails."""
    texts = [
        "mean_ttft_ms{stage=1}>100",
        "mean_ttft_ms{stage=2}>100",
        "mean_tpot_ms{stage=4}>40",
        "failed{stage=4}>0",
        "failed{stage='1'}>0",
        "dropped{stage=2}>0",
        "mean_ttft_ms{stage=16}>100",
    ]
    found = run(tmp_path, fail_if=texts)
    assert [(threshold.value, threshold.failed) for threshold in found.thresholds] == [
        (99.0, False),
        (149.0, True),
        (25.0, False),
        (1.0, True),
        (0.0, False),
        (0.0, False),
        (None, True),
    ]
    assert found.exit_code == 1


def test_a_stage_that_was_written_twice_has_a_threshold_each(tmp_path: Path) -> None:
    stages = [STAGES[0], replace(STAGES[1], name="1 (2)", users=1), STAGES[2]]
    found = run(
        tmp_path,
        stages=stages,
        fail_if=["mean_ttft_ms{stage=1}>100", "mean_ttft_ms{stage=1 (2)}>100"],
    )
    assert [(threshold.value, threshold.failed) for threshold in found.thresholds] == [
        (99.0, False),
        (149.0, True),
    ]


def test_junit_names_the_stage_whose_threshold_came_true(tmp_path: Path) -> None:
    """A case a threshold; the whole run's are there, too."""
    texts = [
        "mean_ttft_ms{stage=1}>100",
        "mean_ttft_ms{stage=2}>100",
        "failed>5",
        "mean_tpot_ms{stage=16}>80",
    ]
    file = tmp_path / "ci" / "junit.xml"
    write_junit(run(tmp_path, fail_if=texts), file)
    root = ElementTree.fromstring(file.read_text(encoding="utf-8").encode())
    expected = {
        case.get("name"): [outcome.get("message") for outcome in case]
        for case in root.iter("testcase")
    }
    assert expected == {
        "run is complete": [],
        "mean_ttft_ms{stage=1} <= 100": [],
        "mean_ttft_ms{stage=2} <= 100": [
            "mean_ttft_ms of stage 2 was 149, over the limit of 100"
        ],
        "failed <= 5": [],
        "mean_tpot_ms{stage=16} <= 80": [
            "mean_tpot_ms of stage 16 was not measured, so the limit of 80 cannot be checked"
        ],
    }
    assert (root.get("tests"), root.get("failures")) == ("5", "2")
