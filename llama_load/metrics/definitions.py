"""The table of metrics: the name of each, where it is computed, and where it is shown.

Summary, text block, summary.json, thresholds, the flags' help and docs/metrics.md use it. A new latency needs a column in
`llama_load.observed.record`, a function in `llama_load.metrics.latencies` and a row in `LATENCIES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llama_load.metrics import latencies as request

# The groups of latencies: of every request; of scheduled requests (open loop); details of the connection, the server, the answer.
EVERY, SCHEDULED = "every", "scheduled"
CONNECTION, SERVER, ANSWER = DETAILS = ("connection", "server", "answer")

# Which of two values of a figure is the better one. Of every latency it is the lower one.
HIGHER, LOWER = "higher", "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A latency of a request, in ms; a run has its distribution.

    `key` is its name in flags and JSON (mean_ttft_ms, p99_ttft_ms, count_ttft), `name` in the lines of the block, `title` the
    headline of its section there (empty: no section), `open_loop` its name in the open-loop section (empty: not shown there).
    Its value is the sum of `columns` of requests.parquet; `function` computes it, with formula and source in its docstring.
    `is_objective`: --goodput accepts it. A detail is shown if it has values; with `is_always_shown` always; with
    `differs_from` only if its mean differs from that latency's.
    """

    key: str
    name: str
    title: str = ""
    open_loop: str = ""
    columns: tuple[str, ...]
    function: Callable[..., Any]
    group: str = EVERY
    is_objective: bool = False
    is_always_shown: bool = False
    differs_from: str = ""

    @property
    def is_pooled(self) -> bool:
        """Whether a request has several values, pooled over all requests."""
        return self.columns == ("itl_ms",)


LATENCIES = (
    Latency(
        key="ttft",
        name="TTFT",
        title="Time to First Token",
        columns=("ttft_ms",),
        function=request.ttft_ms,
        is_objective=True,
    ),
    Latency(
        key="tpot",
        name="TPOT",
        title="Time per Output Token (excl. 1st token)",
        columns=("tpot_ms",),
        function=request.tpot_ms,
        is_objective=True,
    ),
    Latency(key="itl", name="ITL", title="Inter-token Latency", columns=("itl_ms",), function=request.itl_ms),
    Latency(
        key="e2el",
        name="E2EL",
        title="End-to-end Latency",
        columns=("e2el_ms",),
        function=request.e2el_ms,
        is_objective=True,
    ),
    Latency(
        key="client_queue",
        name="Client Queue Time",
        title="Client-side Queueing",
        columns=("client_queue_ms",),
        function=request.client_queue_ms,
        group=SCHEDULED,
    ),
    Latency(
        key="scheduled_ttft",
        name="TTFT from schedule",
        open_loop="TTFT from schedule",
        columns=("ttft_ms", "client_queue_ms"),
        function=request.scheduled_ttft_ms,
        group=SCHEDULED,
    ),
    Latency(
        key="scheduled_e2el",
        name="E2EL incl. Client Queue",
        title="Queue-inclusive End-to-end Latency",
        open_loop="E2EL from schedule",
        columns=("e2el_ms", "client_queue_ms"),
        function=request.scheduled_e2el_ms,
        group=SCHEDULED,
    ),
    Latency(
        key="late",
        name="lateness",
        open_loop="lateness",
        columns=("late_ms",),
        function=request.late_ms,
        group=SCHEDULED,
    ),
    Latency(
        key="answer_ttft",
        name="time to first answer token",
        columns=("answer_ttft_ms",),
        function=request.answer_ttft_ms,
        group=ANSWER,
        differs_from="ttft",
    ),
    Latency(
        key="connect",
        name="connect time",
        columns=("connect_ms",),
        function=request.connect_ms,
        group=CONNECTION,
        is_always_shown=True,
    ),
    Latency(key="tls", name="TLS handshake", columns=("tls_ms",), function=request.tls_ms, group=CONNECTION),
    Latency(key="queue", name="time to headers", columns=("queue_ms",), function=request.queue_ms, group=SERVER),
)
BY_KEY = {latency.key: latency for latency in LATENCIES}


TTFT = LATENCIES[0]


def of_group(*groups: str) -> list[Latency]:
    """The latencies of these groups, in order."""
    return [latency for latency in LATENCIES if latency.group in groups]


# What --percentile-metrics chooses from, and what --goodput may limit.
SECTION_KEYS = tuple(latency.key for latency in of_group(EVERY))
OBJECTIVE_KEYS = tuple(latency.key for latency in LATENCIES if latency.is_objective)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a set of requests: its key in summary.json and in thresholds, its line in the block (empty: none), the
    attribute of `Summary`, its definition. `is_rate`: per second of the run's or stage's time. `is_count`: shown without
    decimals; `known` is then the attribute with the known part of it, shown where the whole is unknown. `better`: which value is
    the better one when runs are compared (HIGHER, LOWER); empty where neither is."""

    key: str
    line: str
    attribute: str
    definition: str
    is_rate: bool = False
    is_count: bool = False
    known: str = ""
    better: str = ""

    @property
    def unit(self) -> str:
        """In parentheses at the end of its line; empty for a count or a ratio."""
        return self.line.partition(" (")[2].rstrip(")")


FIGURES = (
    Figure(
        "duration",
        "Benchmark duration (s)",
        "duration_s",
        "first start to last end, failed requests included; to the end of the time where that cut the run",
        better=LOWER,
    ),
    Figure("completed", "Successful requests", "completed", "requests with a valid, complete answer", is_count=True),
    Figure("failed", "Failed requests", "failed", "requests without one, by failure class", is_count=True),
    Figure("failure_ratio", "", "failure_ratio", "failed / (completed + failed), 0 to 1", better=LOWER),
    Figure(
        "valid_answer_ratio",
        "",
        "valid_answer_ratio",
        "answers that follow --json-schema / successful requests that were forced to, 0 to 1",
        better=HIGHER,
    ),
    Figure(
        "total_input_tokens",
        "Total input tokens",
        "total_input_tokens",
        "prompt tokens of successful requests: usage, else llama-server's timings, else counted before the run",
        is_count=True,
        known="known_input_tokens",
    ),
    Figure(
        "total_output_tokens",
        "Total generated tokens",
        "total_output_tokens",
        "output tokens of successful requests: usage, else timings, else counted stream events",
        is_count=True,
        known="known_output_tokens",
    ),
    Figure(
        "request_throughput",
        "Request throughput (req/s)",
        "request_throughput",
        "successful requests / duration",
        is_rate=True,
        better=HIGHER,
    ),
    Figure(
        "request_goodput",
        "Request goodput (req/s)",
        "request_goodput",
        "successful requests that meet every --goodput objective / duration; n/a where one was not measured",
        is_rate=True,
        better=HIGHER,
    ),
    Figure(
        "output_throughput",
        "Output token throughput (tok/s)",
        "output_throughput",
        "output tokens / duration; in a run cut by its time, all tokens that came within it, those of cut requests included",
        is_rate=True,
        better=HIGHER,
    ),
    Figure(
        "max_output_tokens_per_s",
        "Peak output token throughput (tok/s)",
        "max_output_tokens_per_s",
        "most output tokens within a second, counted from the first start as vllm bench serve does; "
        "llama_load.peak_output_tok_per_s: within any second",
        better=HIGHER,
    ),
    Figure(
        "max_concurrent_requests",
        "Peak concurrent requests",
        "max_concurrent_requests",
        "most requests that touch the same second, counted from the first start as vllm bench serve does; "
        "llama_load.peak_in_flight: in flight at one instant",
    ),
    Figure(
        "total_token_throughput",
        "Total token throughput (tok/s)",
        "total_token_throughput",
        "(prompt + output tokens) / duration",
        is_rate=True,
        better=HIGHER,
    ),
)
FIGURE_BY_KEY = {figure.key: figure for figure in FIGURES}
RATES = tuple(figure.key for figure in FIGURES if figure.is_rate)
