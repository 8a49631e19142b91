"""The table with a row per request, for small runs of several workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from llama_load.ground.languages import Translate
from llama_load.run_folder.arithmetic.latencies import (
    predict_per_s,
    prompt_per_s,
    tokens_per_s,
)
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.observed.records import Records
from llama_load.tables import LEFT, Cell, Column, Row, Table, figure

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
_NEEDED = (
    "e2el_ms",
    "ttft_ms",
    "prompt_tokens",
    "output_tokens",
    "server_prompt_tokens",
    "server_prompt_ms",
    "server_predict_ms",
)


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request.

    Its workload, how it ended (`ok`, or a class of failures), and its figures, in the order of
    `COLUMNS`.
    """

    task: str
    status: str
    figures: Sequence[Cell]

    @property
    def name(self) -> str:
        """Its workload, with the class of its failure."""
        if self.status == OK:
            return self.task
        return f"{self.task} ({self.status})"


def request_table(measured: Records, t: Translate) -> Table | None:
    """The rows of a small run as a table; None for a large one."""
    rows: list[Row] = []
    for row in request_rows(measured):
        tone = "" if row.status == OK else "warning"
        rows.append([Cell(row.name, tone=tone), *row.figures])

    if not rows:
        return None

    heads = [replace(column, name=t(column.name)) for column in COLUMNS]

    return Table(t("Requests"), heads, rows)


def request_rows(measured: Records) -> list[RequestRow]:
    """A row per request, in order of their starts.

    Empty for runs of more than 64 requests, or without a successful one. Speeds are the server's
    own where it reports them, else computed from TTFT and E2EL. A failed request has no figures.
    """
    if not 0 < len(measured) <= MOST_ROWS or not len(measured.ok()):
        return []

    tasks = measured.strings("workload")
    statuses = measured.strings("status")
    numbers = {}
    for name in _NEEDED:
        numbers[name] = measured.numbers(name)
    order = np.argsort(measured.instants("started_mono_ns"), kind="stable")
    rows = []
    for place in order:
        status = statuses[place]
        if status == OK:
            values = {}
            for name, column in numbers.items():
                values[name] = _known(column[place])
            figures = _request_cells(values)
        else:
            figures = [figure(None)] * (len(COLUMNS) - 1)

        rows.append(RequestRow(tasks[place], status, figures))

    return rows


def _known(value: np.float64) -> float | None:
    if np.isnan(value):
        return None
    return float(value)


def _request_cells(values: Mapping[str, float | None]) -> list[Cell]:
    """The figures of a successful request."""
    prompt = values["prompt_tokens"]
    output = values["output_tokens"]
    e2el_ms = values["e2el_ms"]
    ttft_ms = values["ttft_ms"]
    e2el_s = None if e2el_ms is None else e2el_ms / 1e3
    after_first_ms = None if e2el_ms is None or ttft_ms is None else e2el_ms - ttft_ms

    own_prompt_per_s = prompt_per_s(
        values["server_prompt_tokens"], values["server_prompt_ms"]
    )
    own_predict_per_s = predict_per_s(output, values["server_predict_ms"])

    return [
        figure(e2el_s, 1),
        figure(tokens_per_s(prompt, output, e2el_ms), 1),
        figure(own_prompt_per_s or prompt_per_s(prompt, ttft_ms), 1),
        figure(own_predict_per_s or predict_per_s(output, after_first_ms), 2),
        figure(prompt, 0),
        figure(output, 0),
    ]
