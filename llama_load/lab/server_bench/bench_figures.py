"""The figures, the plots' data and the database row of llama.cpp's scripts/server-bench.py, from the records of a run.

Its formulas: the time of a run is from its start to the last token; prompt latency is TTFT; the depth of a token is the prompt's
length plus its place in the answer; parallel is LLAMA_ARG_N_PARALLEL. Differences: output tokens are counted by the server, not by
events, and requests that failed are left out of all of them and named.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llama_load.errors import RunError
from llama_load.metrics.rates import token_times_ns
from llama_load.metrics.statistics import describe
from llama_load.observed.records import Records
from llama_load.units import NS_PER_S

SHOWN = (50.0, 90.0, 99.0)  # percentiles; n/a for one that the requests are too few for
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BenchFigures:
    """`prompt_tokens` and `ttft_ms`: of each answered request; `per_second`: output tokens in each second of the run."""

    duration_s: float
    requests: int
    prompt_tokens: Numbers
    ttft_ms: Numbers
    output_tokens: int
    mean_depth: float
    per_second: Numbers
    parallel: int


def bench_figures(measured: Records, parallel: int) -> BenchFigures:
    """The figures of the answered requests. RunError: there is none."""
    ok = measured.ok()
    ok = ok.where(ok.has("first_token_mono_ns") & ok.has("output_tokens") & ok.has("prompt_tokens"))
    if not len(ok):
        raise RunError("no request was answered with tokens, so there is nothing to report; the run's own report says why")
    begun_ns = int(measured.instants("started_mono_ns").min())
    duration_s = (int(ok.instants("last_token_mono_ns").max()) - begun_ns) / NS_PER_S
    prompts, outputs = ok.numbers("prompt_tokens"), ok.numbers("output_tokens")
    depths = outputs * prompts + outputs * (outputs + 1) / 2
    seconds = np.zeros(int(np.ceil(duration_s)) + 1)
    for times_ns, weights in token_times_ns(ok):
        places = np.clip(((times_ns - begun_ns) // NS_PER_S).astype(np.int64), 0, len(seconds) - 1)
        seconds += np.bincount(places, weights, minlength=len(seconds))
    return BenchFigures(
        duration_s,
        len(ok),
        prompts,
        ok.numbers("ttft_ms"),
        int(outputs.sum()),
        float(depths.sum() / outputs.sum()),
        seconds,
        parallel,
    )


def bench_lines(figures: BenchFigures) -> Iterator[str]:
    """The lines of server-bench.py, and percentiles of the prompt latency."""
    per_s = figures.requests / figures.duration_s
    total_prompt, total_ttft_s = figures.prompt_tokens.sum(), figures.ttft_ms.sum() / 1e3
    percentiles = describe(figures.ttft_ms.copy(), SHOWN)
    shown = {p: percentiles.percentile(p) for p in SHOWN}
    speed = figures.output_tokens / figures.duration_s
    rows = {
        "Benchmark duration": f"{figures.duration_s:.2f} s",
        "Request throughput": f"{per_s:.2f} requests/s = {60 * per_s:.2f} requests/min",
        "Total prompt length": f"{total_prompt:.0f} tokens",
        "Average prompt length": f"{figures.prompt_tokens.mean():.2f} tokens",
        "Average prompt latency": f"{figures.ttft_ms.mean():.2f} ms",
        "p50, p90, p99 prompt latency": ", ".join("n/a" if ms is None else f"{ms:.2f} ms" for ms in shown.values()),
        "Average prompt speed": f"{total_prompt / total_ttft_s:.2f} tokens/s",
        "Total generated tokens": f"{figures.output_tokens}",
        "Average generation depth": f"{figures.mean_depth:.2f} tokens",
        "Average total generation speed": f"{speed:.2f} tokens/s",
        "Average generation speed per slot": f"{speed / figures.parallel:.2f} tokens/s / slot",
    }
    for name, value in rows.items():
        yield f"{name + ':':<35}{value}"


def add_to_database(file: Path, row: tuple[str | None, int, str, int, int, int, int, float]) -> None:
    """Add a row to the table `server_bench`, which is made where it is missing. RunError: it is no such database."""
    try:
        with sqlite3.connect(file) as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS server_bench (name TEXT, n_parallel INTEGER, prompt_source TEXT, n_prompts INTEGER, "
                "n_predict INTEGER, n_predict_min INTEGER, seed_offset INTEGER, runtime REAL)"
            )
            database.execute("INSERT INTO server_bench VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    except sqlite3.Error as error:
        raise RunError(f"{file} takes no row: {error}; the run itself is complete") from None
