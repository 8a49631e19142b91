"""llama.cpp's server benchmarks by our runs: its formulas on known records, and whole runs against the real llama-server."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pytest import approx

from llama_load.cli.main import main
from llama_load.errors import RunError, UsageError
from llama_load.lab.server_bench.bench_figures import add_to_database, bench_figures, bench_lines
from llama_load.lab.server_bench.bench_plots import _steps, draw_plots
from llama_load.lab.server_bench.k6_script import chosen_prompts, k6_lines, k6_settings
from llama_load.serving.launch import Server
from llama_load.wire.local_ports import free_port
from tests.conftest import environment
from tests.make_records import failed, record, table


def test_the_figures_are_those_of_its_formulas() -> None:
    """Two answers of 3 tokens behind 10: each token's depth is 10 + its place, 12 on average. The last token is at 2.14 s."""
    found = bench_figures(table(record(0), record(1, start_ms=2000), failed(2, start_ms=100)), parallel=4)
    assert (found.requests, found.output_tokens, found.mean_depth) == (2, 6, 12)
    assert found.duration_s == approx(2.14)
    assert list(found.per_second) == [3, 0, 3, 0]
    lines = dict(line.split(":", 1) for line in bench_lines(found))
    texts = {name: text.strip() for name, text in lines.items()}
    assert texts["Average prompt latency"] == "100.00 ms"
    assert texts["p50, p90, p99 prompt latency"] == "100.00 ms, n/a, n/a", "two values have a median alone"
    assert texts["Average prompt speed"] == "100.00 tokens/s"  # 20 tokens in 0.2 s
    assert texts["Average total generation speed"] == f"{6 / 2.14:.2f} tokens/s"
    assert texts["Average generation speed per slot"] == f"{6 / 2.14 / 4:.2f} tokens/s / slot"


def test_a_run_without_an_answer_has_no_figures() -> None:
    with pytest.raises(RunError, match="nothing to report"):
        bench_figures(table(failed(0)), parallel=4)


def test_the_plots_show_what_was_measured(tmp_path: Path) -> None:
    """A second with twice the tokens has a bar twice as high."""
    records = [record(number, start_ms=700 * number, prompt_tokens=100 * number + 1) for number in range(1, 20)]
    found = replace(bench_figures(table(*records), 1), per_second=np.array([10.0, 20.0]))
    heights = []
    for file in draw_plots(found, "a title", tmp_path):
        with Image.open(file) as picture:
            blue = np.asarray(picture.convert("RGB"))[:, :, 2].astype(int) - np.asarray(picture.convert("RGB"))[:, :, 0]
        heights.append((blue > 100).sum(axis=0))
    bars = heights[1][heights[1] > 20]
    assert bars.max() == approx(2 * bars.min(), rel=0.02)
    assert (tmp_path / "prompt_time.png").exists()


@pytest.mark.parametrize(("most", "steps"), [(0, [0]), (10, [0, 2, 4, 6, 8, 10]), (1050, [0, 200, 400, 600, 800, 1000])])
def test_ticks_are_round_numbers(most: float, steps: list[float]) -> None:
    assert _steps(most) == approx(steps)


def test_the_database_gets_a_row_each_time(tmp_path: Path) -> None:
    for number in range(2):
        add_to_database(tmp_path / "bench.sqlite", ("q4", 4, "rng-8-16", 8, 4, 2, 0, float(number)))
    with sqlite3.connect(tmp_path / "bench.sqlite") as database:
        assert database.execute("SELECT name, n_parallel, runtime FROM server_bench").fetchall() == [("q4", 4, 0.0), ("q4", 4, 1.0)]
    (tmp_path / "other").write_text("no database, whatever its length may be: " * 20)
    with pytest.raises(RunError, match="takes no row"):
        add_to_database(tmp_path / "other", ("q4", 4, "rng-8-16", 8, 4, 2, 0, 1.0))


def test_a_run_against_the_real_server(llama_server: Server, tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    """Prompts and answers have lengths within their ranges; figures, plots, verdict and run folder are there."""
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LLAMA_ARG_N_PARALLEL", "2")
    words = ["--path_server", llama_server.url, "--prompt_source", "rng-20-40", "--n_prompts", "6", "--name", "tiny"]
    code = main(["server-bench", *words, "--n_predict", "9", "--n_predict_min", "5", "--path_db", "bench.sqlite"])
    out = capfd.readouterr().out
    assert code == 0 and "Benchmark duration:" in out and "Verdict: " in out, out
    (run,) = (tmp_path / "runs").iterdir()
    rows = _rows(run)
    assert len(rows) == 6 and {5 <= row["output_tokens"] <= 9 for row in rows} == {True}
    assert {20 <= row["prompt_tokens"] <= 40 for row in rows} == {True} and {row["endpoint"] for row in rows} == {"completions"}
    assert (tmp_path / "gen_rate.png").exists() and (tmp_path / "bench.sqlite").exists()
    assert json.loads((run / "run.json").read_text())["users"] == 2


def _rows(run: Path) -> list[dict[str, Any]]:
    from llama_load.run_folder import load_run

    return load_run(run).records.measured().table.to_pylist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prompt_source", "rng-9-8"], "rng-MIN-MAX"),
        (["--prompt_source", "nothing"], "rng-MIN-MAX"),
        (["--n_predict", "4", "--n_predict_min", "5"], "--n_predict_min 5 is over --n_predict 4"),
        (["--n_prompts", "0"], "--n_prompts must be 1 or more"),
        (["--path_server", "/no/such/llama-server"], "there is no program"),
        (["--k6"], "there is no data set"),
    ],
)
def test_wrong_use_is_one_sentence(words: list[str], said: str, capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLAMA_ARG_PORT", str(free_port()))
    assert main(["server-bench", *words]) == 2
    assert said in capsys.readouterr().err


# ---------------------------------------------------------------------- the k6 script


def conversations(tmp_path: Path, *pairs: tuple[str, str], first: str = "human") -> Path:
    file = tmp_path / "data.json"
    file.write_text(
        json.dumps([{"conversations": [{"from": first, "value": ask}, {"from": "gpt", "value": answer}]} for ask, answer in pairs])
    )
    return file


def test_the_script_chooses_the_same_conversations(tmp_path: Path) -> None:
    """Words are split at blanks, commas, quotes, dots and question marks: "a, b" are three, with an empty one between."""
    long = "word " * 30
    pairs = [
        ("a, b", "1 2 3 4"),
        ("a, b.", "1 2 3 4"),
        (long, "1 2 3 4"),
        ("1 2 3 4", "too short"),
        ("1 2 3 4", long),
        ("5 6 7 8", "1 2 3 4"),
    ]
    env = {"SERVER_BENCH_DATASET": str(conversations(tmp_path, *pairs)), "SERVER_BENCH_MAX_PROMPT_TOKENS": "20"}
    wide = k6_settings(env | {"SERVER_BENCH_MAX_CONTEXT": "2000"}, "1m", None, 8)
    assert list(chosen_prompts(wide)) == ["a, b.", "1 2 3 4", "5 6 7 8"], "the long prompt is over the limit of prompts alone"
    settings = k6_settings(env | {"SERVER_BENCH_MAX_CONTEXT": "24"}, "1m", None, 8)
    assert list(chosen_prompts(settings)) == ["a, b.", "5 6 7 8"]
    assert list(chosen_prompts(replace(settings, prompts=1))) == ["a, b."]


def test_variables_are_those_of_the_script(tmp_path: Path) -> None:
    env = {
        "SERVER_BENCH_DATASET": str(conversations(tmp_path)),
        "SERVER_BENCH_URL": "http://h:1/v1/",
        "SERVER_BENCH_N_PROMPTS": "7",
    }
    settings = k6_settings(env, "10m", 500, 8)
    assert (settings.url, settings.prompts, settings.model, settings.max_tokens) == ("http://h:1", 7, "my-model", 512)
    with pytest.raises(UsageError, match="SERVER_BENCH_N_PROMPTS must be a whole number"):
        k6_settings(env | {"SERVER_BENCH_N_PROMPTS": "many"}, "10m", None, 8)


def test_the_metrics_are_those_of_the_script() -> None:
    """13 tokens in 0.14 s are 92.9 a second; one of two answers was cut, and one request of three failed."""
    measured = table(record(0), record(1, start_ms=500, finish_reason="stop"), failed(2, start_ms=100))
    lines = {line.split(" ")[0]: line.partition(": ")[2] for line in k6_lines(measured)}
    assert lines["llamacpp_tokens_second"].startswith("avg=92.8571 ")
    assert lines["llamacpp_completion_tokens_total_counter"] == "6" and lines["llamacpp_prompt_tokens_total_counter"] == "20"
    assert lines["llamacpp_completions_truncated_rate"] == lines["llamacpp_completions_stop_rate"] == "50.00%"
    assert lines["success"].endswith("2 of 3")


def test_the_k6_script_against_the_real_server(llama_server: Server, tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    data = conversations(tmp_path, ("what is a word here", "it is a word"), ("and what is this here", "it is this word"))
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    for name, value in {"DATASET": str(data), "URL": f"{llama_server.url}/v1", "MODEL_ALIAS": "tiny", "MAX_TOKENS": "4"}.items():
        monkeypatch.setenv(f"SERVER_BENCH_{name}", value)
    code = main(["server-bench", "--k6", "--iterations", "4", "--vus", "2", "--duration", "1m"])
    out = capfd.readouterr().out
    # Answers of a random model end with their length, which the script's threshold forbids.
    assert code == 1 and "llamacpp_tokens_second" in out and "script's threshold" in out, out
    (run,) = (tmp_path / "runs").iterdir()
    assert {row["model"] for row in _rows(run)} == {"tiny"} and len(_rows(run)) == 4
