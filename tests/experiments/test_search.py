"""Searches on queues whose capacity is known, probes that must not bound, and a search on a real server."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pytest import approx

from benchmarks.queues import open_capacity
from benchmarks.search import SHARE, search_of_rate, search_of_users, tally
from llama_load.cli import main
from llama_load.errors import UsageError
from llama_load.experiments.search import run
from llama_load.experiments.search.answer import Answer, knee, sentence
from llama_load.experiments.search.closed import UserGoal, search_users
from llama_load.experiments.search.isotonic import crossing, falling
from llama_load.experiments.search.miss_fit import root
from llama_load.experiments.search.objectives import judge, parse_objectives
from llama_load.experiments.search.open_loop import LATENCY, RateGoal, search_rate
from llama_load.experiments.search.probe import BudgetSpentError, Probe, ProbeResult
from llama_load.serving.process import Running
from tests.conftest import environment, run_to_the_end
from tests.make_records import failed, record, table

TTFT = parse_objectives(["ttft:2000 tpot:100"])


def probe_of(share: Callable[[float], float], fault_from: float = math.inf, fault: str = "the client was too slow") -> Probe:
    """Requests of which exactly this share is good, evenly spread; from `fault_from` on the probe cannot be used."""

    def probe(level: float, requests: int) -> ProbeResult:
        good = np.floor(np.arange(1, requests + 1) * share(level)) > np.floor(np.arange(requests) * share(level))
        figures = {"output_throughput": 10 * min(level, 8), "mean_tpot_ms": max(1.0, level / 8) * 10, LATENCY: 100.0}
        by_objective = {TTFT[0].text: share(level), TTFT[1].text: 1.0}
        return ProbeResult(level, good, requests, fault if level >= fault_from else "", by_objective, figures)

    return probe


def test_a_falling_curve_pools_what_rises() -> None:
    assert falling(np.array([1, 0.8, 0.9]), np.ones(3)) == approx([1, 0.85, 0.85])
    assert falling(np.array([0.5, 1.0]), np.array([3.0, 1.0])) == approx([0.625, 0.625])
    assert crossing(np.array([8.0, 10.0]), np.array([1, 0.8]), 0.9) == approx(9.0)
    assert crossing(np.array([8.0, 10.0]), np.array([0.8, 0.7]), 0.9) is None


def test_the_root_of_an_exact_line() -> None:
    """misses / n = exp(-6 + r): a share of 0.1 at r = 6 + ln 0.1 = 3.697."""
    rates = [3.0, 3.2, 3.5, 3.7, 3.9]
    misses = [round(1e6 * math.exp(rate - 6)) for rate in rates]
    found = root(rates, misses, [10**6] * 5, 0.1)
    assert found is not None
    assert found.value == approx(6 + math.log(0.1), abs=1e-4)
    assert found.low < found.value < found.high
    assert root(rates, misses[::-1], [10**6] * 5, 0.1) is None  # fewer misses at higher rates


def test_searches_of_users_hold_the_known_capacity_of_a_queue() -> None:
    """20 users on 8 slots (benchmarks/search.py has more)."""
    row = tally([search_of_users(20, 8, seed) for seed in range(5)], 20, 1.0)
    assert row.covered == 1.0
    assert row.close >= 4 / 5
    assert row.most_sent <= 5000


def test_searches_of_a_rate_hold_the_capacity_by_erlang_c() -> None:
    truth = open_capacity(0.5, 8, SHARE) * 8
    row = tally([search_of_rate(8, 0.5, seed) for seed in range(2)], truth, 0.0)
    assert row.covered >= 1 / 2
    assert row.close >= 1 / 2
    assert row.most_sent <= 25_000


def test_a_bracket_of_bisection_alone_excludes_the_truth() -> None:
    """The planted failure: what two neighbouring probes of a bisection enclose is often not the truth, so the search must refine."""
    found = [search_of_users(20, 8, seed) for seed in range(5)]
    excluded = 0
    for each in found:
        first = [probe for probe in each.probes if len(probe.good) <= 4 * probe.level or len(probe.good) == 100]
        met = max(probe.level for probe in first if probe.share >= SHARE)
        missed = min((probe.level for probe in first if probe.share < SHARE), default=math.inf)
        excluded += not met <= 20 < missed
    assert excluded >= 1


def test_a_probe_that_cannot_be_used_never_bounds() -> None:
    """20 users are served, but the client is too slow from 12 on: at least 11, and no upper end."""
    found = search_users(probe_of(lambda level: 1.0 if level <= 20 else 0.5, fault_from=12), UserGoal())
    assert found.value == 11
    assert found.high is None
    assert "the client was too slow" in found.why
    assert sentence(Answer(found, TTFT, 0.9, "users")).startswith("at least 11 users within TTFT 2 s and TPOT 100 ms")
    rate = search_rate(probe_of(lambda _: 1.0, 0.0), probe_of(lambda _: 1.0, 0.0), RateGoal())
    assert (rate.value, rate.low, rate.high) == (None, None, None)
    assert rate.why == "the client was too slow"


def test_levels_at_which_some_probes_cannot_be_used_are_not_in_the_answer() -> None:
    """At 12 users the client is too slow every second time, and these probes miss: the others are the lucky ones."""
    calls: list[float] = []

    def probe(level: float, requests: int) -> ProbeResult:
        calls.append(level)
        is_slow = level == 12 and calls.count(12) % 2 == 0
        return probe_of(lambda level: 1.0 if level <= 12 and not is_slow else 0.5, fault_from=12 if is_slow else math.inf)(
            level, requests
        )

    found = search_users(probe, UserGoal())
    assert calls.count(12) >= 2
    assert (found.value, found.high) == (11, None)


def test_the_sentence_names_what_binds_and_what_to_do() -> None:
    found = search_users(probe_of(lambda level: 1.0 if level <= 20 else 0.5), UserGoal())
    answer = Answer(found, TTFT, 0.9, "users", slots=4)
    assert sentence(answer) == (
        "20 users (19 to 21) within TTFT 2 s and TPOT 100 ms for 90 % of requests; TTFT binds: the server works on 4 at once and the "
        "others wait; try -np 8"
    )
    best = knee(answer)
    assert best is not None
    assert best.level == 8  # 80 x 100 tok/s; below it 10 a user x 100, beyond it 80 x less
    none = search_users(probe_of(lambda _: 0.0), UserGoal())
    assert sentence(Answer(none, TTFT, 0.9, "users")).startswith("not even one user is served within TTFT 2 s")


def test_a_curve_that_rises_is_named() -> None:
    """16 users do better than 8: a batch size, a cache."""
    shares = {1: 1.0, 2: 1.0, 4: 0.95, 8: 0.91, 16: 1.0}
    found = search_users(probe_of(lambda level: shares.get(level, 0.2 if level > 16 else 0.9)), UserGoal())
    assert any("not monotone at 16 users" in note for note in found.notes)


def test_a_spent_budget_leaves_the_answer_so_far() -> None:
    """The fifth probe is not sent: 8 users met the objectives, 16 were not tried."""
    inner, sent = probe_of(lambda level: 1.0 if level <= 20 else 0.5), []

    def probe(level: float, requests: int) -> ProbeResult:
        if len(sent) == 4:
            raise BudgetSpentError("--max-requests 400 leaves no room")
        sent.append(level)
        return inner(level, requests)

    found = search_users(probe, UserGoal())
    assert (found.value, found.high) == (8, None)
    assert found.why == "--max-requests 400 leaves no room"


def test_objectives_of_a_workload_replace_the_general_ones() -> None:
    """Documents may take 8 s; the chat answer of 3 s is too late, the failed request meets nothing."""
    objectives = parse_objectives(["ttft:2000", "document=ttft:8000"])
    run_records = table(
        record(0, start_ms=0, first_ms=3000),
        record(1, start_ms=10, first_ms=3000, workload="document"),
        failed(2, start_ms=20),
        record(3, start_ms=5, first_ms=100),
    )
    found = judge(run_records, objectives, 0.9)
    assert found.good.tolist() == [False, True, True, False]  # requests 0, 3, 1, 2
    assert found.shares == {"TTFT 2 s": approx(1 / 3), "TTFT of document 8 s": 1.0}
    with pytest.raises(UsageError, match="no request is of the workload 'vision'"):
        judge(run_records, parse_objectives(["vision=ttft:1"]), 0.9)
    with pytest.raises(UsageError, match="two objectives for the same metric"):
        parse_objectives(["ttft:1 ttft:2"])


def test_capacity_needs_exactly_one_server(llama_server: Running) -> None:
    port = int(llama_server.url.rpartition(":")[2])
    assert run.find_server([1, port]) == f"http://127.0.0.1:{port}"
    with pytest.raises(UsageError, match="no server found on the ports 1 of this machine"):
        run.find_server([1])
    with pytest.raises(UsageError, match="there are 2 servers"):
        run.find_server([port, port])


def test_flags_of_the_load_are_the_searchs_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["search", "--serve", "http://127.0.0.1:1", "--goodput", "ttft:1", "--out", str(tmp_path / "s"), "--", "-u", "4"]
    assert main(command) == 2
    assert "--u is set by the search (the probes' own); leave it out" in capsys.readouterr().err


@pytest.mark.heavy
def test_a_search_on_a_real_server_continues_where_it_ended(llama_server: Running, tmp_path: Path) -> None:
    """The budget of 110 requests has room for one user's probe; the second start reads it instead of sending it again."""
    command = [sys.executable, "-m", "llama_load.cli", "search", "--serve", llama_server.url, "--goodput", "ttft:60000 tpot:60000"]
    command += ["--max-requests", "110", "--out", "s", "--", "--max-tokens", "2", "--warmup", "0"]
    done = run_to_the_end(command, cwd=tmp_path, env=environment())
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.startswith(
        "at least 1 user within TTFT 60 s and TPOT 60 s for 90 % of requests: --max-requests 110 leaves no"
    )
    found = json.loads((tmp_path / "s" / "search.json").read_bytes())
    assert (found["capacity"], found["high"], found["requests"]) == (1, None, 101)
    assert found["probes"][0]["judged"] == 100
    assert "**at least 1 user within" in (tmp_path / "s" / "search.md").read_text()
    assert (tmp_path / "s" / "search.html").stat().st_size > 1000
    assert "probe 1" in done.stderr
    again = run_to_the_end(command, cwd=tmp_path, env=environment())
    assert again.stdout.splitlines()[0] == done.stdout.splitlines()[0]
    assert "probe 1" not in again.stderr
