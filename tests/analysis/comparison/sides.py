"""Made-up sides: runs whose figures scatter as planted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from llama_load.analysis.comparison.side import MeasuredRun, Side
from llama_load.loadgen.options.flags import flag_roles

# 64 requests in 10 s, 100 tokens in and 200 out each.
FIGURES = {
    "request_throughput": 6.4,
    "output_throughput": 1280.0,
    "total_token_throughput": 1920.0,
    "mean_ttft_ms": 100.0,
    "median_ttft_ms": 98.0,
    "p90_ttft_ms": 150.0,
    "mean_tpot_ms": 20.0,
    "median_tpot_ms": 19.5,
    "p90_tpot_ms": 25.0,
    "mean_itl_ms": 20.0,
    "median_itl_ms": 19.0,
    "mean_e2el_ms": 4080.0,
}
COUNTS = {
    "completed": 64,
    "failed": 0,
    "duration": 10.0,
    "total_input_tokens": 6400,
    "total_output_tokens": 12800,
}


def run(name: str = "run", **changed: Any) -> MeasuredRun:
    """One run; `values` replaces figures."""
    values = FIGURES | COUNTS | changed.pop("values", {})
    roles = changed.pop("flag_roles", flag_roles())
    return MeasuredRun(name=name, values=values, flag_roles=roles, **changed)


def side(label: str, *runs: MeasuredRun) -> Side:
    """A side of these runs, or of a plain one."""
    return Side(label, runs or (run(),))


def scattered(
    label: str,
    count: int,
    rng: random.Random,
    spread: float = 0.01,
    slower: float = 1.0,
    drift: float = 0.0,
    rhythm: float = 0.0,
    places: Sequence[int] | None = None,
) -> Side:
    """A side of `count` runs: `slower` times the latencies, scattered between runs by `spread` in
    common (a machine that is faster in one run than in the next) and by half of it in each figure.
    `places`: when each was taken (None: at 0, 1, 2, …); `drift`: added to the logarithm from place
    to place; `rhythm`: added to that of the second of each pair of places."""
    runs = []
    for number, place in enumerate(range(count) if places is None else places):
        common = rng.gauss(0, spread) + drift * place + rhythm * (place % 2)
        values = {}
        for key, value in FIGURES.items():
            factor = slower * 2.718281828 ** (common + rng.gauss(0, spread / 2))
            values[key] = value * factor if key.endswith("_ms") else value / factor
        runs.append(run(f"{label}-{number}", values=values, date=f"{place:04}"))
    return Side(label, runs)
