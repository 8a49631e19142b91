"""Warnings about sides that are not what their labels say; the commands that would make sides
comparable."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from llama_load.analysis.comparison.compare import ONE_RUN, compare
from llama_load.analysis.comparison.gates import NOT_JUDGED, parse_gate
from llama_load.analysis.comparison.llama_bench import (
    BenchTest,
    bench_tests,
    decode_speeds,
    quantization,
)
from llama_load.analysis.comparison.warnings import warnings_about
from tests.analysis.comparison.sides import run, side

FILE = {"model file": "/models/llama.Q8_0.gguf"}


def test_two_quantizations_but_one_served_file() -> None:
    sides = [side("Q8_0", run(setup=FILE)), side("Q4_K_M", run(setup=FILE))]
    (warning,) = warnings_about(sides)
    assert (
        "name different quantizations, but both servers report the model file /models/llama.Q8_0.gguf"
        in warning
    )
    assert not warnings_about(
        [side("Q8_0 -fa", run(setup=FILE)), side("Q8_0", run(setup=FILE))]
    )


def test_one_label_but_two_files() -> None:
    """On one side, and on two whose runs have the same --label."""
    other = {"model file": "/models/other.gguf"}
    (warning,) = warnings_about(
        [side("a", run("1", setup=FILE), run("2", setup=other))]
    )
    assert (
        warning
        == "runs under one label, a, have different model files: /models/llama.Q8_0.gguf, /models/other.gguf"
    )
    (warning,) = warnings_about(
        [side("a", run(label="x", setup=FILE)), side("b", run(label="x", setup=other))]
    )
    assert warning.startswith("runs under one label, x, have different model files")
    assert not warnings_about(
        [side("a", run(label="x", setup=FILE)), side("b", run(label="y", setup=other))]
    )


def test_copies_of_a_run_count_once() -> None:
    """Three copies on each side prove nothing; a run on both sides does not differ from itself."""
    a, b = (
        [
            run(str(copy), identity=name, values={"mean_tpot_ms": tpot})
            for copy in range(3)
        ]
        for name, tpot in (("i", 20.0), ("j", 30.0))
    )
    found = compare([side("a", *a), side("b", *b)], [parse_gate("mean_tpot_ms:+5%")])
    assert (
        found.changes["mean_tpot_ms", 1].outcome == ONE_RUN
        and found.gates[0].outcome == NOT_JUDGED
    )
    assert found.warnings[0] == "a has 2 copies of its runs: each run counts once"
    (reason,) = compare([side("a", a[0]), side("b", a[1])]).reasons
    assert (
        reason.text == "a and b have 1 run in common: a run does not differ from itself"
    )


def test_equal_lengths_by_design_are_no_suspicion() -> None:
    """Answers that end by themselves have the same total by chance only; of fixed lengths
    always."""
    chance = {"total_output_tokens": 12801}
    assert (
        len(
            warnings_about(
                [side("Q8_0", run(values=chance)), side("Q4_0", run(values=chance))]
            )
        )
        == 1
    )
    assert not warnings_about([side("Q8_0"), side("Q4_0")])  # 64 answers of 200
    assert not warnings_about(
        [
            side("Q8_0", run(values=chance, fixed_lengths=True)),
            side("Q4_0", run(values=chance)),
        ]
    )


@pytest.mark.parametrize(
    ("concurrency", "server", "warned"),
    [(1, "llama-server", True), (4, "llama-server", False), (1, "vllm", False)],
)
def test_llama_bench_is_held_against_single_streams_of_llama_cpp(
    concurrency: int, server: str, warned: bool
) -> None:
    """50 tok/s against 80."""
    served = side("Q8_0", run(concurrency=concurrency, setup={"server": server}))
    found = warnings_about(
        [served], [BenchTest(model_type="llama 3B Q8_0", n_gen=128, avg_ts=80.0)]
    )
    assert (
        found
        == [
            "Q8_0 decodes 50.0 tok/s for one user, llama-bench 80.0 (tg128) with llama 3B Q8_0"
        ]
        * warned
    )


def test_decode_speeds_are_of_plain_generation(tmp_path: Path) -> None:
    """Prompts, and generation after a long context, are other tests; of one quantization the
    fastest counts."""
    q4 = {"model_type": "llama 7B Q4_K - Medium"}
    tests = [
        q4 | {"n_prompt": 512, "avg_ts": 958.96},
        q4 | {"n_gen": 128, "avg_ts": 33.28},
        q4 | {"n_gen": 128, "avg_ts": 30.0},
        q4 | {"n_gen": 128, "n_depth": 4096, "avg_ts": 40.0},
    ]
    (tmp_path / "bench.json").write_bytes(msgspec.json.encode(tests))
    read = bench_tests(tmp_path / "bench.json")
    assert [test.name for test in read] == ["pp512", "tg128", "tg128", "tg128 @ d4096"]
    assert {name: test.avg_ts for name, test in decode_speeds(read).items()} == {
        "q4_k_m": 33.28
    }


def test_quantizations_in_labels_files_and_tables_are_spelled_alike() -> None:
    for text in (
        "llama 7B Q4_K - Medium",
        "llama-2-7b.Q4_K_M.gguf",
        "llama.cpp q4_k_m - c=1",
    ):
        assert quantization(text) == "q4_k_m"
    assert (
        quantization("fp16 llama.cpp")
        == quantization("Llama-2-7b-chat-hf.f16.gguf")
        == "f16"
    )
    assert (
        quantization("quantized.w8a8") == "w8a8"
        and quantization("Llama-2-7B-Chat-GPTQ (3.7GB)") == "gptq"
    )
    assert (
        quantization("IQ4_XS") == "iq4_xs"
        and quantization("llama 7B") is None
        and quantization("q4_k_m_x") is None
    )


def test_prompts_that_were_replaced_are_named() -> None:
    warnings = compare(
        [side("a", run()), side("b", run(replaced=100), run(replaced=59))]
    ).warnings
    assert (
        "b: 159 planned prompts did not fit a slot and were replaced by others"
        in warnings
    )


# ---------------------------------------------------------------------- commands


def test_the_commands_that_make_sides_comparable() -> None:
    """Each side's own command with the flags that the reasons ask for, in place of those that it
    had; in the order A B B A. Where nothing was said about caches, every repeat gets prompts that
    no cache has."""
    longer = {"total_output_tokens": 14000}
    command = "locust -f x.py --headless -u 4 --sharegpt-output-len=9 --label old --run-dir here --num-prompts 64 --cache-prompt off"
    sides = [
        side("a", run(command=command)),
        side("b; rm", run(values=longer, concurrency=8)),
    ]
    first = "locust -f x.py --headless -u 4 --num-prompts 64 --cache-prompt off --sharegpt-output-len 200 --ignore-eos"
    second = "locust -f locustfiles/sharegpt_chat.py --headless --host http://SERVER:PORT -u 8 --num-prompts 64"
    second += " --sharegpt-output-len 200 --ignore-eos --bust-prefix-cache"
    assert compare(sides).next_commands == [
        "for i in $(seq 3); do",
        f"  {first} --run-dir runs/side-1/${{i}}a  # a",
        f"  {second} --run-dir runs/side-2/${{i}}a  # b; rm",
        f"  {second} --run-dir runs/side-2/${{i}}b  # b; rm",
        f"  {first} --run-dir runs/side-1/${{i}}b  # a",
        "done",
        "llama-load compare runs/side-1 runs/side-2",
    ]


def test_the_commands_give_both_sides_the_load_of_the_first() -> None:
    sides = [
        side(
            name,
            run(
                load={"concurrency": users},
                endpoint=endpoint,
                command=f"locust -f x.py -u {users} --endpoint {endpoint}",
            ),
        )
        for name, users, endpoint in (("a", "4", "chat"), ("b", "8", "completions"))
    ]
    assert [line.split(" --bust")[0] for line in compare(sides).next_commands[1:3]] == [
        "  locust -f x.py --endpoint chat -u 4"
    ] * 2


def test_nothing_is_to_be_run_again_where_repeats_are_comparable() -> None:
    both = [
        side("a", run(date="1"), run(date="4")),
        side("b", run(date="2"), run(date="3")),
    ]
    assert compare(both).next_commands == [] and compare(both[:1]).next_commands == []


def test_a_foreign_command_is_quoted() -> None:
    """Words of a run folder's command are words of the shell, whatever is in them; another
    program's is not repeated."""
    evil = [
        side("a", run(command="locust -f 'x; rm -rf ~' --headless")),
        side("b", run(command="rm -rf ~")),
    ]
    first, second = compare(evil).next_commands[1:3]
    assert first.startswith(
        "  locust -f 'x; rm -rf ~' --headless"
    ) and second.startswith("  locust -f locustfiles/")
