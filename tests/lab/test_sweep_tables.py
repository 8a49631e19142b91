"""Figures of sweeps: means and spreads, what is best, what is missing and why, effects of settings,
results of llama-bench."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_load import tables
from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.cell_facts import equal_weights
from llama_load.lab.sweep.cells import expand
from llama_load.lab.sweep.comparison import _terminal_lines
from llama_load.lab.sweep.effects import effects
from llama_load.lab.sweep.estimate import estimate
from llama_load.lab.sweep.folder import DONE, FAILED, Ended
from llama_load.lab.sweep.gguf_facts import gguf_facts
from llama_load.lab.sweep.llama_bench_rows import rows_of_file
from llama_load.lab.sweep.located import Faults, parse_yaml
from llama_load.lab.sweep.plan import Plan
from llama_load.lab.sweep.rates_of_tests import rates_of_test
from llama_load.lab.sweep.read_plan import plan_of
from llama_load.lab.sweep.rows import CLIENT_TIMES, Row, rows_of
from llama_load.lab.sweep.server_spec import argument
from llama_load.lab.sweep.sweep_tables import make_tables
from llama_load.lab.sweep.sweep_words import sweep_words
from llama_load.tables import markdown_lines, titled_lines
from tests.conftest import REPOSITORY
from tests.make_records import record, table


def plan(text: str) -> Plan:
    faults = Faults("plan")
    return plan_of(parse_yaml(text, "plan", faults), {}, faults)


THREADS = plan("""
servers: {a: {llama-server: {model: m.gguf, args: "-t {threads}"}}}
vary: {threads: {values: [4, 8]}}
load: {u: 1}
""")


def row(
    threads: str,
    value: float | None,
    repeat: int = 1,
    key: str = "output_throughput",
    **rest: Any,
) -> Row:
    figures = {key: value, "completed": 4}
    return Row(
        facts={"server": "a", "load": "u=1", "threads": threads},
        repeat=repeat,
        place=repeat,
        figures=figures,
        **rest,
    )


def cells(
    rows: list[Row], columns: str, wanted: Plan = THREADS, **keys: str
) -> list[list[str]]:
    text = f"servers: {{a: {{url: 'http://x'}}}}\nload: {{u: 1}}\nvary: {{threads: {{values: [4, 8]}}}}\ntables: [{{columns: [{columns}]}}]"
    (table,) = make_tables(plan(text), rows)
    lines = [
        [("*" if cell.is_best else "") + cell.text for cell in line]
        for line in table.cells
    ]
    return [*lines, list(table.notes)]


def test_the_memory_of_each_gpu_has_a_column() -> None:
    """One GPU in the first row, two in the second; repeats are means."""
    rows = [row("4", 6478.0, key="vram_by_gpu.0")]
    for repeat, (first, second) in enumerate(((3222.0, 3522.0), (3224.0, 3522.0)), 1):
        rows.append(row("8", first, repeat, key="vram_by_gpu.0"))
        rows[-1].figures = dict(rows[-1].figures) | {"vram_by_gpu.1": second}
    assert cells(rows, "threads, vram_by_gpu") == [
        ["4", "6478", ""],
        ["8", "3223 ± 1", "3522 ± 0"],
        [],
    ]
    none = row(
        "4",
        None,
        key="completed",
        reasons={"vram_by_gpu.0": "telemetry saw no GPU in use"},
    )
    assert cells([none], "vram_by_gpu")[-1] == [
        "NA: a, u=1, threads=4: VRAM (MiB), GPU 0: telemetry saw no GPU in use"
    ]


def test_notes_name_the_stage_and_the_workload_of_their_row() -> None:
    """Of three stages the second is not ranked: its note is not that of the others."""
    text = "servers: {a: {url: 'http://x'}}\nload: {stages: '1,8,16'}\nworkload: [sharegpt_chat, mixed]\ntables: [{columns: [duration]}]"
    facts = {"server": "a", "workload": "mixed", "load": "stages=1,8,16"}
    rows = [
        Row(
            facts | {"concurrency": f"c={users}"},
            1,
            0,
            stage,
            is_stage=True,
            figures={"duration": 1.0},
            is_ranked=users != 8,
            cause="FAILED",
        )
        for stage, users in enumerate((1, 8, 16))
    ]
    (table,) = make_tables(plan(text), rows)
    assert table.notes == ("† a, stages=1,8,16, mixed, c=8: not ranked: FAILED",)
    text = "servers: {a: {url: 'http://x'}}\nload: {u: '{quantization}'}\nvary: {quantization: {values: [1, 2]}}\ntables: [{columns: [duration]}]"
    broken = Row(
        {"server": "a", "load": "u", "quantization": "2"}, 1, 0, reason="it broke"
    )
    (table,) = make_tables(plan(text), [broken])
    # although a quantization is also a fact of each row
    assert table.notes == ("NA: a, u, quantization=2: it broke",)


def test_an_estimate_is_the_mean_and_the_sample_deviation() -> None:
    """1, 2, 3: the deviation is sqrt((1 + 0 + 1) / 2) = 1."""
    assert estimate([1.0, 2.0, 3.0]) == estimate([3.0, 1.0, 2.0])
    found = estimate([1.0, 2.0, 3.0])
    assert found is not None
    assert (found.mean, found.std) == (2.0, 1.0)
    assert (estimate([]), estimate([5.0])) == (None, type(found)(5.0, None))


def test_repeats_are_one_row_with_their_spread_and_the_best_is_marked() -> None:
    rows = [row("4", 10.0), row("4", 12.0, 2), row("8", 20.0), row("8", 20.0, 2)]
    assert cells(rows, "threads, output_throughput, repeats") == [
        ["4", "11.00 ± 1.41", "2"],
        ["8", "*20.00 ± 0.00", "2"],
        [],
    ]


def test_equal_figures_have_no_best() -> None:
    assert cells([row("4", 10.0), row("8", 10.001)], "threads, output_throughput")[
        :2
    ] == [["4", "10.00"], ["8", "10.00"]]


def test_a_failed_cell_is_na_with_its_reason_and_ranks_nobody() -> None:
    rows = [
        row("4", 10.0),
        row(
            "8", None, reason="the server did not start: no such model", is_ranked=False
        ),
    ]
    assert cells(rows, "threads, output_throughput") == [
        ["4", "10.00"],
        ["8", "NA"],
        ["NA: a, u=1, threads=8: the server did not start: no such model"],
    ]


def test_repeats_that_failed_are_named_beside_the_mean_of_the_others() -> None:
    rows = [
        row("4", 10.0),
        row("4", None, 2, reason="the server did not start", is_ranked=False),
        row("8", 9.0),
    ]
    assert cells(rows, "threads, output_throughput") == [
        ["4", "10.00 †"],
        ["8", "9.00"],
        [
            "† a, u=1, threads=4: 1 of 2 runs are not in its figures: the server did not start"
        ],
    ]


def test_a_row_that_measured_the_client_says_so() -> None:
    rows = [
        row("4", 10.0, cause="CLIENT-BOUND: loop lag"),
        row("8", 9.0, cause="VALID"),
    ]
    rows[0].facts["verdict"], rows[1].facts["verdict"] = "CLIENT-BOUND", "VALID"
    assert cells(rows, "threads, output_throughput")[-1] == [
        "a, u=1, threads=4: CLIENT-BOUND: loop lag"
    ]


def test_a_loss_against_a_row_that_may_not_be_ranked_is_marked() -> None:
    rows = [row("4", 10.0, is_ranked=False, cause="FAILED"), row("8", 9.0)]
    column = (
        "{value: output_throughput, where: {threads: 8}, loss-against: {threads: 4}}"
    )
    assert cells(rows, column)[0] == ["10.00 †"]


def test_what_a_server_adds_to_each_token() -> None:
    """Per token 1000 / 200 = 5 ms instead of 1000 / 250 = 4 ms."""
    rows = [row("4", 250.0), row("8", 200.0)]
    column = "{value: output_throughput, name: ms, where: {threads: 8}, cost-against: {threads: 4}}"
    found = cells(rows, column)
    assert found[0] == ["1.000"]
    assert found[-1][0].startswith("a, u=1, threads=4: ms: without an interval")


def test_what_a_server_adds_to_each_token_has_an_interval() -> None:
    """250 and 200 tokens/s, ± 5 each of 2 values: 4 and 5 ms with standard errors of 4 * 0.02 /
    sqrt 2 and 5 * 0.025 / sqrt 2, together 0.105 ms, with 1.70 degrees of freedom by Welch: t is
    5.12, so 1 ± 0.537 ms."""
    half = 5 / 2**0.5
    rows = [
        row("4", 250 - half),
        row("4", 250 + half, 2),
        row("8", 200 - half),
        row("8", 200 + half, 2),
    ]
    column = (
        "{value: output_throughput, where: {threads: 8}, cost-against: {threads: 4}}"
    )
    assert cells(rows, column) == [["1.000 (0.463 to 1.537)"], []]


def test_a_figure_that_is_missing_says_why() -> None:
    rows = [row("4", 10.0, reasons={"vram_mib": "telemetry saw no GPU in use"})]
    assert cells(rows, "threads, vram_mib")[-1] == [
        "NA: a, u=1, threads=4: VRAM (MiB): telemetry saw no GPU in use"
    ]


def test_figures_that_are_missing_for_one_reason_share_a_line() -> None:
    reasons = {
        "vram_mib": "telemetry saw no GPU in use",
        "vram_by_gpu.0": "telemetry saw no GPU in use",
    }
    rows = [row("4", 10.0, reasons=reasons)]
    assert cells(rows, "threads, vram_mib, vram_by_gpu, perplexity")[-1] == [
        "NA: a, u=1, threads=4: VRAM (MiB), VRAM (MiB), GPU 0: telemetry saw no GPU in use",
        "NA: a, u=1, threads=4: PPL: the run has no perplexity",
    ]


def test_a_cell_that_failed_is_named_once_for_all_its_stages() -> None:
    """Three stages without a run, and three of a run that lacks a figure in two of them."""
    rows = []
    for threads, why in (("4", "the server did not start"), ("8", "")):
        for stage, users in enumerate((1, 8, 16)):
            value = 10.0 if users == 1 and not why else None
            rows.append(row(threads, value, stage=stage, is_stage=True, reason=why))
            rows[-1].facts["concurrency"] = f"c={users}"
            rows[-1].reasons = {"output_throughput": "too short"}
    assert cells(rows, "threads, concurrency, output_throughput, duration")[-1] == [
        "NA: a, u=1, threads=4: the server did not start",
        "NA: a, u=1, threads=8, c=8, c=16: Output Tok/s: too short",
        "NA: a, u=1, threads=8, c=1, c=8, c=16: Duration (s): the run has no duration",
    ]


def test_what_all_rows_lack_for_one_reason_is_said_once() -> None:
    reasons = {"vram_mib": "telemetry saw no GPU in use"}
    rows = [row("4", 10.0, reasons=reasons), row("8", 10.0, reasons=reasons)]
    assert cells(rows, "threads, vram_mib")[-1] == [
        "NA: VRAM (MiB): telemetry saw no GPU in use"
    ]


def test_a_perplexity_is_shown_against_that_of_the_full_precision() -> None:
    """8.2 and 8.1 against 8.0 of the same server, whose stages are one row; another server has no
    F16, and one whose vocabulary differs is marked."""
    text = "servers: {a: {url: 'http://x'}}\nload: {u: 1}\nvary: {quant: {values: [F16, Q8, Q4]}}\ntables: [{columns: [quant, perplexity, {value: perplexity, difference-to: {quant: F16}}]}]"

    def scored(quant: str, perplexity: float, bits: float, server: str = "a") -> Row:
        facts = {"server": server, "quant": quant, "model": f"{quant}.gguf"}
        figures = {"perplexity": perplexity, "bits_per_byte": bits}
        return Row(facts, 1, 0, figures=figures)

    rows = [scored("F16", 8.0, 3.0), scored("Q8", 8.1, 3.018), scored("Q4", 8.2, 3.036)]
    rows.append(scored("Q4", 9.0, 3.17, server="b"))
    (made,) = make_tables(plan(text), rows)
    assert made.columns[-1].name == "+PPL"
    texts = [line[-1].text for line in made.cells]
    assert texts == ["+0.0000", "+0.1000", "+0.2000", "NA"]
    assert made.notes == ("NA: b, quant=Q4: +PPL: there is no cell with quant=F16",)

    rows = [rows[0], scored("Q4", 4.0, 5.33)]
    (made,) = make_tables(plan(text), rows)
    assert made.cells[1][-1].text == "-4.0000 †"
    assert any("† +PPL: perplexity is not ranked" in note for note in made.notes)


def test_a_difference_of_repeats_has_its_interval() -> None:
    """10 and 12 against 20 and 20: -9, with a standard error of 1 and one degree of freedom, whose
    t is 12.71."""
    rows = [row("4", 10.0), row("4", 12.0, 2), row("8", 20.0), row("8", 20.0, 2)]
    column = "{value: output_throughput, difference-to: {threads: 8}}"
    found = cells(rows, f"threads, {column}")
    assert found[0] == ["4", "-9.00 (-21.71 to 3.71)"]
    assert found[1] == ["8", "+0.00 (0.00 to 0.00)"]


def test_a_row_with_a_bad_verdict_is_shown_but_not_ranked() -> None:
    bad = row("8", 99.0, is_ranked=False, cause="FAILED 60 %: try -np 10")
    found = cells([row("4", 10.0), bad], "threads, output_throughput")
    assert found == [
        ["4", "10.00"],
        ["8", "99.00 †"],
        ["† a, u=1, threads=8: not ranked: FAILED 60 %: try -np 10"],
    ]


def test_perplexity_does_not_depend_on_the_verdict_of_the_load() -> None:
    rows = [
        row("4", 8.5, key="perplexity", is_ranked=False),
        row("8", 8.6, key="perplexity"),
    ]
    assert cells(rows, "threads, perplexity") == [["4", "*8.5000"], ["8", "8.6000"], []]


def test_rates_from_the_clients_times_are_marked() -> None:
    rows = [
        Row(
            facts={"server": "a", "threads": "4"},
            repeat=1,
            place=0,
            samples={"ts": [10.0]},
            marks={"ts": CLIENT_TIMES},
        )
    ]
    found = cells(rows, "ts")
    assert found[0] == ["10.00 ‡"]
    assert "include HTTP and the network" in found[1][0]

    rows[0].is_ranked = False
    assert cells(rows, "ts")[0] == ["10.00 ‡†"]


def test_markdown_of_foreign_text_cannot_leave_its_cell() -> None:
    rows = [row("4", 10.0, reason="a|b <img> `x`\n# y")]
    text = "\n".join(markdown_lines(make_tables(THREADS, [row("4|<b>", 10.0)])[0]))
    assert "4\\|&lt;b>" in text
    assert all("\n" not in line for line in titled_lines(make_tables(THREADS, rows)[0]))


def test_a_long_note_is_a_line_on_a_terminal() -> None:
    """table.md has its details and what to do."""
    table_of_one = tables.Table("", tables.columns("a"), [["1"]])
    long = "† a: other programs used 94% of the CPUs (python 92%, bash 2%) of the machine of the server; stop them, or add --shared-machine"
    with_notes = replace(
        table_of_one, notes=[long, "NA: PPL: the run has no perplexity"]
    )
    lines = _terminal_lines([with_notes, with_notes], [], {}, sweep_words("en"))
    assert [line for line in lines if line.startswith(("†", "NA"))] == [
        "† a: other programs used 94% of the CPUs of the machine of the server …",
        "NA: PPL: the run has no perplexity",
    ]


def test_wide_characters_keep_columns_aligned() -> None:
    text = "servers: {a: {url: 'http://x'}}\nload: {u: 1}\nlanguage: zh\ntables: [{columns: [server, output_throughput]}]"
    lines = markdown_lines(make_tables(plan(text), [row("4", 10.0)])[0])
    assert lines[0] == "| 服务端 | 每秒生成 Tokens |"
    assert lines[2] == "| a      | 10.00           |"


# ---------------------------------------------------------------------- rates of tests


def test_the_rate_of_a_test_is_the_mean_of_the_requests_rates() -> None:
    """100 tokens in 50 ms and in 200 ms: 2000 and 500 tokens/s, mean 1250; the sums give 200 / 0.25
    s = 800."""
    records = [
        record(n, server_prompt_tokens=100, server_prompt_ms=ms)
        for n, ms in enumerate((50.0, 200.0))
    ]
    rates, is_client = rates_of_test(table(*records), "pp100")
    assert (rates, is_client) == ([2000.0, 500.0], False)
    found = estimate(rates)
    assert found is not None
    assert found.mean == 1250.0


def test_a_prompt_that_came_from_the_cache_has_no_rate() -> None:
    """A second sweep on a server that runs on: 1 of 100 tokens is processed. At a depth what is
    cached before them is meant."""
    cached = {
        "prompt_tokens": 100,
        "server_prompt_tokens": 1,
        "server_prompt_ms": 1.0,
        "ttft_ms": 2.0,
    }
    whole = {"prompt_tokens": 100, "server_prompt_tokens": 99, "server_prompt_ms": 99.0}
    assert rates_of_test(table(record(0, **cached), record(1, **whole)), "pp100") == (
        [1000.0],
        False,
    )
    assert rates_of_test(table(record(**cached)), "pp100")[0] == []
    vllm = {
        "server_prompt_tokens": None,
        "server_prompt_ms": None,
        "prompt_tokens": 500,
        "ttft_ms": 50.0,
    }
    assert rates_of_test(table(record(**vllm, cached_tokens=400)), "pp100") == (
        [2000.0],
        True,
    )
    assert rates_of_test(table(record(**vllm, cached_tokens=496)), "pp100") == (
        [],
        True,
    )


def test_generation_counts_the_steps_between_the_first_token_and_the_last() -> None:
    """17 tokens in 160 ms are 16 steps: 100 tokens/s."""
    records = table(record(output_tokens=17, server_predict_ms=160.0))
    assert rates_of_test(records, "tg16") == ([100.0], False)


def test_without_timings_rates_come_from_ttft_and_tpot() -> None:
    records = table(
        record(
            prompt_tokens=50,
            ttft_ms=100.0,
            tpot_ms=4.0,
            server_prompt_ms=None,
            server_predict_ms=None,
        )
    )
    assert rates_of_test(records, "pp50") == ([500.0], True)
    assert rates_of_test(records, "tg16") == ([250.0], True)


# ---------------------------------------------------------------------- effects


def test_an_effect_is_shown_where_it_exceeds_the_scatter_of_repeats() -> None:
    rows = [row("4", value, n) for n, value in enumerate((100.0, 101.0, 99.0), 1)]
    rows += [row("8", value, n) for n, value in enumerate((120.0, 121.0, 119.0), 1)]
    (effect,) = effects(THREADS, rows)
    assert effect.is_shown
    assert effect.ratio == pytest.approx(1.2, abs=0.001)
    assert effect.text.startswith("threads: +20.0 % Output Tok/s from 4 to 8")


def test_no_effect_is_shown_where_repeats_scatter_more_than_values_differ() -> None:
    """The write-up's threads: 43.4 to 46.2 tokens/s with deviations of 3."""
    rows = [row("4", value, n) for n, value in enumerate((43.0, 47.0, 45.0), 1)]
    rows += [row("8", value, n) for n, value in enumerate((46.0, 44.0, 47.0), 1)]
    (effect,) = effects(THREADS, rows)
    assert not effect.is_shown
    line = "threads: no effect shown; the largest difference is +1.5 % Output Tok/s from 4 to 8 (95 %: -7.2 % to +11.0 %; p = 0.67)"
    line += "; +17.1 % would have been found with 95 %"
    assert effect.text == line
    assert f"\n{line}\n" in (REPOSITORY / "docs" / "sweeps.md").read_text(
        encoding="utf-8"
    )


def test_one_run_each_proves_nothing() -> None:
    (effect,) = effects(THREADS, [row("4", 100.0), row("8", 150.0)])
    assert not effect.is_shown
    assert (
        effect.text
        == "threads: +50.0 % Output Tok/s from 4 to 8, with one run each: not proven; give repeats: 3"
    )


def test_an_effect_counts_the_results_that_it_leaves_out() -> None:
    (effect,) = effects(
        THREADS, [row("4", 100.0), row("4", 900.0, 2, is_ranked=False), row("8", 150.0)]
    )
    assert effect.text.startswith("threads: +50.0 %") and effect.text.endswith(
        "; results that are not ranked and left out: 1"
    )


def test_cells_that_failed_are_in_no_effect() -> None:
    (effect,) = effects(
        THREADS, [row("4", 100.0), row("8", None, reason="it failed", is_ranked=False)]
    )
    assert (
        effect.text
        == "threads: no two of its values have comparable results in Output Tok/s; "
        "results that are not ranked and left out: 1"
    )


def test_identical_set_ups_rarely_show_an_effect() -> None:
    """Scatter of 5 %, 3 repeats, 2 values: at most one in twenty, over 300 draws at most 25 (mean
    15, deviation 3.8)."""
    draw = np.random.default_rng(1)
    shown = 0
    for _ in range(300):
        rows = [
            row(value, float(math.exp(draw.normal(0, 0.05))), n)
            for value in ("4", "8")
            for n in (1, 2, 3)
        ]
        shown += effects(THREADS, rows)[0].is_shown
    assert shown <= 25


# ---------------------------------------------------------------------- llama-bench, GGUF


def test_the_last_value_of_a_flag_on_a_command_line_counts() -> None:
    words = ("-t", "4", "--threads=8", "-ngl")
    assert (
        argument(words, "-t", "--threads"),
        argument(words, "-t"),
        argument(words, "-ngl"),
        argument((), "-t"),
    ) == ("8", "4", "", "")


def test_results_of_llama_bench_become_rows(tmp_path: Path) -> None:
    tests = [
        {"model_filename": "models/m.gguf", "model_type": "llama 1B Q4_K - Medium", "model_size": 667000000, "model_n_params": 1100048384,
         "backends": "CPU", "n_threads": 2, "n_gpu_layers": 99, "n_batch": 2048, "n_prompt": 512, "n_gen": 0, "n_depth": 0,
         "avg_ts": 58.31, "stddev_ts": 1.75, "samples_ts": [57.0, 59.0]},
        {"n_prompt": 0, "n_gen": 128, "n_depth": 4096, "avg_ts": 27.86},
    ]  # fmt: skip
    (tmp_path / "bench.json").write_text(json.dumps(tests))
    first, second = rows_of_file(tmp_path / "bench.json", 7)
    assert (
        first.fact("test"),
        first.fact("size"),
        first.fact("params"),
        first.fact("backend"),
    ) == ("pp512", "636.10 MiB", "1.10 B", "CPU")
    assert (
        first.fact("arg:-ngl"),
        first.fact("threads"),
        first.samples["ts"],
        first.place,
    ) == ("99", "2", [57.0, 59.0], 7)
    assert (second.fact("test"), second.samples["ts"]) == ("tg128 @ d4096", [27.86])


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"avg_ts": "x"}]', '[{"avg_ts": 1, "samples_ts": "y"}]']
)
def test_other_files_are_no_results_of_llama_bench(text: str, tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text(text)
    with pytest.raises(UsageError, match="no output of llama-bench"):
        rows_of_file(tmp_path / "bench.json", 0)


def test_a_model_is_described_from_its_header(tiny_model: Path) -> None:
    from gguf import GGUFReader

    facts = gguf_facts(tiny_model)
    assert facts is not None
    tensors = GGUFReader(tiny_model).tensors
    assert facts.params == sum(int(tensor.n_elements) for tensor in tensors)
    assert facts.tensor_bytes == pytest.approx(
        sum(int(tensor.n_bytes) for tensor in tensors), rel=0.001
    )
    assert facts.model_type == "llama 842K all F32"


def test_two_labels_of_equal_weights_are_named(
    tiny_model: Path, tmp_path: Path
) -> None:
    """A copy; not a model of other weights."""
    data = bytearray(tiny_model.read_bytes())
    (tmp_path / "q4.gguf").write_bytes(data)
    half = len(data) // 2
    data[half:] = bytes(len(data) - half)
    (tmp_path / "q8.gguf").write_bytes(data)

    def said(*names: object) -> list[str]:
        files = ", ".join(map(str, names))
        varied = plan(f"""
servers: {{a: {{llama-server: {{model: m.gguf}}}}}}
vary: {{quant: {{a.model: [{files}], labels: [x, y]}}}}
load: {{u: 1, num-prompts: 8}}
tables: [{{columns: [quant, output_throughput]}}]
""")
        return equal_weights(varied, expand(varied))

    copy = tmp_path / "q4.gguf"
    (sentence,) = said(tiny_model, copy)
    assert sentence == f"quant x and y have equal weights: {tiny_model}, {copy}"
    assert said(tiny_model, tmp_path / "q8.gguf") == []
    assert said(tiny_model, tiny_model) == []  # as the server reports


def test_what_is_no_model_has_no_description(tmp_path: Path, tiny_model: Path) -> None:
    data = tiny_model.read_bytes()
    for number, broken in enumerate(
        (
            b"",
            b"GGUF",
            b"x" * 100,
            data[:100],
            data[:8] + b"\xff" * 60,
            data[:24] + b"\xff" * 200,
        )
    ):
        (tmp_path / f"{number}.gguf").write_bytes(broken)
        assert gguf_facts(tmp_path / f"{number}.gguf") is None
    assert gguf_facts(tmp_path / "none.gguf") is None


def test_a_setting_named_like_a_fact_of_the_model_is_the_setting(
    tiny_model: Path, tmp_path: Path
) -> None:
    faults = Faults("plan")
    text = f"servers: {{a: {{embedded: {{}}}}}}\nvary: {{quantization: {{a.model: ['{tiny_model}'], labels: [4-bit]}}}}\nload: {{stages: '1,8'}}"
    (cell,) = expand(plan_of(parse_yaml(text, "plan", faults), {}, faults))
    rows = rows_of(cell, tmp_path, Ended(cell.key, FAILED, reason="it failed"), 0)
    assert [(each.fact("quantization"), each.fact("concurrency")) for each in rows] == [
        ("4-bit", "c=1"),
        ("4-bit", "c=8"),
    ]
    assert rows[0].fact("file_size") == "3.6MB"


def test_a_setting_may_be_named_model(tmp_path: Path) -> None:
    """Of a server that runs already, too, whose own report has a name of the model."""
    faults = Faults("plan")
    text = "servers: {a: {url: 'http://x'}}\nvary: {model: {a.url: ['http://a', 'http://b'], labels: [small, large]}}\nload: {u: 1}"
    (cell, _) = expand(plan_of(parse_yaml(text, "plan", faults), {}, faults))
    summary = {"model_id": "m.gguf", "completed": 1, "failed": 0}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "run.json").write_text("{}")
    (made,) = rows_of(cell, tmp_path, Ended(cell.key, DONE), 0)
    assert (made.fact("model"), made.figures["completed"]) == ("small", 1)


def test_gpus_that_telemetry_did_not_see_are_named(tmp_path: Path) -> None:
    """The plan's CUDA_VISIBLE_DEVICES alone shows no GPU."""
    text = "servers: {a: {vllm: {model: m, env: {CUDA_VISIBLE_DEVICES: '0,1'}}}}\nload: {u: 1}"
    (cell,) = expand(plan(text))
    (tmp_path / "run.json").write_text("{}")
    for by_gpu, expected in (([], "2 (not seen)"), ([{"vram_peak_mib": 1.0}] * 2, "2")):
        telemetry = {"server_cpu_cores": 1.0, "by_gpu": by_gpu}
        summary = {"completed": 1, "llama_load": {"telemetry": telemetry}}
        (tmp_path / "summary.json").write_text(json.dumps(summary))
        (made,) = rows_of(cell, tmp_path, Ended(cell.key, DONE), 0)
        assert made.fact("gpus") == expected


def test_a_figure_that_a_check_spoils_is_shown_with_its_mark() -> None:
    """As the run shows it; not where a repeat has a sound one."""
    why = {"output_throughput": "answers were held back"}
    spoiled = row("4", None, spoiled={"output_throughput": 12.0}, reasons=why)
    found = cells([spoiled, row("8", 9.0)], "threads, output_throughput")
    assert found == [
        ["4", "12.00 !"],
        ["8", "9.00"],
        ["!: a, u=1, threads=4: Output Tok/s: answers were held back"],
    ]
    sound = row("4", 10.0, 2)
    found = cells([spoiled, sound], "threads, output_throughput")
    assert found == [["4", "10.00"], []]


def test_rows_that_are_not_ranked_for_one_reason_share_a_note() -> None:
    """Whose numbers are a range; details in brackets are left out."""
    rows = []
    for threads, used in (("4", "55"), ("8", "79")):
        cause = f"CLIENT-BOUND: others used {used} % (python {used} %, cc 3 %)"
        rows.append(row(threads, 10.0, is_ranked=False, cause=cause))
    notes = cells(rows, "threads, output_throughput")[-1]
    assert notes == ["† all rows: not ranked: CLIENT-BOUND: others used 55 to 79 %"]
