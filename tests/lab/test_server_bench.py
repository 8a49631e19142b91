"""llama.cpp's server benchmarks by our runs: its formulas on known records, and whole runs against
the real llama-server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from llama_load.cli.main import main
from llama_load.errors import RunError
from llama_load.lab.server_bench.bench_figures import (
    bench_figures,
    bench_lines,
)
from llama_load.serving.launch import Server
from llama_load.wire.local_ports import free_port
from tests.conftest import environment
from tests.make_records import failed, record, table


def test_the_figures_are_those_of_its_formulas() -> None:
    """Two answers of 3 tokens behind 10: each token's depth is 10 + its place, 12 on average. The
    last token is at 2.14 s."""
    found = bench_figures(
        table(record(0), record(1, start_ms=2000), failed(2, start_ms=100)), parallel=4
    )
    assert (found.requests, found.output_tokens, found.mean_depth) == (2, 6, 12)
    assert found.duration_s == approx(2.14)
    lines = dict(line.split(":", 1) for line in bench_lines(found))
    texts = {name: text.strip() for name, text in lines.items()}
    assert texts["Average prompt latency"] == "100.00 ms"
    assert texts["p50, p90, p99 prompt latency"] == "100.00 ms, n/a, n/a", (
        "two values have a median alone"
    )
    assert texts["Average prompt speed"] == "100.00 tokens/s"  # 20 tokens in 0.2 s
    assert texts["Average total generation speed"] == f"{6 / 2.14:.2f} tokens/s"
    assert (
        texts["Average generation speed per slot"]
        == f"{6 / 2.14 / 4:.2f} tokens/s / slot"
    )


def test_a_run_without_an_answer_has_no_figures() -> None:
    with pytest.raises(RunError, match="nothing to report"):
        bench_figures(table(failed(0)), parallel=4)


@pytest.mark.heavy
def test_a_run_against_the_real_server(
    llama_server: Server, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    """Prompts and answers have lengths within their ranges; figures, verdict and run folder
    are there."""
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LLAMA_ARG_N_PARALLEL", "2")
    words = [
        "--path_server",
        llama_server.url,
        "--prompt_source",
        "rng-20-40",
        "--n_prompts",
        "6",
        "--name",
        "tiny",
    ]
    code = main(
        [
            "server-bench",
            *words,
            "--n_predict",
            "9",
            "--n_predict_min",
            "5",
        ]
    )
    out = capfd.readouterr().out
    assert code == 0 and "Benchmark duration:" in out and "Verdict: " in out, out
    (run,) = (tmp_path / "runs").iterdir()
    rows = _rows(run)
    assert len(rows) == 6 and {5 <= row["output_tokens"] <= 9 for row in rows} == {True}
    assert {20 <= row["prompt_tokens"] <= 40 for row in rows} == {True} and {
        row["endpoint"] for row in rows
    } == {"completions"}
    assert json.loads((run / "run.json").read_text())["users"] == 2


def _rows(run: Path) -> list[dict[str, Any]]:
    from llama_load.run_folder import load_run

    return load_run(run).records.measured().table.to_pylist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prompt_source", "rng-9-8"], "rng-MIN-MAX"),
        (["--prompt_source", "nothing"], "rng-MIN-MAX"),
        (
            ["--n_predict", "4", "--n_predict_min", "5"],
            "--n_predict_min 5 is over --n_predict 4",
        ),
        (["--n_prompts", "0"], "--n_prompts must be 1 or more"),
        (["--path_server", "/no/such/llama-server"], "there is no program"),
    ],
)
def test_wrong_use_is_one_sentence(
    words: list[str], said: str, capsys: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLAMA_ARG_PORT", str(free_port()))
    assert main(["server-bench", *words]) == 2
    assert said in capsys.readouterr().err
