"""Servers that mislead a search: each flaw is planted in scripted probes, or in the simulated
server."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest import approx

from llama_load.analysis.figures.rates import peak_in_flight
from llama_load.lab.search.capacity_answer import Answer, sentence
from llama_load.lab.search.closed import search_users
from llama_load.lab.search.open_loop import LATENCY, search_rate
from llama_load.lab.search.search_probe import (
    Capacity,
    Goal,
    Probe,
    ProbePlan,
    ProbeResult,
    load_text,
)
from llama_load.lab.search.state import SearchSettings
from llama_load.loadgen.options.objectives import parse_objectives
from llama_load.run_folder import load_run
from tests.conftest import Simulated, environment, run_to_the_end

TTFT = parse_objectives(["ttft:2000"])


def scripted(
    share: Callable[[ProbePlan, int], float],
    fault: Callable[[ProbePlan, int], str] = lambda _plan, _number: "",
) -> Probe:
    """Probes with this share of good requests, in random places; both depend on the plan and on the
    number of the probe, from 0."""
    numbers, draw = itertools.count(), np.random.default_rng(1)

    def probe(plan: ProbePlan) -> ProbeResult:
        number = next(numbers)
        good = draw.random(plan.requests) < share(plan, number)
        return ProbeResult(
            plan.level,
            good,
            plan.requests,
            fault(plan, number),
            figures={LATENCY: 1000.0},
        )

    return probe


def said(found: Capacity, vary: str = "concurrency") -> str:
    return sentence(Answer(SearchSettings(vary, "", (), TTFT), found))


def test_a_server_that_fails_at_many_users_is_no_capacity() -> None:
    found = search_users(
        scripted(
            lambda _p, _n: 1.0,
            lambda plan, _n: "requests failed" if plan.level >= 23 else "",
        ),
        Goal(),
    )
    assert (found.value, found.high) == (22, None)
    assert (
        said(found)
        == "at least 22 users within TTFT 2 s for 90 % of requests: requests failed"
    )


def test_a_probe_that_was_cut_by_chance_is_sent_again() -> None:
    """Each fifth probe is cut: the answer is that of the others."""
    found = search_users(
        scripted(
            lambda plan, _n: 1.0 if plan.level <= 20 else 0.5,
            lambda _p, n: "cut" if n % 5 == 2 else "",
        ),
        Goal(),
    )
    assert (found.value, found.low, found.high) == (20, 19, 21)
    assert sum(not each.counts for each in found.probes) >= 2


def test_a_first_probe_on_a_cold_server_is_not_the_capacity() -> None:
    """The first probe, with one user, misses; 20 users are served."""
    found = search_users(
        scripted(lambda plan, n: 1.0 if n and plan.level <= 20 else 0.5), Goal()
    )
    assert found.value is not None and found.low is not None and found.high is not None
    assert 18 <= found.value <= 20
    assert found.low <= 20 <= found.high


def test_a_capacity_that_moves_in_the_middle_is_noticed() -> None:
    """20 users at first, 10 after the eighth probe."""
    found = search_users(
        scripted(lambda plan, n: 0.99 if plan.level <= (20 if n < 8 else 10) else 0.4),
        Goal(),
    )
    assert any("the server changed during the search" in note for note in found.notes)


def test_a_server_that_becomes_slower_with_every_probe_is_noticed() -> None:
    found = search_users(
        scripted(
            lambda plan, n: (
                max(0.0, 1.0 - 0.06 * max(0, n - 3)) if plan.level <= 30 else 0.2
            )
        ),
        Goal(),
    )
    assert any("the server changed during the search" in note for note in found.notes)


def test_objectives_that_are_met_nowhere_or_everywhere() -> None:
    nowhere = search_users(scripted(lambda _p, _n: 0.2), Goal())
    assert (nowhere.value, nowhere.high) == (0, 1)
    everywhere = search_users(scripted(lambda _p, _n: 1.0), Goal(most_users=64))
    assert (everywhere.value, everywhere.high) == (64, None)
    assert said(everywhere).endswith(": 64 users were the most that the search may try")
    rate = search_rate(
        scripted(lambda _p, _n: 0.0), scripted(lambda _p, _n: 0.0), Goal()
    )
    assert rate.value is None
    assert said(rate, "rate").startswith("no capacity found")
    always = search_rate(
        scripted(lambda _p, _n: 1.0), scripted(lambda _p, _n: 1.0), Goal(most_users=8)
    )
    assert always.high is None
    assert said(always, "rate").startswith("at least ")


def test_a_rate_below_one_per_second() -> None:
    """Misses are exp(12 (rate / 0.03 - 1)) / 10: a tenth at 0.03/s. One user gets 0.04/s."""

    def share(plan: ProbePlan, _number: int) -> float:
        return 1 - min(1.0, float(np.exp(12 * (plan.level / 0.03 - 1))) / 10)

    def ladder(plan: ProbePlan) -> ProbeResult:
        good = np.full(plan.requests, plan.level <= 1)
        return ProbeResult(
            plan.level, good, plan.requests, figures={LATENCY: 25_000.0 * plan.level}
        )

    found = search_rate(scripted(share), ladder, Goal())
    assert found.value == approx(0.03, rel=0.02)
    assert (
        found.low is not None
        and found.high is not None
        and found.low <= 0.03 <= found.high
    )
    assert said(found, "rate").startswith("0.0301 requests/s (0.0298 to 0.0305) within")


def test_loads_are_shown_as_people_write_them() -> None:
    assert [
        load_text(1, "users"),
        load_text(4096, "users"),
        load_text(32.6228, "requests/s"),
    ] == ["1 user", "4096 users", "32.6 requests/s"]


def test_a_share_of_exactly_nine_tenths_meets_the_goal() -> None:
    """90 of 100, at every level up to 12: the bound is no miss."""

    def probe(plan: ProbePlan) -> ProbeResult:
        good = (
            np.arange(plan.requests) % 10 != 9
            if plan.level <= 12
            else np.zeros(plan.requests, dtype=np.bool_)
        )
        return ProbeResult(plan.level, good, plan.requests)

    assert search_users(probe, Goal()).value == 12


def search_command(url: str, *more: str) -> list[str]:
    """4 slots, answers of 0.1 s: with 8 users a request waits for 0.1 s, with 9 for 0.125 s."""
    command = [
        sys.executable,
        "-m",
        "llama_load.cli.main",
        "search",
        "--serve",
        url,
        "--goodput",
        "ttft:163",
        "--out",
        "s",
    ]
    return [
        *command,
        "--max-users",
        "16",
        "--",
        "-f",
        "synthetic",
        "--input-len",
        "8",
        "--output-len",
        "11",
        *more,
    ]


SLOTS = ("--slots", "4", "--first-token-ms", "50", "--interval-ms", "5")


def document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_a_search_in_a_swarm_of_three_workers(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Every level is exact, every record arrives, and the answer is that of the server's slots.
    Catches a level that workers share otherwise than a search asks for."""
    server = simulate(*SLOTS)
    command = search_command(server.url, "--processes", "3")
    command[command.index("--max-users") : command.index("--max-users")] = [
        "--max-requests",
        "600",
    ]
    done = run_to_the_end(command, cwd=tmp_path, env=environment(), timeout_s=280)
    assert done.returncode == 0, done.stderr + done.stdout
    found = document(tmp_path / "s" / "search.json")
    assert 7 <= found["capacity"] <= 9, done.stdout
    for folder in sorted((tmp_path / "s" / "runs").iterdir()):
        if not folder.is_dir():
            continue
        run = load_run(folder)
        assert len(run.manifest.workers) == 3
        users = run.manifest.users
        assert peak_in_flight(run.records) <= users
        if run.manifest.ended_below is None:
            assert sorted(
                run.records.measured().numbers("prompt_index").tolist()
            ) == list(range(run.manifest.num_prompts or 0))


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_a_search_that_was_killed_continues(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """SIGKILL within the third probe: the second start reads two probes, sends the third again, and
    finds the same server's capacity. Catches state that a killed search had not written when it was
    killed."""
    server = simulate(*SLOTS)
    state = tmp_path / "s" / "state.json"
    process = subprocess.Popen(
        search_command(server.url),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        time.sleep(0.1)  # between two looks
        if state.exists() and (document(state)["present"] or {}).get("number") == 3:
            break
    time.sleep(1.0)  # in the middle of the probe
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = document(state)
    assert (before["state"], len(before["probes"])) == ("running", 2)
    done = run_to_the_end(
        search_command(server.url), cwd=tmp_path, env=environment(), timeout_s=280
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "probe 2," not in done.stderr
    assert "probe 3," in done.stderr
    after = document(state)
    assert after["state"] == "ended"
    assert [each["share"] for each in after["probes"][:2]] == [
        each["share"] for each in before["probes"]
    ]
    assert 7 <= document(tmp_path / "s" / "search.json")["capacity"] <= 9
