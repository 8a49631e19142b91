"""Other programs on the server's machine, and what a busy machine explains."""

from __future__ import annotations

import socket
from dataclasses import replace

import psutil
import pytest

from llama_load.analysis.checks.machine import (
    other_programs,
    others_on_gpus,
    server_waits,
)
from llama_load.analysis.checks.verdict import Verdict, judge
from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.summary import summarize
from llama_load.ground.processes import _local_peers
from llama_load.loadgen.preflight.make_manifest import is_ci
from llama_load.run_folder.observed.worker_health import WorkerHealth
from tests.make_records import record, table

NAME = "other_programs_ratio"
ROWS = table(*(record(index) for index in range(3)))
HERE = WorkerHealth(
    "box_1",
    1.0,
    2.0,
    0.2,
    machine_busy=0.7,
    own_share=0.1,
    server_share=0.55,
    is_server_here=True,
)
BUSY = replace(HERE, machine_busy=0.98, busiest_others=["cc1 30%", "yes 3%"])


def evidence(*workers: WorkerHealth, shared: bool = False) -> Evidence:
    return Evidence(
        records=ROWS,
        figures=summarize(ROWS),
        health=workers,
        planned=3,
        shared_machine=shared,
    )


def checked(*workers: WorkerHealth, shared: bool = False) -> Check:
    (check,) = other_programs(evidence(*workers, shared=shared))
    return check


def test_other_programs_beside_a_server_that_computes_are_named() -> None:
    """98 % busy, less 10 % of the client and 55 % of the server: 33 %. 70 % busy: 5 %, which
    passes."""
    busy, quiet = checked(BUSY), checked(HERE)
    assert (busy.value, busy.mark, busy.word) == (
        pytest.approx(0.33),
        "✗",
        "NOT COMPARABLE",
    )
    assert busy.text == (
        "other programs used 33% of the CPUs of the server's machine (cc1 30%, yes 3%)"
    )
    assert (quiet.value, quiet.mark) == (pytest.approx(0.05), "✓")


def test_the_clients_other_processes_are_no_strangers() -> None:
    """Two workers, their master and telemetry use 40 % together, as each worker sees."""
    workers = [
        replace(BUSY, worker=f"box_{number}", client_share=0.4) for number in range(2)
    ]
    assert checked(*workers).value == pytest.approx(0.03)


def test_where_the_servers_machine_was_not_seen_nothing_is_known() -> None:
    """A server elsewhere, one in a container, and workers of an older version."""
    elsewhere = replace(BUSY, server_share=None, is_server_here=False)
    hidden = replace(BUSY, server_share=None)
    old = WorkerHealth("box_1", 1.0, 2.0, 0.2)
    assert [checked(worker).mark for worker in (elsewhere, hidden, old)] == [
        "?",
        "?",
        "?",
    ]
    assert "cannot be seen" in checked(hidden).text


def test_beside_a_server_that_leaves_the_cpu_alone_half_of_it_matters() -> None:
    """A server on a GPU uses 2 % of the machine: 33 % of others slow it down little, 60 % may."""
    on_gpu = replace(HERE, server_share=0.02)
    assert checked(replace(on_gpu, machine_busy=0.45)).mark == "✓"
    assert checked(replace(on_gpu, machine_busy=0.72)).mark == "✗"


def test_a_declared_shared_machine_is_named_in_the_head_line() -> None:
    check = checked(BUSY, shared=True)
    assert (check.limit, check.text.endswith("as declared by --shared-machine")) == (
        None,
        True,
    )
    found = judge(evidence(BUSY, shared=True))
    assert found.word == "VALID"
    assert found.headline.startswith(
        "VALID as far as seen on a shared machine (others used 33% of it): "
    )
    assert judge(evidence(HERE, shared=True)).headline.startswith(
        "VALID as far as seen: "
    )


@pytest.mark.parametrize(
    ("busy", "ran_s", "waited_s", "expected"),
    [
        # Others had 33 % of 20 CPU seconds, 6.6 s; it waited 3 of the 14 s that it needed a core.
        (0.98, 11.0, 3.0, 3 / 14),
        # Its own eight threads waited for each other: others had 5 % of 20 s, which is 1 of 51 s.
        (0.7, 11.0, 40.0, 1 / 51),
        # It computes on a GPU: 0.2 s of waits in 10 s.
        (0.98, 0.5, 0.2, 0.2 / 10),
    ],
)
def test_a_server_that_waits_for_the_cores_of_others(
    busy: float, ran_s: float, waited_s: float, expected: float
) -> None:
    worker = replace(
        HERE,
        machine_busy=busy,
        server_ran_s=ran_s,
        server_waited_s=waited_s,
        server_seen_s=10.0,
        machine_s=20.0,
    )
    (check,) = server_waits(evidence(worker))
    assert check.value == pytest.approx(expected)
    assert check.ok is (expected <= 0.05)
    assert "the server waited for a core" in check.text
    (declared,) = server_waits(evidence(worker, shared=True))
    assert declared.limit is None
    assert list(server_waits(evidence(HERE))) == []


def test_one_cause_has_one_remedy() -> None:
    """Others took 85 % of the machine: the client was late and waited for a core. What to do is
    said once."""
    late = replace(
        BUSY,
        server_share=0.05,
        loop_lag_p99_ms=60.0,
        loop_lag_max_ms=90.0,
        core_wait_ratio=0.3,
    )
    found = judge(evidence(late))
    bad = [check for check in found.checks if not check.ok]
    assert {check.name for check in bad} == {NAME, "loop_lag_p99_ms", "core_wait_ratio"}
    assert [check.remedy for check in bad] == [
        "stop them, or add --shared-machine if they belong to it",
        "",
        "",
    ]
    assert not any("--processes" in check.sentence for check in bad)


def test_one_user_is_not_told_to_have_fewer_streams() -> None:
    """Half of the events arrived together: with one request at a time that is not the number of
    streams."""
    rows = table(
        *(record(index, start_ms=1000 * index, merged_events=2) for index in range(3))
    )
    busy = table(*(record(index, merged_events=2) for index in range(3)))
    for records, is_told in ((rows, False), (busy, True)):
        found = judge(
            Evidence(
                records=records, figures=summarize(records), health=[HERE], planned=3
            )
        )
        (check,) = [check for check in found.checks if check.name == "merged_ratio"]
        assert ("fewer streams" in check.sentence) is is_told


def test_a_failure_that_a_busy_machine_does_not_cause_keeps_its_remedy() -> None:
    found = judge(replace(evidence(BUSY), planned=9))
    missing = next(check for check in found.checks if check.name == "missing_records")
    assert missing.remedy == LIMITS["missing_records"].remedy


def test_a_run_that_somebody_stopped_says_so() -> None:
    found = judge(
        replace(evidence(HERE), planned=9, interrupted=True, stopped_by_hand=True)
    )
    assert found.headline.startswith(
        "INCOMPLETE: you stopped it: 3 of 9 planned requests had ended; let it run to its end"
    )
    timed = judge(
        replace(evidence(HERE), planned=None, interrupted=True, stopped_by_hand=True)
    )
    assert timed.headline.startswith(
        "INCOMPLETE: you stopped it after 3 requests, before the end of the run's time"
    )


@pytest.mark.parametrize(
    ("shares", "value", "ok", "words"),
    [
        ((0.0, 0.3), 0.3, False, "computed on a GPU of the server for 30% of the time"),
        ((0.04,), 0.04, True, "for 4% of the time"),
        ((0.0, None), None, True, "is not known"),
    ],
)
def test_what_others_compute_on_the_servers_gpus_is_judged(
    shares: tuple[float | None, ...], value: float | None, ok: bool, words: str
) -> None:
    """One of two GPUs is enough; a GPU whose users are not known is not good."""
    found = replace(evidence(HERE), gpu_others=shares)
    (check,) = others_on_gpus(found)
    assert (check.value, check.ok) == (value, ok)
    assert words in check.text and check.is_main
    (declared,) = others_on_gpus(replace(found, shared_machine=True))
    assert declared.ok
    assert list(others_on_gpus(evidence(HERE))) == []


def test_a_loop_that_stamps_nothing_spoils_no_latency() -> None:
    """A server on all cores of this machine: the client sends up to 9.8 ms late and its loop lags
    by 24.9 ms, at a TTFT of 282 ms. Both are in no latency where the delay is known of each
    request; users ask later, which lowers rates by (9.8 + 24.9) / 1382 at most."""
    late = replace(
        HERE, loop_lag_p99_ms=24.9, loop_lag_max_ms=40.0, core_wait_ratio=0.2
    )

    delays = {"gaps_ms": (550, 550), "own_delay_ms": 9.8}

    def found(worker: WorkerHealth, **more: object) -> Verdict:
        rows = table(
            *(
                record(index, start_ms=2000 * index, first_ms=282, **delays, **more)
                for index in range(12)
            )
        )
        known = Evidence(
            records=rows, figures=summarize(rows), health=[worker], planned=12
        )
        return judge(known)

    left_out = found(late, asked_mono_ns=1)
    assert left_out.words == ["VALID"]
    later = next(
        check for check in left_out.checks if check.name == "asked_later_ratio"
    )
    assert later.value == pytest.approx((9.8 + 24.9) / 1382)
    assert found(late).words == ["CLIENT-BOUND"]

    slow = found(replace(late, loop_lag_p99_ms=300.0), asked_mono_ns=1)
    (bad,) = [check for check in slow.checks if not check.ok]
    assert (bad.name, bad.spoils) == ("asked_later_ratio", ("rates",))


def test_a_runner_of_ci_is_a_shared_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, expected in (("true", True), ("", False), ("false", False)):
        monkeypatch.setenv("CI", value)
        assert is_ci() is expected
    found = judge(replace(evidence(BUSY, shared=True), is_ci=True))
    assert " on a shared machine (others used 33% of it)" in found.headline
    (check,) = other_programs(replace(evidence(BUSY, shared=True), is_ci=True))
    assert check.text.endswith("which is usual on a runner of CI (CI=true)")


def test_what_a_gateway_is_connected_to_on_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as engine:
        port = engine.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert port in _local_peers(psutil.Process())
        assert port not in _local_peers(psutil.Process())
