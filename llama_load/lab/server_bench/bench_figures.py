"""The figures of llama.cpp's scripts/server-bench.py.

From the records of a run, by its formulas: the time of a run is from its start to the last token;
prompt latency is TTFT; the depth of a token is the prompt's length plus its place in the answer;
parallel is LLAMA_ARG_N_PARALLEL. Differences: output tokens are counted by the server, not by
events, and requests that failed are left out of all of them and named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.errors import RunError
from llama_load.metrics.statistics import describe
from llama_load.observed.records import Records
from llama_load.units import NS_PER_S

SHOWN = (50.0, 90.0, 99.0)  # percentiles; n/a for one that the requests are too few for
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BenchFigures:
    """The figures of a run.

    `prompt_tokens` and `ttft_ms`: of each answered request.
    """

    duration_s: float
    requests: int
    prompt_tokens: Numbers
    ttft_ms: Numbers
    output_tokens: int
    mean_depth: float
    parallel: int


def bench_figures(measured: Records, parallel: int) -> BenchFigures:
    """The figures of the answered requests. RunError: there is none."""
    ok = measured.ok()
    ok = ok.where(
        ok.has("first_token_mono_ns")
        & ok.has("output_tokens")
        & ok.has("prompt_tokens")
    )
    if not len(ok):
        raise RunError(
            "no request was answered with tokens, so there is nothing to report; "
            "the run's own report says why"
        )

    begun_ns = int(measured.instants("started_mono_ns").min())
    ended_ns = int(ok.instants("last_token_mono_ns").max())
    duration_s = (ended_ns - begun_ns) / NS_PER_S

    prompts = ok.numbers("prompt_tokens")
    outputs = ok.numbers("output_tokens")
    depths = outputs * prompts + outputs * (outputs + 1) / 2

    return BenchFigures(
        duration_s,
        len(ok),
        prompts,
        ok.numbers("ttft_ms"),
        int(outputs.sum()),
        float(depths.sum() / outputs.sum()),
        parallel,
    )


def bench_lines(figures: BenchFigures) -> Iterator[str]:
    """The lines of server-bench.py, and percentiles of the prompt latency."""
    per_s = figures.requests / figures.duration_s
    total_prompt = figures.prompt_tokens.sum()
    total_ttft_s = figures.ttft_ms.sum() / 1e3
    speed = figures.output_tokens / figures.duration_s

    described = describe(figures.ttft_ms.copy(), SHOWN)
    percentiles = []
    for percent in SHOWN:
        ms = described.percentile(percent)
        percentiles.append("n/a" if ms is None else f"{ms:.2f} ms")

    rows = {
        "Benchmark duration": f"{figures.duration_s:.2f} s",
        "Request throughput": f"{per_s:.2f} requests/s = {60 * per_s:.2f} requests/min",
        "Total prompt length": f"{total_prompt:.0f} tokens",
        "Average prompt length": f"{figures.prompt_tokens.mean():.2f} tokens",
        "Average prompt latency": f"{figures.ttft_ms.mean():.2f} ms",
        "p50, p90, p99 prompt latency": ", ".join(percentiles),
        "Average prompt speed": f"{total_prompt / total_ttft_s:.2f} tokens/s",
        "Total generated tokens": f"{figures.output_tokens}",
        "Average generation depth": f"{figures.mean_depth:.2f} tokens",
        "Average total generation speed": f"{speed:.2f} tokens/s",
        "Average generation speed per slot": f"{speed / figures.parallel:.2f} tokens/s / slot",
    }
    for name, value in rows.items():
        title = f"{name}:"
        yield f"{title:<35}{value}"
