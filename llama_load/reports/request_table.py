"""The table with a row per request, for small runs of several workloads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from llama_load.metrics.latencies import predict_per_s, prompt_per_s, tokens_per_s
from llama_load.observed.records import Records
from llama_load.reports.layout import in_columns

COLUMNS = ("Task", "Elapse", "Tokens Per Second", "Prompt Per Second", "Predict Per Second", "Prompt", "Predict")
MOST_ROWS = 64

Cells = tuple[str, ...]


def request_table(measured: Records) -> list[Cells]:
    """A row of cells (`COLUMNS`) per successful request, in order of their starts; empty for runs of more than 64 requests. Speeds
    are the server's own where it reports them, else computed from TTFT and E2EL."""
    ok = measured.ok()
    if not 0 < len(ok) <= MOST_ROWS:
        return []
    order = np.argsort(ok.instants("started_mono_ns"), kind="stable")
    names = ok.strings("workload")
    needed = (
        "e2el_ms",
        "ttft_ms",
        "prompt_tokens",
        "output_tokens",
        "server_prompt_tokens",
        "server_prompt_ms",
        "server_predict_ms",
    )
    columns = {name: [None if np.isnan(value) else float(value) for value in ok.numbers(name)] for name in needed}
    rows: list[Cells] = []
    for row in order:
        e2el, ttft, prompt, output, server_prompt, server_prompt_ms, server_predict_ms = (columns[name][row] for name in needed)
        after_first_ms = None if e2el is None or ttft is None else e2el - ttft
        rows.append((
            names[row],
            _cell(None if e2el is None else e2el / 1e3, 1),
            _cell(tokens_per_s(prompt, output, e2el), 1),
            _cell(prompt_per_s(server_prompt, server_prompt_ms) or prompt_per_s(prompt, ttft), 1),
            _cell(predict_per_s(output, server_predict_ms) or predict_per_s(output, after_first_ms), 2),
            _cell(prompt, 0),
            _cell(output, 0),
        ))  # fmt: skip
    return rows


def request_lines(rows: Sequence[Cells]) -> Iterable[str]:
    """The rows for a terminal of 80 columns, with long column names on two lines."""
    heads = (("", "Elapse", "Tokens", "Prompt", "Predict", "", ""), ("Task", "(s)", "per s", "per s", "per s", "Prompt", "Predict"))
    return in_columns([*heads, *rows], gap="  ")


def _cell(value: float | None, decimals: int) -> str:
    return "n/a" if value is None else f"{value:.{decimals}f}"
