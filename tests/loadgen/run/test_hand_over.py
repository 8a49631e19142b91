"""--hand-over: a warm-up whose slots go over to the measured requests one by one, and
--end-below."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from llama_load.analysis.figures.rates import peak_in_flight
from llama_load.loadgen.run.end_below_watcher import EndBelowWatcher
from llama_load.run_folder.observed.record import CANCELLED, to_batch
from llama_load.run_folder.vocabulary.slo import parse_slo
from tests.conftest import Finished, Simulated
from tests.make_records import failed, record

Run = Callable[..., Finished]


@pytest.mark.heavy
def test_the_load_is_full_from_the_first_measured_request_to_the_last_end(
    simulate: Callable[..., Simulated], run_locust: Run
) -> None:
    """8 users, 4 slots: 8 warm-ups, 32 measured requests, more that keep up the load. Never more
    than 8 are in flight, never less than 7 for longer than a hand-over while measured ones are;
    rates are those of the full load. Catches a gap in the load between warm-up and measurement, as
    the server sees it."""
    server = simulate(
        "--slots",
        "4",
        "--first-token-ms",
        "10",
        "--interval-ms",
        "5",
        "--lengths",
        "geometric",
        "--tokens",
        "12",
    )
    done = run_locust(server.url, "-u", "8", "--num-prompts", "32", "--hand-over")
    assert done.code == 0, done.err + done.out
    records, measured = done.records, done.records.measured()
    assert sorted(measured.numbers("prompt_index").tolist()) == list(range(32))
    assert peak_in_flight(records) == 8
    begun, ended = (
        measured.instants("started_mono_ns").min(),
        measured.instants("ended_mono_ns").max(),
    )
    starts, ends = (
        records.instants("started_mono_ns"),
        records.instants("ended_mono_ns"),
    )
    steps = sorted([(int(at), 1) for at in starts] + [(int(at), -1) for at in ends])
    level, short_ns = 0, 0
    for (at, step), (following, _) in zip(steps, steps[1:], strict=False):
        level += step
        if level < 7 and begun <= at < ended:
            short_ns += following - at
    assert short_ns < 0.2 * (ended - begun)
    warm = records.where(records.equals("warmup", True))
    assert (warm.instants("started_mono_ns") < begun).sum() == 8
    assert (warm.instants("ended_mono_ns") > begun).sum() >= 7  # they were not drained
    window_s = (measured.instants("started_mono_ns").max() - begun) / 1e9
    assert done.summary["duration"] == pytest.approx(window_s)
    assert "excess_in_flight" not in str(
        done.summary["llama_load"]["verdict"]["checks"]
    )


def test_hand_over_refuses_loads_that_it_is_not_for(run_locust: Run) -> None:
    done = run_locust(
        "http://127.0.0.1:1", "--request-rate", "4", "--hand-over", "--end-below", "0.9"
    )
    assert done.code == 2
    assert "--hand-over is for a closed loop with one number of users" in done.err
    assert "--hand-over needs a number of requests: give --num-prompts" in done.err
    assert (
        "--end-below needs objectives and one load: give --goodput and --num-prompts"
        in done.err
    )


def test_the_share_is_out_of_reach_with_the_first_miss_too_many() -> None:
    """Of 20 requests 18 must meet TTFT 100 ms: the third miss decides, a failure is one, warm-ups
    and cancelled requests are none."""
    rows = [record(number, first_ms=50 if number else 150) for number in range(4)]
    rows += [failed(5), record(6, first_ms=500, warmup=True), failed(7, kind=CANCELLED)]
    for add in ("one by one", "as a batch"):
        manifest = SimpleNamespace(ended_below=None)
        run: Any = SimpleNamespace(end_reason=None, end_early=lambda: None)
        watch = EndBelowWatcher(run, [parse_slo("ttft:100")], 0.9, 20)
        for each in rows if add == "one by one" else []:
            watch.add_record(each)
        if add == "as a batch":
            watch.add_batch(to_batch(rows))
        watch.facts(SimpleNamespace(manifest=manifest))
        assert manifest.ended_below is None
        watch.add_record(record(8, first_ms=101))
        watch.facts(SimpleNamespace(manifest=manifest))
        assert (
            manifest.ended_below
            == "3 of 20 requests missed the objectives: 90 % can no longer meet them"
        )
