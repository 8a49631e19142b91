"""The servers' counters without the probes: what is left is the load's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from llama_load.analysis.results.counter_resets import without_resets
from llama_load.analysis.results.own_counters import counters_without, without_probes
from llama_load.analysis.results.results import analyze
from llama_load.run_folder import Run, StageRecord
from llama_load.run_folder.observed.probe_names import ALONE, BESIDE
from llama_load.run_folder.observed.record import to_batch
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_counters import (
    RESTARTED,
    ServerCounters,
    ServerTimes,
)
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry
from tests.make_records import MS, failed, manifest, record

COUNTED = ServerCounters(
    prompt_tokens=1000, cache_queries=1000, cache_hits=100, requests=12, output_tokens=300,
    times=ServerTimes(12, ttft_ms=1240, e2el_ms=1560, queue_ms=120, prefill_ms=240, decode_ms=320),
)  # fmt: skip


def probes(*records: object) -> Records:
    return Records(pa.Table.from_batches([to_batch(records)]))


def probe(start_ms: float, name: str = BESIDE) -> object:
    """40 prompt tokens, 4 of them cached, 3 output tokens; TTFT 100 ms of which 1 ms connecting,
    E2EL 140 ms."""
    return record(start_ms=start_ms, name=name, prompt_tokens=40, cached_tokens=4)


def test_tokens_requests_and_times_of_probes_are_subtracted() -> None:
    own = counters_without(COUNTED, probes(probe(0), probe(10)))
    assert (
        own.prompt_tokens,
        own.cache_queries,
        own.cache_hits,
        own.requests,
        own.output_tokens,
    ) == (920, 920, 92, 10, 294)
    # 1240 - 2 x 99 and 1560 - 2 x 139; the mean wait and prefill of a request stay 10 and 20 ms.
    assert own.times == ServerTimes(10, 1042, 1282, 100, 200, 240)
    assert not own.errors


def test_what_an_unanswered_probe_added_is_an_error() -> None:
    own = counters_without(COUNTED, probes(probe(0), failed(start_ms=5)))
    assert (
        own.requests,
        own.error("requests"),
        own.prompt_tokens,
        own.error("prompt_tokens"),
    ) == (11, 1, 960, 40)


def test_tokens_that_answers_do_not_report_are_not_known() -> None:
    unknown = counters_without(
        COUNTED, probes(record(name=BESIDE, prompt_tokens=None, output_tokens=None))
    )
    assert (unknown.prompt_tokens, unknown.output_tokens, unknown.requests) == (
        None,
        None,
        11,
    )


def sampled(*values: float) -> Telemetry:
    """The server's counter of prompt tokens, each second from 0 s on."""
    instants = np.arange(len(values), dtype=np.int64) * 1000 * MS
    return Telemetry(
        [
            Series(
                "http://x/metrics",
                "llamacpp:prompt_tokens_total",
                {},
                instants,
                np.array(values),
            )
        ]
    )


@pytest.mark.parametrize(
    ("values", "is_reset"),
    [((50.0, 60.0, 5.0, 90.0), True), ((50.0, 60.0, 70.0, 90.0), False)],
)
def test_a_counter_that_drops_between_two_larger_readings_is_a_restart(
    values: tuple[float, ...], is_reset: bool, tmp_path: Path
) -> None:
    """A router's process was killed after 60 tokens and has counted 90 at the end: 40 more than
    before, of 95 that were processed. That is no other server that answered, and the stage before
    it keeps its counters."""
    stages = [
        StageRecord("1", 1, None, 0, 1000 * MS, counters=COUNTED),
        StageRecord("2", 2, None, 1000 * MS, 3000 * MS, counters=COUNTED),
    ]
    about = manifest(
        stages=stages,
        counters=COUNTED,
        targets=[{"url": "http://x", "backend": "llama-server"}],
    )
    records = probes(record(start_ms=0), record(start_ms=2900))
    run = without_resets(
        Run(tmp_path, about, records, recovered=False, telemetry=sampled(*values))
    )
    assert (run.manifest.counters is None) is is_reset and (
        run.manifest.stages[1].counters is None
    ) is is_reset
    assert run.manifest.stages[0].counters == COUNTED
    assert (RESTARTED in run.manifest.server_changes) is is_reset


def test_each_stage_loses_its_probes(tmp_path: Path) -> None:
    """One in the first stage, one after its end that was waited for, one in the second; those alone
    were sent before the counters were read. The run's manifest is unchanged."""
    stages = [
        StageRecord("1", 1, None, 0, 1000 * MS, counters=COUNTED),
        StageRecord("2", 2, None, 2000 * MS, 3000 * MS, counters=COUNTED),
    ]
    about = manifest(stages=stages, counters=COUNTED)
    records = probes(probe(500), probe(1500), probe(2500), probe(-500, ALONE))
    run = without_probes(
        Run(tmp_path, about, probes(record()), recovered=False, probes=records)
    )
    assert [
        stage.counters and stage.counters.requests for stage in run.manifest.stages
    ] == [10, 11]
    assert run.manifest.counters is not None and run.manifest.counters.requests == 9
    assert about.counters == COUNTED and about.stages[0].counters == COUNTED


def test_the_figures_of_a_run_are_those_of_its_load(tmp_path: Path) -> None:
    """Ten requests and two probes at a server with one slot, by whose counters there were twelve
    requests."""
    load = [
        record(number, start_ms=200.0 * number, queue_ms=90.0 if number == 1 else 0.0)
        for number in range(10)
    ]
    counted = ServerCounters(prompt_tokens=180, output_tokens=36, requests=12)
    about = manifest(
        counters=counted, probe_rate_rps=0.5, targets=[{"url": "http://h", "slots": 1}]
    )
    beside = [probe(150), probe(950)]
    results = analyze(
        Run(tmp_path, about, probes(*load), recovered=False, probes=probes(*beside))
    )
    assert results.topics["probes"].figures.total.sent == 2
    assert (
        results.total.completed,
        results.total.total_input_tokens,
        len(results.time_parts.requests),
    ) == (10, 100, 10)
    assert {
        pair.name: (pair.client, pair.server)
        for pair in results.client_server
        if pair.coarse
    } == {
        **{"output tokens": (30, 30), "prompt tokens": (100, 100), "requests": (10, 10)}
    }
    others = next(
        check for check in results.verdict.checks if check.name == "other_client_ratio"
    )
    assert others.text.endswith("as many as were ours")
    # The request at 200 ms got the slot at 291 ms, when the probe had ended: a known wait.
    alone = analyze(
        Run(tmp_path, manifest(targets=about.targets), probes(*load), recovered=False)
    )
    waits = [each.time_parts.requests["slot_wait"][1] for each in (results, alone)]
    assert waits == [pytest.approx(90), pytest.approx(0)]
