"""The table with a row per request, for small runs of several workloads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from llama_load.metrics.latencies import predict_per_s, prompt_per_s, tokens_per_s
from llama_load.observed.records import Records
from llama_load.reports.translations import Translate
from llama_load.tables import LEFT, Cell, Column, Table, figure

COLUMNS = (
    Column("Task", LEFT, lines=("", "Task")),
    Column("Elapse", lines=("Elapse", "(s)")),
    Column("Tokens Per Second", lines=("Tokens", "per s")),
    Column("Prompt Per Second", lines=("Prompt", "per s")),
    Column("Predict Per Second", lines=("Predict", "per s")),
    Column("Prompt", lines=("", "Prompt")),
    Column("Predict", lines=("", "Predict")),
)
MOST_ROWS = 64


def request_table(measured: Records, t: Translate) -> Table | None:
    """The rows of a small run as a table; None for a large one."""
    rows = request_rows(measured)
    return Table(t("Requests"), [replace(column, name=t(column.name)) for column in COLUMNS], rows) if rows else None


def request_rows(measured: Records) -> list[list[Cell]]:
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
    rows: list[list[Cell]] = []
    for row in order:
        e2el, ttft, prompt, output, server_prompt, server_prompt_ms, server_predict_ms = (columns[name][row] for name in needed)
        after_first_ms = None if e2el is None or ttft is None else e2el - ttft
        rows.append([
            Cell(names[row]),
            figure(None if e2el is None else e2el / 1e3, 1),
            figure(tokens_per_s(prompt, output, e2el), 1),
            figure(prompt_per_s(server_prompt, server_prompt_ms) or prompt_per_s(prompt, ttft), 1),
            figure(predict_per_s(output, server_predict_ms) or predict_per_s(output, after_first_ms), 2),
            figure(prompt, 0),
            figure(output, 0),
        ])  # fmt: skip
    return rows
