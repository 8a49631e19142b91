"""`llama-load bench`: what its runs ask for, their figures on known records, the users that are
served, and the block, which is read back as it was written."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from llama_load.analysis.comparison.llama_bench import BenchTest
from llama_load.ground.errors import UsageError
from llama_load.lab.bench.bench_block import (
    FIRST_LINE,
    BenchResult,
    block_lines,
    read_block,
)
from llama_load.lab.bench.bench_figures import (
    AloneFigure,
    UsersFigure,
    alone_figure,
    users_figure,
)
from llama_load.lab.bench.bench_runs import (
    LEVELS,
    USERS,
    BenchRun,
    Speed,
    alone_runs,
    chosen_lengths,
    next_users_run,
)
from llama_load.lab.bench.beside import bench_command, decode_sentence
from llama_load.lab.bench.head import Head
from llama_load.lab.bench.posted_comparison import compared_table
from llama_load.lab.bench.served import Objective, Served, served
from llama_load.lab.sweep.mean_interval import MeanInterval, mean_with_interval
from llama_load.lab.sweep.tests_load import GENERATE, PROCESS
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.tables import text_lines
from tests.make_records import record, table

OBJECTIVE = Objective(2, 15)
FAST = Speed(prefill_tok_per_s=10_000, decode_tok_per_s=100, start_s=2)
SLOW = Speed(prefill_tok_per_s=50, decode_tok_per_s=5, start_s=2)


def test_tests_are_named_as_llama_bench_names_them() -> None:
    assert BenchRun(PROCESS, 4096, 2048).name == "pp2048 @ d4096"
    assert BenchRun(GENERATE, 0, 128).name == "tg128"


def test_only_a_depth_is_meant_to_be_cached() -> None:
    at_depth = BenchRun(PROCESS, 4096, 512).flags("completions", 1)
    assert (at_depth["prefix-len"], at_depth["input-len"]) == ([4096], [512])
    assert at_depth["cache-prompt"] == ["on"]
    for run in (BenchRun(PROCESS, 0, 512), BenchRun(USERS, 4096, 64, users=4)):
        flags = run.flags("completions", 1)
        assert flags["cache-prompt"] == ["off"]
        assert "prefix-len" not in flags


def test_lengths_are_scaled_where_the_client_estimates_them() -> None:
    """The server counted 5 tokens where 4 were asked for."""
    flags = BenchRun(PROCESS, 1000, 500).flags("chat", 0.8)
    assert (flags["prefix-len"], flags["input-len"]) == ([800], [400])


def test_slow_servers_get_short_tests_and_deep_ones_are_left_out() -> None:
    """50 tokens/s of prompts: 2048 of them take 41 s, and are sent six times."""
    assert chosen_lengths(FAST, 300) == (2048, 128)
    assert chosen_lengths(SLOW, 300) == (128, 16)
    runs, left_out = alone_runs((0, 4096, 16384), (128, 16), SLOW, 120)
    assert {run.depth for run in runs} == {0}
    assert left_out == [4096, 16384]


def test_the_first_depth_is_tested_however_slow_the_server_is() -> None:
    runs, _ = alone_runs((0, 4096), (128, 16), SLOW, 1)
    assert [run.name for run in runs] == ["pp128", "tg16"]
    assert {run.requests for run in runs} == {3}


def test_the_cheapest_users_come_first_and_leave_time_for_the_others() -> None:
    cells = [(depth, users) for users in LEVELS for depth in (0, 4096)]
    spent = 0.0
    names = []
    while cells:
        run = next_users_run(cells, 64, FAST, 150 - spent)
        assert run is not None, "three rounds of each fit"
        assert run.requests % run.users == 0
        cells.remove((run.depth, run.users))
        names.append(run.name)
        spent += FAST.seconds(run)
    assert names[0] == "1 user at 256"
    assert names[-1] == "8 users at 4096"
    assert spent <= 150


def test_no_run_begins_that_does_not_fit() -> None:
    assert next_users_run([(32768, 8)], 64, SLOW, 60) is None
    run = next_users_run([(0, 1)], 64, FAST, 1000)
    assert run is not None
    assert run.requests == 8, "no more rounds than eight, however much time is left"


def test_estimates_learn_from_the_runs() -> None:
    """A run of 30 s with 20 s of requests where 12.9 s were expected: 10 s are its start."""
    speed = replace(FAST)
    run = BenchRun(GENERATE, 0, 128)
    assert speed.seconds(run) == approx(2 + 6 * 1.29)
    speed.correct(run, 30, 20)
    assert speed.seconds(run) == approx(30)
    assert speed.seconds(BenchRun(GENERATE, 4096, 128)) > 30, "of its kind"


def test_an_interval_is_students() -> None:
    """1, 2, 3: the error of the mean is 1 / sqrt(3), t with 2 degrees of freedom 4.303."""
    found = mean_with_interval([1.0, 2.0, 3.0, float("nan")])
    assert found is not None
    assert found.mean == 2
    assert found.half == approx(4.3027 / 3**0.5, rel=1e-4)
    assert mean_with_interval([7.0]) == MeanInterval(7.0, None)
    assert mean_with_interval([]) is None


def alone(index: int, **changed: Any) -> RequestRecord:
    """A prompt of 4096 cached tokens and 512 others, which took 256 ms."""
    fields: dict[str, Any] = {
        "prompt_tokens": 4608,
        "cached_tokens": 4096,
        "server_prompt_tokens": 512,
        "server_prompt_ms": 256.0,
        "server_predict_ms": 80.0,
    }
    return record(index, start_ms=500 * index, **fields | changed)


AT_DEPTH = BenchRun(PROCESS, 4096, 512)


def test_prompt_processing_is_of_the_tokens_that_were_computed() -> None:
    found = alone_figure(table(*map(alone, range(3))), AT_DEPTH)
    assert found is not None
    assert (found.name, found.rate.mean) == ("pp512 @ d4096", 2000)
    assert not found.is_clients
    assert not found.is_least


def test_a_server_without_a_cache_has_a_test_of_the_whole_prompt() -> None:
    """4608 tokens in 256 ms are 18,000 tokens/s, and no speed behind a depth."""
    records = table(
        *(alone(n, cached_tokens=0, server_prompt_tokens=4608) for n in range(3))
    )
    found = alone_figure(records, AT_DEPTH)
    assert found is not None
    assert (found.name, found.rate.mean) == ("pp4608", 18_000)


def test_unknown_cached_tokens_bound_the_speed_from_below() -> None:
    """No server times, no cached tokens: 512 tokens in a TTFT of 100 ms, or more of them."""
    unknown = {
        "cached_tokens": None,
        "server_prompt_tokens": None,
        "server_prompt_ms": None,
    }
    found = alone_figure(table(*(alone(n, **unknown) for n in range(3))), AT_DEPTH)
    assert found is not None
    assert (found.rate.mean, found.is_least, found.is_clients) == (5120, True, True)


def test_without_a_depth_no_prompt_is_cached_also_where_nobody_says_so() -> None:
    """No depth, no cached tokens reported: the 512 tokens of a prompt in 100 ms."""
    unknown = {
        "prompt_tokens": 512,
        "cached_tokens": None,
        "server_prompt_tokens": None,
        "server_prompt_ms": None,
    }
    records = table(*(alone(n, **unknown) for n in range(3)))
    found = alone_figure(records, BenchRun(PROCESS, 0, 512))
    assert found is not None
    assert (found.rate.mean, found.is_least) == (5120, False)


def test_generation_is_of_the_steps_after_the_first_token() -> None:
    """2 further tokens in the server's 80 ms; without its times, in TPOTs of 20 ms."""
    run = BenchRun(GENERATE, 0, 2)
    found = alone_figure(table(*map(alone, range(3))), run)
    assert found is not None
    assert found.rate.mean == 25
    found = alone_figure(table(alone(0, server_predict_ms=None)), run)
    assert found is not None
    assert (found.rate.mean, found.is_clients) == (50, True)


def test_rounds_of_users_give_medians_and_rates() -> None:
    """Two users, three rounds that end 200 ms apart, 6 tokens in each: 30 tokens/s."""
    rows = []
    for number in range(3):
        for user in range(2):
            rows.append(
                record(
                    2 * number + user,
                    start_ms=200 * number,
                    first_ms=100 + 20 * user,
                    gaps_ms=(50.0 - 10 * user,) * 2,
                )
            )
    found = users_figure(table(*rows), BenchRun(USERS, 0, 3, users=2, requests=6))
    assert found is not None
    assert found.ttft_ms.mean == 110
    assert found.one.mean == approx((20 + 25) / 2)
    assert found.together.mean == approx(30)
    assert len(found.rounds) == 3


def level(users: int, *rounds: tuple[float, float]) -> UsersFigure:
    anything = MeanInterval(1, None)
    return UsersFigure(4096, users, anything, anything, anything, rounds)


GOOD = (500.0, 40.0)
LATE = (2500.0, 40.0)
SLOW_TOKENS = (500.0, 10.0)


def test_users_served_lie_between_levels_met_and_missed_by_every_round() -> None:
    levels = [
        level(1, GOOD, GOOD, GOOD),
        level(2, GOOD, GOOD, GOOD),
        level(4, GOOD, LATE, GOOD),
        level(8, SLOW_TOKENS, LATE, LATE),
    ]
    assert served(levels, OBJECTIVE) == [Served(4096, users=4, least=2, most=7)]
    assert served(levels[:3], OBJECTIVE)[0].text == "4 at 4096 (2 or more)"
    assert served(levels[3:], OBJECTIVE)[0].text == "0 at 4096 (0 to 7)"


def test_served_users_hold_the_truth_where_whole_rounds_scatter() -> None:
    """A true TTFT of 0.4 s for each user, moved by a factor of whole rounds (sigma 0.1 to 0.5):
    five users are served, and the interval holds them in 95 of 100 benches."""
    draw = random.Random(1)
    held = 0
    for number in range(1000):
        sigma = 0.1 + 0.4 * number / 1000
        levels = []
        for users in (1, 2, 4, 8, 16):
            rounds = []
            for _ in range(3):
                rounds.append((400 * users * draw.lognormvariate(0, sigma), 40.0))
            levels.append(level(users, *rounds))
        found = served(levels, OBJECTIVE)[0]
        held += found.least <= 5 and (found.most is None or found.most >= 5)
    assert held >= 950


HEAD = Head("Qwen3-8B · Q4_K_M", "llama-server b11434 · 4 slots", "RTX 4090 24 GiB")


def result(**changed: Any) -> BenchResult:
    fields: dict[str, Any] = {
        "head": HEAD,
        "alone": [
            AloneFigure("pp2048", MeanInterval(1408.4, 39.2), False, False),
            AloneFigure("pp2048 @ d4096", MeanInterval(997, None), True, True),
        ],
        "users": [
            UsersFigure(
                4096,
                4,
                MeanInterval(1250.4, 31),
                MeanInterval(31.25, 0.6),
                MeanInterval(121, 2.5),
                [],
            )
        ],
        "served": [Served(4096, 4, 4, 7), Served(16384, 1, 1, 1)],
        "objective": OBJECTIVE,
        "notes": ["16384: a slot has 8192 tokens"],
        "verdict": "VALID: all 9 runs",
        "date": "2026-11-28",
        "version": "0.1.0",
        "command": "llama-load bench URL",
    }
    return BenchResult(**fields | changed)


def test_the_block_says_what_was_found() -> None:
    text = "\n".join(block_lines(result()))
    assert text.startswith(f"{FIRST_LINE}\n**Qwen3-8B · Q4_K_M**  \n")
    assert "| pp2048 | 1408 ± 39 |" in text
    assert "| 4096 | 4 | 1250 ± 31 | 31.25 ± 0.60 | 121.0 ± 2.5 |" in text
    assert (
        "**Within 2 s and 15 tok/s: 4 users at 4096 (4 to 7), 1 at 16384 tokens of context.**"
        in text
    )


def test_a_block_in_a_comment_is_read_back() -> None:
    text = "\n".join(["Look at this:", *block_lines(result()), "", "Nice!"])
    posted = read_block(text, "comment.md")
    assert posted.rows["pp2048"]["tok/s"] == MeanInterval(1408, 39)
    assert posted.rows["pp2048 @ d4096"]["tok/s"] == MeanInterval(997, None)
    assert posted.rows["4 users at 4096"]["TTFT (ms)"] == MeanInterval(1250, 31)


def test_llama_benchs_own_speed_stands_beside_the_servers() -> None:
    lines = block_lines(result(beside={"pp2048": 1503.2}))
    assert "| test | tok/s | llama-bench |" in lines
    assert "| pp2048 | 1408 ± 39 | 1503 |" in lines
    assert read_block("\n".join(lines), "x").rows["pp2048"]["tok/s"].mean == 1408


def test_a_models_name_cannot_write_markdown() -> None:
    evil = replace(HEAD, model="**x** <img src=y> [a](b) `c` |")
    line = block_lines(result(head=evil))[1]
    for live in ("<img", "[a](b)", " `c`"):
        assert live not in line


@pytest.mark.parametrize("text", ["", "no block", FIRST_LINE.replace("1", "2")])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"no block|version 2"):
        read_block(text, "x.md")


@given(st.text(alphabet="|-±≥ .0123456789abtok/s\n", max_size=300))
def test_any_text_behind_the_first_line_is_read(text: str) -> None:
    posted = read_block(f"{FIRST_LINE}\nmodel\n| test | tok/s |\n{text}", "x")
    assert len(posted.rows) <= 300


def test_two_blocks_differ_where_their_intervals_say_so() -> None:
    """+10 % with half widths of 2 and 2 of 100: 10 ± 2.8; 1 ± 2.8 proves nothing."""
    rows = []
    for mean, other in ((100.0, 2.0), (110.0, 2.0)):
        figures = [
            AloneFigure("pp512", MeanInterval(mean, 2.0), False, False),
            AloneFigure("tg32", MeanInterval(100 + other, 2.0), False, False),
        ]
        lines = block_lines(result(alone=figures, users=[], served=[]))
        rows.append(read_block("\n".join(lines), "x"))
    shown = "\n".join(text_lines(compared_table(*rows)))
    assert "+10.0 % (+7.2 to +12.8)" in shown
    assert "no difference proven" in shown


def test_llama_bench_gets_the_servers_flags(tmp_path: Path, monkeypatch: Any) -> None:
    program = tmp_path / "llama-bench"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    model = tmp_path / "m.gguf"
    model.write_bytes(b"x")
    monkeypatch.setenv("PATH", str(tmp_path))
    server = ServerDescription(
        url="http://127.0.0.1:8080",
        threads=8,
        command="llama-server -m m.gguf -ngl 99 --ubatch-size 1024 -t 4 -np 4",
    )
    tests = [BenchRun(PROCESS, 0, 512), BenchRun(GENERATE, 0, 32)]
    command = bench_command(server, str(model), tests, [0, 4096])
    assert command is not None
    words = " ".join(command[1:])
    assert "-p 512 -n 32 -d 0,4096" in words
    assert words.endswith("-t 8 -ngl 99 -ub 1024")

    far = ServerDescription(url="http://10.0.0.1:8080", command="llama-server")
    assert bench_command(far, str(model), tests, [0]) is None
    assert bench_command(server, str(tmp_path / "none.gguf"), tests, [0]) is None


def test_where_a_token_loses_time_beside_llama_bench() -> None:
    """100 tok/s are 10 ms; the server took 11 and the client saw 12.5."""
    tests = [BenchTest(avg_ts=100.0, n_gen=128)]
    sentence = decode_sentence(tests, 12.5, 11.0)
    assert sentence is not None
    assert (
        "10.00 ms in llama-bench and 12.50 ms here (20 % of the speed lost)" in sentence
    )
    assert "+1.00 ms are the server's own work" in sentence
    assert "+1.50 ms HTTP" in sentence
    assert decode_sentence(tests, 12.5, None) is None
