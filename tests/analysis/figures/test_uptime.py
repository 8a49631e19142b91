"""A machine that has been up for long: its monotonic clock is over 2^53 ns after 104 days, more
than a float holds exactly."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from llama_load.analysis.figures.rates import peak_output_tok_per_s, token_times_ns
from llama_load.analysis.reports.write import write_reports
from llama_load.analysis.results.results import analyze
from llama_load.run_folder import RunWriter, StageRecord, load_run
from llama_load.run_folder.observed.record import INSTANTS, RequestRecord, to_batch
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.window import Window
from tests.conftest import Finished, Simulated, environment, locust_command
from tests.make_records import MS, failed, manifest, record, table

# 104.25 days, and 36 years: there a float64 counts in steps of 256 ns.
UPTIMES_NS = [2**53 + 1, 2**60 + 1]
DAYS_200_S = 200 * 86_400
RECORDS = [
    record(0, stage=0, start_ms=0, first_ms=99, gaps_ms=(50, 50)),
    record(
        1,
        stage=0,
        start_ms=400.000_001,
        first_ms=98.999_999,
        gaps_ms=(0.5, 700),
        scheduled_mono_ns=400 * MS,
        late_ms=0.000_001,
    ),
    record(2, stage=1, start_ms=1000, first_ms=149, gaps_ms=(75, 75)),
    record(
        3,
        stage=1,
        start_ms=1200,
        gaps_ms=(),
        first_token_mono_ns=None,
        last_token_mono_ns=None,
        ttft_ms=None,
    ),
    failed(4, start_ms=1300, end_ms=1450),
]
STAGES = [
    StageRecord("1", users=1, begun_mono_ns=0, ended_mono_ns=1000 * MS, is_timed=True),
    StageRecord(
        "2", users=2, begun_mono_ns=1000 * MS, ended_mono_ns=1500 * MS, is_timed=True
    ),
]


def later(row: RequestRecord, uptime_ns: int) -> RequestRecord:
    """The record of the same request on a machine that was started so much earlier."""
    stamps = {name: getattr(row, name) for name in INSTANTS}
    return replace(
        row,
        **{
            name: stamp + uptime_ns
            for name, stamp in stamps.items()
            if stamp is not None
        },
    )


@pytest.mark.parametrize("uptime_ns", UPTIMES_NS)
def test_the_results_do_not_depend_on_the_uptime(
    tmp_path: Path, uptime_ns: int
) -> None:
    """Every figure, check and stage, and all that is written of them."""

    def worked_out(folder: Path, uptime_ns: int) -> tuple[object, str]:
        stages = [
            replace(
                stage,
                begun_mono_ns=stage.begun_mono_ns + uptime_ns,
                ended_mono_ns=stage.ended_mono_ns + uptime_ns,
            )
            for stage in STAGES
        ]
        about = manifest(num_prompts=len(RECORDS), stages=stages)
        writer = RunWriter(folder, about)
        writer.append([later(row, uptime_ns) for row in RECORDS])
        writer.finish()
        found = analyze(load_run(folder))
        write_reports(found)
        return replace(found, run=None), (folder / "summary.json").read_text()

    assert worked_out(tmp_path / "late", uptime_ns) == worked_out(tmp_path / "early", 0)


@pytest.mark.parametrize("uptime_ns", UPTIMES_NS)
def test_instants_of_tokens_are_exact_to_the_nanosecond(uptime_ns: int) -> None:
    """Tokens 99, 149 and 199 ms after the start, and a whole answer of one token that ended 101 ms
    after its own at 1200 ms."""
    records = table(*(later(RECORDS[index], uptime_ns) for index in (0, 3)))
    times = np.concatenate([times_ns for times_ns, _ in token_times_ns(records)])
    assert (times - uptime_ns).tolist() == [99 * MS, 149 * MS, 199 * MS, 1301 * MS]
    assert times.dtype == np.int64


def test_the_busiest_second_is_found_to_the_nanosecond() -> None:
    """Tokens at 0 and 1 s - 1 ns after the beginning are in one second. Rounded to 256 ns, the
    second one would be a second later."""
    begun_ns = 2**60 + 1
    rows = [
        record(
            n,
            gaps_ms=(),
            started_mono_ns=begun_ns,
            first_token_mono_ns=begun_ns + n * (1000 * MS - 1),
        )
        for n in range(2)
    ]
    window = Window(begun_ns, begun_ns + 2000 * MS)
    assert (
        peak_output_tok_per_s(Records(pa.Table.from_batches([to_batch(rows)])), window)
        == 2
    )


@pytest.mark.parametrize(
    "flags",
    [
        ("--stages", "1:0.5s,2:0.5s"),
        pytest.param(("--request-rate", "20", "-t", "2s"), marks=pytest.mark.heavy),
    ],
)
def test_a_run_on_a_machine_that_has_been_up_for_200_days(
    simulate: Callable[..., Simulated],
    run_report: Callable[..., Finished],
    tmp_path: Path,
    flags: tuple[str, ...],
) -> None:
    """In a time namespace, whose monotonic clock is 200 days ahead."""
    namespace = [
        "unshare",
        "--time",
        "--monotonic",
        str(DAYS_200_S),
        "--fork",
        "--kill-child",
    ]
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            [*namespace, "true"], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip(
            "NOT TESTED: a clock beyond 2^53 ns needs `unshare --time`, which is not permitted here"
        )
    server = simulate("--first-token-ms", "20", "--interval-ms", "5")
    command = [
        *namespace,
        *locust_command(
            server.url, tmp_path / "run", *flags, "--max-tokens", "4", "--warmup", "1"
        ),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = run_report(tmp_path / "run")
    assert report.code == 0, report.err
    assert (
        report.records.instants("started_mono_ns").min()
        > DAYS_200_S * 1_000_000_000
        > 2**53
    )
    assert report.summary["duration"] < 60
    assert report.summary["completed"] > 10
