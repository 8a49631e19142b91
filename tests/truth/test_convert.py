"""`truth convert`: equal work, tested by what a server saw, and refusals with their reasons."""

from __future__ import annotations

import itertools
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from truth.convert import PROGRAMS, convert
from truth.convert.commands import WITHOUT_SEED, work_in
from truth.problem import Problem
from truth.tools import tool_named
from truth.work import Work

CLOSED = Work("http://127.0.0.1:9", 24, 16, 48, streams=4, tokenizer="/t", seed=3)
OPEN = Work(
    "http://127.0.0.1:9",
    60,
    16,
    48,
    rate_rps=20,
    arrival="poisson",
    tokenizer="/t",
    seed=3,
)


@pytest.mark.parametrize("work", [CLOSED, OPEN, replace(OPEN, arrival="constant")])
@pytest.mark.parametrize(
    ("source", "target"), list(itertools.permutations(PROGRAMS, 2))
)
def test_there_and_back_is_the_same_work(
    source: str, target: str, work: Work, tmp_path: Path
) -> None:
    """Every client's command for it, as every other client's, means the same again."""
    command = shlex.join(tool_named(source).commands(work, tmp_path)[0])
    there = convert(command, target, tmp_path)
    name, found = work_in(list(there.commands[0]))
    if {source, target} & set(WITHOUT_SEED):
        found = replace(found, seed=work.seed)
    assert (name, found) == (target, work)
    assert there.differences


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "--max-concurrency 4 --ramp-up-strategy linear",
            "--ramp-up-strategy: the others have no ramp",
        ),
        ("--dataset-name sharegpt", "--dataset-name: data sets are sampled otherwise"),
        ("--random-range-ratio 0.5", "--random-range-ratio: lengths that vary"),
        (
            "--request-rate 5 --burstiness 0.5",
            "only vllm has arrivals of burstiness 0.5",
        ),
        ("--request-rate 5 --max-concurrency 4", "a rate with a limit of concurrency"),
        ("--extra-body '{\"top_k\": 1}'", "the body's top_k is not known to all"),
        (
            "--no-such-option 5 --goodput ttft:5",
            "--no-such-option: no equal is known; --goodput: ",
        ),
        ("--num-prompts many", "a number of the command is none"),
    ],
)
def test_an_option_without_an_equal_is_refused_with_its_reason(
    words: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(Problem) as refusal:
        convert(f"vllm bench serve {words}", "aiperf", tmp_path)
    assert reason in str(refusal.value)


def test_the_defaults_of_vllm_are_part_of_its_work() -> None:
    """1000 requests of 1024 + 128 tokens, all at once, and answers may end early."""
    _, work = work_in(["vllm", "bench", "serve"])
    assert (work.requests, work.prompt_tokens, work.tokens, work.streams) == (
        1000,
        1024,
        128,
        1000,
    )
    assert work.seed == 0 and not work.ignore_eos


def test_two_choices_go_to_those_that_can_ask_for_them(tmp_path: Path) -> None:
    command = "vllm bench serve --max-concurrency 2 --extra-body '{\"n\": 2}'"
    assert "n:2" in convert(command, "aiperf", tmp_path).commands[0]
    with pytest.raises(Problem, match="guidellm sends no n"):
        convert(command, "guidellm", tmp_path)


def test_a_warm_up_goes_to_those_that_have_one(tmp_path: Path) -> None:
    command = "vllm bench serve --max-concurrency 2 --num-warmups 5"
    for target, option in (
        ("aiperf", "--warmup-request-count"),
        ("llama-load", "--warmup"),
    ):
        words = list(convert(command, target, tmp_path).commands[0])
        assert words[words.index(option) + 1] == "5"
        assert work_in(words)[1].warmup == 5
    with pytest.raises(Problem, match="inference-perf has no warm-up by a number"):
        convert(command, "inference-perf", tmp_path)


def test_an_unknown_program_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "truth", "convert", "ab -n 5", "--to", "vllm"],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
        timeout=30,
    )
    assert (
        done.returncode == 2
        and "must begin with one of: vllm bench serve" in done.stderr
    )
