"""Figures of probes: classes of neighbours, ratios to alone, what is cut, checks."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from llama_load.analysis.checks.probes_felt import probes as checks_of
from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.probe_figures import ProbeFigures, probe_figures
from llama_load.analysis.figures.summary import summarize
from llama_load.analysis.statistics.neighbours import neighbour_classes
from llama_load.run_folder.observed.probe_names import ALONE, BESIDE, SETTLING
from llama_load.run_folder.observed.record import RequestRecord, to_batch
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.window import Window
from tests.make_records import MS, failed, record


def table(*records: RequestRecord) -> Records:
    import pyarrow as pa

    return Records(pa.Table.from_batches([to_batch(records)]))


def probe(
    start_ms: float, ttft_ms: float = 20, name: str = BESIDE, **changed: Any
) -> RequestRecord:
    """A probe of 40 + 3 tokens."""
    return record(
        start_ms=start_ms,
        first_ms=ttft_ms,
        workload="probe",
        name=name,
        **{"prompt_tokens": 40} | changed,
    )


def load(
    workload: str, start_ms: float, first_ms: float, end_ms: float, **changed: Any
) -> RequestRecord:
    return record(
        start_ms=start_ms,
        first_ms=first_ms - start_ms,
        gaps_ms=(end_ms - first_ms - 1,),
        workload=workload,
        **changed,
    )


ALONE_20 = [
    probe(-1000 + 100 * number, ttft, ALONE)
    for number, ttft in enumerate((19, 20, 30, 10, 21))
]


def figures(
    *beside: RequestRecord,
    requests: tuple[RequestRecord, ...] = (),
    end_ms: float = 10_000,
    alone: Any = ALONE_20,
    **about: Any,
) -> ProbeFigures:
    requests = requests or (load("chat", 0, 100, end_ms),)
    probes, window = (
        table(probe(-2000, 500, SETTLING), *alone, *beside),
        Window(0, round(end_ms * MS)),
    )
    return probe_figures(probes, table(*requests), window, rate_rps=0.5, **about)


def test_the_class_is_what_is_in_flight_when_the_probe_starts() -> None:
    """As in the docstring; at both instants the later state holds, and a request that begins
    afterwards is no neighbour."""
    document = load("document", 1000, 3000, 4000)
    others = [
        load("chat", 2500, 2600, 5000),
        failed(start_ms=6000, end_ms=7000),
        load("chat", 900, 950, 990, host="http://other"),
    ]
    at_ms = {
        **{950: "idle", 999.9: "idle", 1000: "document", 2000: "document"},
        **{
            2550: "chat + document",
            2700: "document",
            3000: "only answers",
            3500: "only answers",
            5000: "idle",
        },
        **{6500: "sharegpt", 7000: "idle"},
    }
    probes = table(*(probe(at, 5000) for at in at_ms))
    assert (
        dict(
            zip(at_ms, neighbour_classes(probes, table(document, *others)), strict=True)
        )
        == at_ms
    )


def test_many_workloads_are_one_class() -> None:
    requests = table(*(load(name, 0, 100, 200) for name in ("a", "b", "c")))
    assert neighbour_classes(table(probe(50)), requests) == ["3 workloads or more"]


def test_ratios_are_to_the_median_alone() -> None:
    """Alone 20 ms, the settling probe of 500 ms left out; beside the load 30, 40 and 200: 40 /
    20."""
    found = figures(probe(1000, 30), probe(2000, 200), probe(3000, 40))
    assert (found.alone.ttft.median, found.alone_range_ms, found.alone.ttft_ratio) == (
        20,
        (10, 30),
        1,
    )
    assert (
        found.total.sent,
        found.total.ttft.percentile(50),
        found.total.ttft_ratio,
    ) == (3, 40, 2)
    assert found.total.e2el_ratio == pytest.approx(80 / 60)
    assert found.total.ttft.percentile(90) is None  # of three values


def test_the_ratio_of_several_servers_is_to_each_ones_own_value() -> None:
    """20 ms alone at one server and 100 ms at the other: 1.5, 25 and 2 times that, and not the
    median 200 / the median 20. A third server without values alone: no ratio."""
    slow_alone = [probe(-100, 100, ALONE, host="http://slow") for _ in range(3)]
    beside = [probe(1000, 30), probe(2000, 200, host="http://slow"), probe(3000, 500)]
    assert figures(*slow_alone, *beside).total.ttft_ratio == 2
    assert (
        figures(
            *slow_alone, *beside, probe(3000, 40, host="http://third")
        ).total.ttft_ratio
        is None
    )


def test_too_few_probes_alone_give_no_ratio() -> None:
    found = figures(
        probe(100, 40), alone=[probe(-200, 20, ALONE), probe(-100, 20, ALONE)]
    )
    assert found.total.ttft_ratio is None
    assert "no ratio to alone" in checked(found)["probes_alone"].text


def test_a_probe_without_a_token_when_the_load_ends_is_cut() -> None:
    """Whatever an idle server does with it afterwards, or the end of the run. What is sent after
    the end is not beside the load."""
    unanswered = dataclasses.replace(
        probe(9500),
        status="cancelled",
        ttft_ms=None,
        e2el_ms=None,
        first_token_mono_ns=None,
    )
    after = [probe(9000, 5000), unanswered, probe(10_000, 20)]
    found = figures(probe(1000, 40), probe(2000, 40), *after)
    assert (
        found.total.sent,
        found.total.cut,
        found.total.failed,
        found.total.ttft.count,
    ) == (4, 2, 0, 2)
    # Kaplan-Meier: half of the four took longer than 500 ms, so that the median is still 40 ms and
    # the mean is not.
    assert found.cut_shift > 5
    check = checked(found)["probe_cut_shift"]
    assert not check.ok and check.text.startswith(
        "2 probes still waited when the load ended"
    )
    assert math.isinf(figures(probe(9000, 5000)).cut_shift)


def test_failed_probes_are_in_no_latency_and_are_named() -> None:
    lost = failed(start_ms=3000, end_ms=9000, kind="first_token_timeout")
    found = figures(
        probe(1000, 40), dataclasses.replace(lost, workload="probe", name=BESIDE)
    )
    assert (found.total.failed, found.total.ttft.count, found.failures) == (
        1,
        1,
        {"first_token_timeout": 1},
    )
    check = checked(found)["probe_failure_ratio"]
    assert (check.value, check.ok, check.text) == (
        0.5,
        False,
        "1 of 2 probes failed: 1 × first_token_timeout",
    )


def test_stages_have_the_probes_that_were_sent_in_them() -> None:
    """At an edge the probe is of the stage that begins; between stages it is of none; a stage
    without an end lasts to the end."""
    stages = (
        ("1", 0, 2000 * MS),
        ("2", 2000 * MS, 3000 * MS),
        ("4", 4000 * MS, None),
        ("8", None, None),
    )
    found = figures(
        probe(0),
        probe(1999, 500),
        probe(2000),
        probe(3500),
        probe(4000),
        probe(9000),
        stages=stages,
    )
    assert {name: sample.sent for name, sample in found.by_stage.items()} == {
        "1": 2,
        "2": 1,
        "4": 2,
    }
    assert found.total.sent == 6


def test_parts_of_the_time_have_five_probes_or_more_on_average() -> None:
    assert not figures(*(probe(1000 * number) for number in range(9))).over_time
    parts = figures(*(probe(1000 * number + 10) for number in range(10))).over_time
    assert [(part.begin_s, part.end_s, part.sample.sent) for part in parts] == [
        (0, 5, 5),
        (5, 10, 5),
    ]


def test_the_cost_is_a_share_of_all() -> None:
    """Two probes of 43 tokens beside one request of 10 + 2: 86 of 98 tokens, two of three
    requests."""
    found = figures(probe(1000), probe(2000))
    assert (found.prompt_tokens, found.output_tokens) == (80, 6)
    assert (found.request_ratio, found.token_ratio) == (
        pytest.approx(2 / 3),
        pytest.approx(86 / 98),
    )
    assert not checked(found)["probe_token_ratio"].ok


def test_a_prompt_that_is_cached_alone_and_not_beside_the_load_is_noticed() -> None:
    cached = [probe(-100, 5, ALONE, cached_tokens=36) for _ in range(3)]
    assert checked(figures(probe(100, 40), alone=cached))[
        "probe_cache_gap"
    ].value == pytest.approx(0.9)
    assert checked(figures(probe(100, 40)))["probe_cache_gap"].ok
    unknown = figures(probe(100, 40, cached_tokens=None))
    assert "probe_cache_gap" not in checked(unknown)


def test_a_run_without_probes_says_so() -> None:
    found = figures()
    assert found.total.sent == 0 and found.total.ttft_ratio is None
    assert checked(found)["probe_failure_ratio"].text.startswith(
        "no probe was sent while requests were measured"
    )


def checked(found: ProbeFigures) -> dict[str, Check]:
    requests = table(load("chat", 0, 1, 9))
    evidence = Evidence(
        records=requests, figures=summarize(requests, [99.0]), probes=found
    )
    return {check.name: check for check in checks_of(evidence)}
