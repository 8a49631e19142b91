"""Searches on queues whose capacity is known, probes that must not bound, and a search on a real
server."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest import approx

from benchmarks.queues import open_capacity
from benchmarks.search import SHARE, search_of_rate, search_of_users, tally
from llama_load.analysis.results.run_summary import summary_of
from llama_load.cli import found_server
from llama_load.cli.main import main
from llama_load.ground.errors import UsageError
from llama_load.lab.search import run_search
from llama_load.lab.search.capacity_answer import Answer, knee, sentence
from llama_load.lab.search.closed import search_users
from llama_load.lab.search.isotonic import crossing, falling
from llama_load.lab.search.miss_fit import root
from llama_load.lab.search.open_loop import LATENCY, search_rate
from llama_load.lab.search.real_probe import RealProbes, cause_of
from llama_load.lab.search.report import as_json, write_search
from llama_load.lab.search.run_search import plan_for
from llama_load.lab.search.search_probe import (
    BudgetSpentError,
    Capacity,
    Goal,
    Probe,
    ProbePlan,
    ProbeResult,
)
from llama_load.lab.search.state import Budget, Present, SearchSettings, SearchState
from llama_load.lab.sweep.cells import expand
from llama_load.lab.sweep.folder import open_folder
from llama_load.lab.sweep.rows import Row, _add_search
from llama_load.lab.sweep.sweep_tables import make_tables
from llama_load.loadgen.options.objectives import judge, parse_objectives
from llama_load.loadgen.options.server_keys import KEYS_FOR
from llama_load.servers.serving.launch import Server
from tests.analysis.comparison.test_sources import write_run
from tests.conftest import REPOSITORY, environment, run_to_the_end
from tests.lab.test_sweep_tables import plan
from tests.make_records import failed, record, table
from tests.schemas import check_folder

SEARCHED = SearchSettings(
    "concurrency", "", (), parse_objectives(["ttft:2000 tpot:100"])
)


def probe_of(
    share: Callable[[float], float],
    fault_from: float = math.inf,
    fault: str = "the client was too slow",
) -> Probe:
    """Requests of which exactly this share is good, evenly spread; from `fault_from` on the probe
    cannot be used."""

    def probe(plan: ProbePlan) -> ProbeResult:
        level, requests = plan.level, plan.requests
        good = np.floor(np.arange(1, requests + 1) * share(level)) > np.floor(
            np.arange(requests) * share(level)
        )
        figures = {
            "output_throughput": 10 * min(level, 8),
            "mean_tpot_ms": max(1.0, level / 8) * 10,
            LATENCY: 100.0,
        }
        by_objective = {
            name: share(level) if name.startswith("TTFT") else 1.0
            for name in SEARCHED.goals
        }
        return ProbeResult(
            level,
            good,
            requests,
            fault if level >= fault_from else "",
            by_objective,
            figures,
        )

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
    assert (
        root(rates, misses[::-1], [10**6] * 5, 0.1) is None
    )  # fewer misses at higher rates


def test_searches_of_users_hold_the_known_capacity_of_a_queue() -> None:
    """20 users on 8 slots (benchmarks/search.py has more)."""
    row = tally([search_of_users(20, 8, seed) for seed in range(5)], 20, 1.0)
    assert row.covered == 1.0
    assert row.close >= 4 / 5
    assert row.most_sent <= 5000


def test_searches_with_two_kinds_of_prompts_are_as_close_as_documented() -> None:
    """15 % of the requests take eleven times as long: the answers are within 25 %, and fewer are
    close than with equal requests."""
    found = [search_of_users(20, 8, seed, is_bimodal=True) for seed in range(12)]
    row = tally(found, 20, 1.0)
    assert row.covered >= 8 / 12 and 4 / 12 <= row.close < 1.0
    assert all(each.value is not None and 15 <= each.value <= 25 for each in found)
    text = (REPOSITORY / "benchmarks" / "searches.md").read_text(encoding="utf-8")
    assert "| users, 8 slots, two kinds of prompts | 20 users | 92 % | 72 % |" in text


def test_searches_of_a_rate_hold_the_capacity_by_erlang_c() -> None:
    truth = open_capacity(0.5, 8, SHARE) * 8
    row = tally([search_of_rate(8, 0.5, seed) for seed in range(2)], truth, 0.0)
    assert row.covered >= 1 / 2
    assert row.close >= 1 / 2
    assert row.most_sent <= 25_000


def test_a_bracket_of_bisection_alone_excludes_the_truth() -> None:
    """The planted failure: what two neighbouring probes of a bisection enclose is often not the
    truth, so the search must refine."""
    found = [search_of_users(20, 8, seed) for seed in range(5)]
    excluded = 0
    for each in found:
        first = [
            probe
            for probe in each.probes
            if len(probe.good) <= 4 * probe.level or len(probe.good) == 100
        ]
        met = max(probe.level for probe in first if probe.share >= SHARE)
        missed = min(
            (probe.level for probe in first if probe.share < SHARE), default=math.inf
        )
        excluded += not met <= 20 < missed
    assert excluded >= 1


def test_a_probe_that_cannot_be_used_never_bounds() -> None:
    """20 users are served, but the client is too slow from 12 on: at least 11, and no upper end."""
    found = search_users(
        probe_of(lambda level: 1.0 if level <= 20 else 0.5, fault_from=12), Goal()
    )
    assert found.value == 11
    assert found.high is None
    assert "the client was too slow" in found.why
    assert sentence(Answer(SEARCHED, found)).startswith(
        "at least 11 users within TTFT 2 s and TPOT 100 ms"
    )
    rate = search_rate(
        probe_of(lambda _: 1.0, 0.0), probe_of(lambda _: 1.0, 0.0), Goal()
    )
    assert (rate.value, rate.low, rate.high) == (None, None, None)
    assert rate.why == "the client was too slow"


def test_levels_at_which_some_probes_cannot_be_used_are_not_in_the_answer() -> None:
    """At 12 users the client is too slow in two of three probes, which miss: the others are the
    lucky ones."""
    calls: list[float] = []

    def probe(plan: ProbePlan) -> ProbeResult:
        calls.append(plan.level)
        is_slow = plan.level == 12 and calls.count(12) % 3 != 1
        return probe_of(
            lambda level: 1.0 if level <= 12 and not is_slow else 0.5,
            fault_from=12 if is_slow else math.inf,
        )(plan)

    found = search_users(probe, Goal())
    assert calls.count(12) >= 3
    assert (found.value, found.high) == (11, None)


def test_the_sentence_names_what_binds_and_what_to_do() -> None:
    found = search_users(probe_of(lambda level: 1.0 if level <= 20 else 0.5), Goal())
    answer = Answer(SEARCHED, found, slots=4)
    assert sentence(answer) == (
        "20 users (19 to 21) within TTFT 2 s and TPOT 100 ms for 90 % of requests; TTFT binds: the server works on 4 at once and the "
        "others wait; try -np 8"
    )
    best = knee(answer)
    assert best is not None
    assert (
        best.level == 8
    )  # 80 x 100 tok/s; below it 10 a user x 100, beyond it 80 x less
    none = search_users(probe_of(lambda _: 0.0), Goal())
    assert sentence(Answer(SEARCHED, none)).startswith(
        "not even one user is served within TTFT 2 s"
    )


def test_a_probe_that_compare_would_refuse_keeps_the_answer_from_a_rank(
    tmp_path: Path,
) -> None:
    """It counts, since it was measured, but the answer says that it is not comparable. A client
    that was too slow makes a lower bound, which is right as such."""
    folder = write_run(tmp_path / "run", *(record(index) for index in range(3)))
    summary = json.loads((folder / "summary.json").read_bytes())
    probed, _ = plan_for(replace(SEARCHED, serve="http://127.0.0.1:1"))
    sweep = open_folder(tmp_path / "search", expand(probed), b"", "0")
    capacity = search_users(probe_of(lambda level: 1.0 if level <= 20 else 0.5), Goal())

    for word, expected in (
        ("VALID", []),
        ("NOT COMPARABLE", ["8 users: NOT COMPARABLE: cached"]),
        ("CLIENT-BOUND", []),
    ):
        verdict = {"word": word, "words": [word], "checks": []}
        verdict["headline"] = f"{word}: cached"
        summary["llama_load"]["verdict"] |= verdict
        (folder / "summary.json").write_text(json.dumps(summary))
        probes = RealProbes(SEARCHED, probed, sweep, None, None)  # type: ignore[arg-type]
        found = probes._read(8, "users", folder, most=3, first=0)
        against = list(probes.against)
        assert found.counts and against == expected

        answer = Answer(SEARCHED, capacity, against=against)
        is_named = sentence(answer).endswith("NOT COMPARABLE, see the notes")
        assert is_named is bool(expected)
        lines = " ".join(write_search(answer, tmp_path, "title"))
        for text in expected:
            assert f"not comparable: {text}" in lines
        assert as_json(answer)["not_ranked"] == expected
    sweep.close()


def test_capacities_that_must_not_be_ranked_have_no_best(tmp_path: Path) -> None:
    """By what a search says of itself, and by the lengths of the first probes of two."""
    text = "servers: {a: {url: 'http://x'}}\nvary: {slots: {values: [4, 8]}}\nload: {search: {goodput: 'ttft:9'}}"
    searched = plan(text)

    def shown(**second: Any) -> tuple[list[str], list[bool], list[str]]:
        rows = []
        for place, changed in enumerate(({}, second)):
            given = {"tokens": 640, "against": [], "capacity": 20.0 * (1 + place)}
            folder = tmp_path / str(place)
            write_capacity(folder, **(given | changed))
            row = Row({"server": "a", "slots": str(4 * (1 + place))}, 1, place)
            _add_search(row, folder)
            rows.append(row)
        (found,) = make_tables(searched, rows)
        capacities = [cells[1] for cells in found.cells]
        texts = [cell.text for cell in capacities]
        return texts, [cell.is_best for cell in capacities], list(found.notes)

    assert shown() == (["20.00", "40.00"], [False, True], [])
    texts, best, notes = shown(against=["8 users: NOT COMPARABLE: cached"])
    assert (texts, best) == (["20.00", "40.00 †"], [False, False])
    assert notes == ["† a, slots=8: not ranked: 8 users: NOT COMPARABLE: cached"]
    texts, best, notes = shown(tokens=320)
    assert (texts, best) == (["20.00", "40.00"], [False, False])
    assert "prompts of 10 and 5 tokens in the mean" in notes[0]


def write_capacity(
    folder: Path, *, tokens: int, against: list[str], capacity: float
) -> None:
    """A search whose first probe had 64 requests of these prompt tokens together."""
    run = folder / "runs" / "1"
    run.mkdir(parents=True, exist_ok=True)
    figures = {"duration": capacity, "completed": 64, "total_output_tokens": 640}
    figures |= {"request_throughput": 64.0}
    (run / "summary.json").write_text(
        json.dumps(figures | {"total_input_tokens": tokens})
    )
    found = {"capacity": capacity, "low": capacity, "high": capacity, "unit": "users"}
    found |= {"not_ranked": against, "probes": [{"run": "runs/1"}], "sentence": "x"}
    (folder / "search.json").write_text(json.dumps(found))


def test_a_curve_that_rises_is_named() -> None:
    """16 users do better than 8: a batch size, a cache."""
    shares = {1: 1.0, 2: 1.0, 4: 0.95, 8: 0.91, 16: 1.0}
    found = search_users(
        probe_of(lambda level: shares.get(level, 0.2 if level > 16 else 0.9)), Goal()
    )
    assert [note.partition(":")[0] for note in found.notes if "monotone" in note] == [
        "not monotone at 16 users"
    ]


def test_the_cause_is_that_of_the_word_that_makes_a_probe_useless() -> None:
    """NOT COMPARABLE is graver, and its text is not why the client was too slow."""
    checks = [
        {
            "name": "unanswered_ratio",
            "ok": False,
            "text": "45 of 104 arrivals were not sent",
        },
        {"name": "loop_lag_p99_ms", "ok": True, "text": "a lag of 1 ms"},
        {"name": "late_p99_ms", "ok": False, "text": "requests were late by 90 ms"},
    ]
    verdict = {
        "words": ["NOT COMPARABLE", "CLIENT-BOUND"],
        "headline": "NOT COMPARABLE: 45 of 104",
        "checks": checks,
    }
    assert (
        cause_of(summary_of({"llama_load": {"verdict": verdict}}), "CLIENT-BOUND")
        == "requests were late by 90 ms"
    )
    assert (
        cause_of(summary_of({"llama_load": {"verdict": verdict}}), "FAILED")
        == "NOT COMPARABLE: 45 of 104"
    )


def test_a_spent_budget_leaves_the_answer_so_far() -> None:
    """The fifth probe is not sent: 8 users met the objectives, 16 were not tried."""
    inner, sent = probe_of(lambda level: 1.0 if level <= 20 else 0.5), []

    def probe(plan: ProbePlan) -> ProbeResult:
        if len(sent) == 4:
            raise BudgetSpentError("--max-requests 400 leaves no room")
        sent.append(plan.level)
        return inner(plan)

    found = search_users(probe, Goal())
    assert (found.value, found.high) == (8, None)
    assert found.why == "--max-requests 400 leaves no room"


def test_objectives_of_a_workload_replace_the_general_ones() -> None:
    """Documents may take 8 s; the chat answer of 3 s is too late, the failed request meets
    nothing."""
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


def test_capacity_needs_exactly_one_server(
    llama_server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = int(llama_server.url.rpartition(":")[2])
    monkeypatch.setenv(KEYS_FOR, "")
    monkeypatch.setattr(found_server, "is_there", lambda: False)
    monkeypatch.setattr(found_server, "USUAL_PORTS", (1, port))
    assert (
        found_server.found_server("llama-load capacity") == f"http://127.0.0.1:{port}"
    )
    for ports, message in (
        ((1,), "no server found on the ports 1 of this machine"),
        ((port, port), "there are 2 servers"),
    ):
        monkeypatch.setattr(found_server, "USUAL_PORTS", ports)
        assert main(["capacity"]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


def test_flags_of_the_load_are_the_searchs_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = [
        "search",
        "--serve",
        "http://127.0.0.1:1",
        "--goodput",
        "ttft:1",
        "--out",
        str(tmp_path / "s"),
        "--",
        "-u",
        "4",
    ]
    assert main(command) == 2
    assert (
        "--u is set by the search (the probes' own); leave it out"
        in capsys.readouterr().err
    )


def test_the_state_of_a_search_names_bounds_probes_and_what_runs(
    tmp_path: Path,
) -> None:
    """A closed ladder's probes bound no rate; 12 users met the objectives the first time and not in
    both probes together."""
    budget = Budget(time_s=60.0)
    state = SearchState(tmp_path, replace(SEARCHED, budget=budget))

    def read() -> dict[str, Any]:
        return json.loads((tmp_path / "state.json").read_bytes())

    assert (read()["state"], read()["low"], read()["high"]) == ("running", None, None)
    state.began(Present(1, "doubling", 8, "users", 108, "runs/probe_1", 1.0))
    assert read()["present"]["level"] == 8
    assert read()["sentence"] == "probe 1, doubling: 8 users"
    for level, share in ((8, 1.0), (16, 0.5), (12, 0.9), (12, 0.8)):
        state.ended(probe_of(lambda _, share=share: share)(ProbePlan(level, 100)), 3.0)
    state.ended(probe_of(lambda _: 1.0, 0.0)(ProbePlan(32, 100)), 4.0)
    assert (read()["low"], read()["high"], read()["present"]) == (8, 12, None)
    assert read()["sentence"] == "32 users: the client was too slow"
    assert [each["level"] for each in read()["probes"]] == [8, 16, 12, 12, 32]
    assert (read()["spent"], read()["limits"]) == (
        {"time_s": 4.0, "requests": 500},
        {"time_s": 60.0, "requests": None},
    )
    state.over("ended", "8 users")
    assert (read()["state"], read()["sentence"]) == ("ended", "8 users")


@pytest.mark.heavy
def test_a_search_on_a_real_server_continues_where_it_ended(
    llama_server: Server, tmp_path: Path
) -> None:
    """The budget of 40 requests has room for one user's probe; the second start reads it instead of
    sending it again. Catches a probe that a second start sends again, with real runs as probes."""
    command = [
        sys.executable,
        "-m",
        "llama_load.cli.main",
        "search",
        "--serve",
        llama_server.url,
        "--goodput",
        "ttft:60000 tpot:60000",
    ]
    command += [
        "--max-requests",
        "40",
        "--out",
        "s",
        "--",
        "--max-tokens",
        "2",
        "--warmup",
        "0",
    ]
    done = run_to_the_end(command, cwd=tmp_path, env=environment())
    assert done.returncode == 0, done.stderr + done.stdout
    assert " ".join(done.stdout.split()).startswith(
        "at least 1 user within TTFT 60 s and TPOT 60 s for 90 % of requests: --max-requests 40 leaves no"
    )
    check_folder(tmp_path / "s")
    found = json.loads((tmp_path / "s" / "search.json").read_bytes())
    assert (found["capacity"], found["high"]) == (1, None)
    assert (
        31 <= found["requests"] <= 33
    )  # a warm-up, 30, and up to two that keep up the load
    state = json.loads((tmp_path / "s" / "state.json").read_bytes())
    assert (state["state"], state["low"], state["sentence"]) == (
        "ended",
        1,
        found["sentence"],
    )
    assert found["probes"][0]["judged"] == 30
    assert "**at least 1 user within" in (tmp_path / "s" / "search.md").read_text()
    assert (tmp_path / "s" / "search.html").stat().st_size > 1000
    assert "probe 1" in done.stderr
    again = run_to_the_end(command, cwd=tmp_path, env=environment())
    assert again.stdout == done.stdout
    assert "probe 1" not in again.stderr


SWEEP = """
servers: {a: {url: "http://127.0.0.1:1"}}
vary: {slots: {values: [4, 8]}}
load: {search: {goodput: "ttft:2000 tpot:100", max-requests: 900}, max-tokens: "{slots}"}
idle-s: 0
"""


def test_a_cell_of_a_sweep_may_be_a_search(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first cell's capacity is known, the second one is interrupted within its search and
    continues in the same folder, where only a lower bound is found, which is not marked as the
    best."""
    searches: list[str] = []

    def capacity(wanted: run_search.SearchSettings, probes: RealProbes) -> Capacity:
        assert (wanted.budget.requests, wanted.budget.time_s, wanted.vary) == (
            900,
            7200,
            "concurrency",
        )
        searches.append("")
        if len(searches) == 2:
            (tmp_path / "s" / "runs").joinpath("probe").touch()
            raise KeyboardInterrupt
        high = 21.0 if len(searches) == 1 else None
        return Capacity(
            20.0 if high else 40.0,
            19.0,
            high,
            [],
            "" if high else "the client was too slow",
        )

    monkeypatch.setattr(run_search, "_capacity", capacity)
    (tmp_path / "plan.yaml").write_text(SWEEP)
    command = ["sweep", str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "s")]
    assert main(command) == 130
    capsys.readouterr()
    assert main(command) == 0
    assert len(searches) == 3
    table = (tmp_path / "s" / "table.md").read_text()
    assert [cell.strip() for cell in table.splitlines()[2].split("|")[1:-1]] == [
        "slots",
        "Capacity",
        "95 % interval",
        "Binds",
    ]
    rows = [
        [cell.strip() for cell in line.split("|")[1:4]]
        for line in table.splitlines()[4:6]
    ]
    assert rows == [
        ["4", "20.00", "19 to 21 users"],
        ["8", "40.00 †", "at least 40 users"],
    ]
    assert (
        "at least 40 users within TTFT 2 s and TPOT 100 ms for 90 % of requests: the client was too slow"
        in table
    )
    assert not list((tmp_path / "s" / "runs").glob("*.unfinished*"))
    states = [
        json.loads(file.read_bytes())["state"]
        for file in sorted((tmp_path / "s" / "runs").glob("*/state.json"))
    ]
    assert states == ["ended", "ended"]


@pytest.mark.parametrize(
    ("load", "fault"),
    [
        (
            '{search: {goodput: "ttft:1"}, u: 4}',
            "load: u is set by the search; leave it out",
        ),
        ('{search: {goodput: "tft:1"}}', "search.goodput: takes METRIC:MILLISECONDS"),
        ("{search: {share: 0.9}}", "load.search: goodput is missing"),
    ],
)
def test_faults_of_a_search_in_a_plan_are_named(
    load: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.yaml").write_text(
        SWEEP.replace(SWEEP.splitlines()[3], f"load: {load}")
    )
    assert (
        main(["sweep", str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "s")]) == 2
    )
    assert fault in capsys.readouterr().err
