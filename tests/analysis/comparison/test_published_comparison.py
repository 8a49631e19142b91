"""A published comparison of vLLM with llama.cpp (Llama 2 7B on one machine), rebuilt from the
results that it quotes.

tests/data/vllm_vs_llama_cpp has them as JSON, with those of llama-bench. Of the llama.cpp runs 36
of 64 requests were answered, and its tables rank them none the less.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from llama_load.analysis.comparison.compare import HEADLINE, Comparison, compare
from llama_load.analysis.comparison.llama_bench import bench_tests
from llama_load.analysis.comparison.sources import read_groups
from llama_load.analysis.reports.comparison.comparison_tables import side_cell
from llama_load.analysis.reports.comparison.comparison_text import comparison_markdown
from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "tests" / "data" / "vllm_vs_llama_cpp"
FP16, W8A8, GPTQ = "Llama-2-7b-chat-hf (FP16 - 13.5GB)", "quantized.w8a8", "GPTQ"
# The tables as published, without bold: duration, req/s, output and total tok/s, mean TTFT, mean
# TPOT; and which sides are partial.
CONCURRENCY = {
    f"{FP16} c=1": "1295.40 0.05 8.61 22.36 121.23 115.88",
    f"{FP16} c=8": "225.80 0.28 49.41 128.28 536.74 135.23",
    f"{FP16} c=16": "155.97 0.41 72.17 186.35 871.62 162.64",
}
QUANTIZED = {
    f"{FP16} c=16": "155.97 0.41 72.17 186.35 871.62 162.64",
    W8A8: "407.27 0.16 28.66 72.38 2213.22 361.97",
    GPTQ: "85.72 0.75 148.91 356.67 787.02 90.31",
}
SINGLE = {
    f"{FP16} c=1": "1295.40 0.05 8.61 22.36 121.23 115.88",
    "fp16 llama.cpp - c=1": "412.23 0.09 12.75 16.00 200.52 76.32",
    "llama.cpp Q8_0 - c=1": "237.27 0.15 24.74 30.38 146.13 39.16",
    "llama.cpp Q4_K_M - c=1": "237.19 0.15 24.75 30.39 145.18 39.09",
}
SIXTEEN = {
    f"{FP16} c=16": "155.97 0.41 72.17 186.35 871.62 162.64",
    "llama.cpp - c=16": "79.95 0.45 66.85 83.60 497.90 175.86",
}
EIGHT_BIT = {
    W8A8: "407.27 0.16 28.66 72.38 2213.22 361.97",
    "llama.cpp Q8_0 - c=16": "35.48 1.01 161.34 199.08 395.97 71.05",
}
FOUR_BIT = {
    GPTQ: "85.72 0.75 148.91 356.67 787.02 90.31",
    "llama.cpp Q4_K_M - c=16": "32.85 1.10 178.68 219.44 381.53 64.94",
}


def rebuilt(labels: Sequence[str]) -> Comparison:
    """The comparison of the runs with these labels, or with labels that end so."""
    (group,) = read_groups([str(file) for file in sorted(FOLDER.glob("*-c*.json"))])
    sides = [
        next(side for side in group.sides if side.label.endswith(label))
        for label in labels
    ]
    return compare(sides, bench=bench_tests(FOLDER / "llama-bench.json"))


def labels_of(table: dict[str, str]) -> list[str]:
    """The labels of the file: vLLM's models have the owner before and size and load after what the
    tables call them."""
    full = {
        W8A8: "RedHatAI/Llama-2-7b-chat-quantized.w8a8 (6.6GB) c=16",
        GPTQ: "TheBloke/Llama-2-7B-Chat-GPTQ (3.7GB)",
    }
    return [full.get(label, label) for label in table]


@pytest.mark.parametrize(
    "table", [CONCURRENCY, QUANTIZED, SINGLE, SIXTEEN, EIGHT_BIT, FOUR_BIT]
)
def test_the_numbers_are_those_of_the_published_tables(table: dict[str, str]) -> None:
    comparison = rebuilt(labels_of(table))
    rows = [
        " ".join(side_cell(comparison, index, key).text for key in HEADLINE)
        for index in range(len(table))
    ]
    assert rows == list(table.values())


def test_other_loads_and_lengths_are_never_bold() -> None:
    """The published tables have the latencies of c=1 and the rates of c=16 bold, and quantizations
    whose answers are 4 and 13 % longer."""
    for table, why in (
        (CONCURRENCY, "had different loads: concurrency 1 and 8"),
        (QUANTIZED, "answers of 176 and 182 tokens"),
    ):
        comparison = rebuilt(labels_of(table))
        assert not any(comparison.best[key] for key in HEADLINE)
        assert any(why in reason.text for reason in comparison.reasons)


@pytest.mark.parametrize("table", [SINGLE, SIXTEEN, EIGHT_BIT, FOUR_BIT])
def test_partial_rows_are_marked_and_never_bold(table: dict[str, str]) -> None:
    """The published tables have 175.86 ms of 36 requests bold beside 162.64 ms of 64."""
    comparison = rebuilt(labels_of(table))
    assert [comparison.is_unreliable(index) for index in range(len(table))] == [
        "llama.cpp" in label for label in table
    ]
    assert not any(comparison.best.values())
    text = comparison_markdown(comparison)
    assert text.count("36 of 64 requests |") == sum(
        "llama.cpp" in label for label in table
    )
    assert "**" not in text.partition("\n\n")[0]


def test_answers_of_different_lengths_are_not_ranked() -> None:
    """GPTQ's answers are 13 % longer than those of FP16. The table is shown, with the command that
    would make it comparable."""
    comparison = rebuilt(labels_of(QUANTIZED))
    assert not any(comparison.best.values()) and not comparison.is_unreliable(2)
    assert any(
        "answers of 176 and 199 tokens in the mean, 13.4% apart" in reason.text
        for reason in comparison.reasons
    )
    assert "--sharegpt-output-len 176 --ignore-eos" in "\n".join(
        comparison.next_commands
    )


def test_a_file_served_twice_is_suspected() -> None:
    """The row of Q4_K_M has the tokens and the speed of Q8_0, and llama-bench is 30 % faster with
    Q4_K_M."""
    by_tokens, by_speed = rebuilt(labels_of(SINGLE)).warnings
    assert by_tokens.startswith(
        "llama.cpp Q8_0 - c=1 and llama.cpp Q4_K_M - c=1 name different quantizations"
    )
    assert (
        "both generated 5870 tokens at one speed (mean TPOT 39.16 and 39.09 ms)"
        in by_tokens
    )
    assert by_speed.startswith(
        "llama.cpp Q4_K_M - c=1 decodes 25.6 tok/s for one user, llama-bench 33.3 (tg128)"
    )
    assert by_speed.endswith("it has 25.2 for llama 7B Q8_0: was that file served?")


def test_other_rows_are_not_suspected() -> None:
    """Q8_0 decodes 25.5 against 25.25 tok/s, FP16 13.1 against 13.93; vLLM is not held against
    llama-bench."""
    assert not rebuilt(
        [label for label in labels_of(SINGLE) if "Q4" not in label]
    ).warnings
    assert (
        not rebuilt(labels_of(SIXTEEN)).warnings
        and not rebuilt(labels_of(FOUR_BIT)).warnings
    )
