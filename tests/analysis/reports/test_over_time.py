"""The steady part and the drift of a long run, in the block and in summary.json."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.result_json import result_json
from llama_load.analysis.results.results import Results, analyze
from llama_load.analysis.topics.soak import SOAK
from llama_load.analysis.topics.soak.drift import Soak
from llama_load.analysis.topics.steady import STEADY
from llama_load.analysis.topics.steady.steady_figures import SteadyFigures
from llama_load.run_folder import Run, StageRecord
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry
from tests.make_records import manifest, record, table
from tests.queue_runs import QueueRun, Slowdown, closed_loop

S = 1_000_000_000
HOUR = 3600 * S


def results(
    run: QueueRun, telemetry: Telemetry | None = None, **about: object
) -> Results:
    """The results of these requests."""
    rows = [
        record(
            number,
            started_mono_ns=int(run.started_ns[number]),
            first_token_mono_ns=int(run.first_ns[number]),
            last_token_mono_ns=int(run.ended_ns[number]),
            ended_mono_ns=int(run.ended_ns[number]),
            ttft_ms=float(run.ttft_ms[number]),
            tpot_ms=float(run.tpot_ms[number]),
            e2el_ms=float(run.e2el_ms[number]),
            itl_ms=[float(run.tpot_ms[number])] * int(run.tokens[number] - 1),
            output_tokens=int(run.tokens[number]),
            token_events=int(run.tokens[number]),
            max_tokens=int(run.tokens[number]),
        )
        for number in range(len(run.started_ns))
    ]
    told = manifest(num_prompts=len(rows), **about)
    return analyze(
        Run(
            Path("run"),
            told,
            table(*rows),
            recovered=False,
            telemetry=telemetry or Telemetry(),
        )
    )


def steady_of(results: Results) -> SteadyFigures:
    found: SteadyFigures = results.topics[STEADY.key].figures
    return found


def soak_of(results: Results) -> Soak:
    found: Soak = results.topics[SOAK.key].figures.soak
    return found


def test_the_steady_part_stands_beside_the_whole() -> None:
    """Six times as slow for the first 60 s: the block has all 600 requests, the section those after
    it."""
    found = results(
        closed_loop(
            np.random.default_rng(0),
            600,
            4,
            "deterministic",
            changes=[Slowdown(0, 60, 6)],
        )
    )
    assert found.total.completed == 600
    assert steady_of(found).figures is not None
    assert 540 < steady_of(found).figures.completed < 580
    tpot = steady_of(found).figures.distributions["tpot"].mean
    assert tpot == pytest.approx(20.0, rel=0.02)
    assert (found.total.distributions["tpot"].mean or 0) > 1.2 * (tpot or 0)
    # four users, 1 s a request
    assert steady_of(found).figures.request_throughput == pytest.approx(4.0, rel=0.05)
    text = block(found)
    assert "Steady Part" in text
    plain = result_json(found)["llama_load"]["steady"]
    assert plain["reason"] == "steady"
    assert 50 < plain["begin_s"] < 75
    assert plain["mean_tpot_ms"] == tpot
    assert plain["shift_s"] is None
    msgspec.json.encode(result_json(found))


def test_a_run_that_is_steady_from_the_start_has_no_section() -> None:
    found = results(closed_loop(np.random.default_rng(0), 600, 4, "deterministic"))
    assert steady_of(found).part.is_steady
    assert "Steady Part" not in block(found)


def test_a_change_is_shown_with_its_time() -> None:
    found = results(
        closed_loop(
            np.random.default_rng(0),
            600,
            4,
            "deterministic",
            changes=[Slowdown(100, 1e7, 3)],
        )
    )
    text = block(found)
    assert (
        abs((steady_of(found).seconds(steady_of(found).part.shift_ns) or 0) - 100) < 5
    )
    assert "; the server changed at" in " ".join(text.split())
    assert found.verdict.word == "NOT COMPARABLE"
    assert "x as high from" in found.verdict.headline


def test_a_ramp_has_no_steady_part() -> None:
    found = results(closed_loop(np.random.default_rng(0), 100, 4), ramp=(1, 4))
    assert found.topics == {}


def soaked(
    hours: float, slower_per_hour: float = 0.0, leak_mib: float = 0.0, **about: object
) -> Results:
    """A request of one user every 10 s, with TPOT rising by this share per hour; compressed time:
    nothing waits."""
    rng = np.random.default_rng(0)
    started = (np.arange(int(hours * 360)) * 10 * S).astype(np.int64)
    tpot_s = (
        0.1
        * (1 + slower_per_hour * started / HOUR)
        * rng.lognormal(0, 0.05, len(started))
    )
    ended = started + S + (tpot_s * 45 * S).astype(np.int64)
    t_ns = np.arange(0, round(hours * HOUR), 10 * S, dtype=np.int64)
    memory = 2**30 + leak_mib * 2**20 * (t_ns / HOUR) + rng.normal(0, 2**20, len(t_ns))
    telemetry = Telemetry([Series("server", "server_memory_bytes", {}, t_ns, memory)])
    return results(
        QueueRun(None, started, started + S, ended, np.full(len(started), 46)),
        telemetry,
        users=1,
        **about,
    )


def test_a_long_run_shows_its_drift_per_hour() -> None:
    """Two hours, TPOT + 5 % an hour, 30 MiB an hour more memory: and TTFT as ever."""
    found = soak_of(soaked(2, slower_per_hour=0.05, leak_mib=30))
    assert found is not None
    drifts = {drift.name: drift for drift in found.drifts}
    assert drifts["TPOT"].low < 5.0 < drifts["TPOT"].high  # ms per hour, of 100 ms
    assert drifts["TPOT"].is_certain
    assert drifts["server memory"].per_hour == pytest.approx(30, abs=0.5)
    assert drifts["server memory"].is_certain
    assert not drifts["TTFT"].is_certain
    text = block(soaked(2, slower_per_hour=0.05, leak_mib=30))
    assert "Drift over 2.0 Hours" in text
    assert "failures: none" in text


def test_a_constant_server_does_not_drift_in_a_soak_of_equal_stages() -> None:
    """An hour in stages of the same load, as `--stages soak:1:1h` makes them, is one long run."""
    stages = [StageRecord(str(number), users=1) for number in range(2)]
    found = soak_of(soaked(1.2, stages=stages))
    assert found is not None
    assert [drift.name for drift in found.drifts if drift.is_certain] == []


def test_a_short_run_has_no_drift_section() -> None:
    assert SOAK.key not in soaked(0.5).topics
