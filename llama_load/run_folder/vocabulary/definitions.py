"""The table of metrics: the name of each, where it is computed, and where it is shown.

Summary, text block, summary.json, thresholds, the flags' help and docs/metrics.md use it. A new
latency needs a column in `llama_load.run_folder.observed.record`, a function in `llama_load.run_folder.arithmetic.latencies`
and a row in `LATENCIES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from llama_load.run_folder.arithmetic import latencies

if TYPE_CHECKING:  # help texts need this table without numpy
    import numpy as np
    from numpy.typing import NDArray

    from llama_load.run_folder.observed.records import Records

# The groups of latencies: of every request; of scheduled requests (open loop); details of the
# connection, the server, the answer.
EVERY = "every"
SCHEDULED = "scheduled"
CONNECTION = "connection"
SERVER = "server"
ANSWER = "answer"
DETAILS = (CONNECTION, SERVER, ANSWER)

# Which of two values of a figure is the better one. Of every latency it is the lower one.
HIGHER = "higher"
LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency of a request, in ms; a run has its distribution.

    The function KEY_ms of `run_folder.arithmetic.latencies` computes it, with formula and source in its
    docstring.
    """

    key: str  # its name in flags and JSON: mean_ttft_ms, p99_ttft_ms, count_ttft
    name: str  # in the lines of the block
    title: str = ""  # the headline of its section there; empty: no section
    _: KW_ONLY
    open_loop: str = ""  # its name in the open-loop section; empty: not shown there
    sum_of: tuple[
        str, ...
    ] = ()  # the columns whose sum it is, where it has no column KEY_ms
    group: str = EVERY
    is_objective: bool = False  # --goodput accepts it
    is_always_shown: bool = False  # even where a detail has no values
    # a detail that is shown only if its mean differs from that latency's
    differs_from: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of requests.parquet whose sum it is."""
        return self.sum_of or (f"{self.key}_ms",)

    @property
    def function(self) -> Callable[..., Any]:
        """The function of `run_folder.arithmetic.latencies` that computes it."""
        function: Callable[..., Any] = getattr(latencies, f"{self.key}_ms")
        return function

    @property
    def is_pooled(self) -> bool:
        """Whether a request has several values, pooled over all requests."""
        return self.key == "itl"

    def of_each(self, ok: Records) -> NDArray[np.float64]:
        """Its value for each request, ms, NaN where a request has none. Not for one that is
        pooled."""
        first, *others = map(ok.numbers, self.columns)
        return sum(others, first)


LATENCIES = (
    Latency("ttft", "TTFT", "Time to First Token", is_objective=True),
    Latency(
        "tpot", "TPOT", "Time per Output Token (excl. 1st token)", is_objective=True
    ),
    Latency("itl", "ITL", "Inter-token Latency"),
    Latency("e2el", "E2EL", "End-to-end Latency", is_objective=True),
    Latency(
        "e2el_per_token",
        "E2EL per token",
        "End-to-end Latency per Output Token",
        is_objective=True,
    ),
    Latency(
        "client_queue", "Client Queue Time", "Client-side Queueing", group=SCHEDULED
    ),
    Latency(
        "scheduled_ttft",
        "TTFT from schedule",
        open_loop="TTFT from schedule",
        sum_of=("ttft_ms", "client_queue_ms"),
        group=SCHEDULED,
    ),
    Latency(
        "scheduled_e2el",
        "E2EL incl. Client Queue",
        "Queue-inclusive End-to-end Latency",
        open_loop="E2EL from schedule",
        sum_of=("e2el_ms", "client_queue_ms"),
        group=SCHEDULED,
    ),
    Latency("late", "lateness", open_loop="lateness", group=SCHEDULED),
    Latency(
        "answer_ttft", "time to first answer token", group=ANSWER, differs_from="ttft"
    ),
    Latency("connect", "connect time", group=CONNECTION, is_always_shown=True),
    Latency("tls", "TLS handshake", group=CONNECTION),
    Latency("queue", "time to headers", group=SERVER),
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
    """A figure of a set of requests."""

    key: str  # in summary.json and in thresholds
    line: str  # in the block; empty: none
    definition: str
    attribute: str = ""  # of `Summary`, where it is not the key
    is_rate: bool = False  # per second of the run's or stage's time
    is_count: bool = False  # shown without decimals
    # attribute with the known part of a count, shown where the whole is unknown
    known: str = ""
    better: str = ""  # HIGHER, LOWER, or empty where neither is

    def of(self, figures: object) -> Any:
        """Its value in these figures."""
        return getattr(figures, self.attribute or self.key)

    @property
    def unit(self) -> str:
        """In parentheses at the end of its line; empty for a count or a ratio."""
        return self.line.partition(" (")[2].rstrip(")")


# fmt: off
FIGURES = (
    Figure("duration", "Benchmark duration (s)",
        "first start to last end, failed requests included; to the end of the time where that cut the run",
        attribute="duration_s", better=LOWER),
    Figure("completed", "Successful requests",
        "requests with a valid, complete answer",
        is_count=True),
    Figure("failed", "Failed requests",
        "requests without one, by failure class",
        is_count=True),
    Figure("failure_ratio", "",
        "failed / (completed + failed), 0 to 1",
        better=LOWER),
    Figure("valid_answer_ratio", "",
        "answers that follow --json-schema / successful requests that were forced to, 0 to 1",
        better=HIGHER),
    Figure("total_input_tokens", "Total input tokens",
        "prompt tokens of successful requests: usage, else llama-server's timings, else counted before the run",
        is_count=True, known="known_input_tokens"),
    Figure("total_output_tokens", "Total generated tokens",
        "output tokens of successful requests: usage, else timings, else counted stream events",
        is_count=True, known="known_output_tokens"),
    Figure("request_throughput", "Request throughput (req/s)",
        "successful requests / duration",
        is_rate=True, better=HIGHER),
    Figure("request_goodput", "Request goodput (req/s)",
        "successful requests that meet every --goodput objective / duration; n/a where one was not measured",
        is_rate=True, better=HIGHER),
    Figure("output_throughput", "Output token throughput (tok/s)",
        "output tokens / duration; in a run cut by its time, all tokens that came within it, those of cut requests included",
        is_rate=True, better=HIGHER),
    Figure("max_output_tokens_per_s", "Peak output token throughput (tok/s)",
        "most output tokens within a second, counted from the first start as vllm bench serve does; "
        "llama_load.peak_output_tok_per_s: within any second",
        better=HIGHER),
    Figure("max_concurrent_requests", "Peak concurrent requests",
        "most requests that touch the same second, counted from the first start as vllm bench serve does; "
        "llama_load.peak_in_flight: in flight at one instant"),
    Figure("total_token_throughput", "Total token throughput (tok/s)",
        "(prompt + output tokens) / duration",
        is_rate=True, better=HIGHER),
)
# fmt: on
FIGURE_BY_KEY = {figure.key: figure for figure in FIGURES}
RATES = tuple(figure.key for figure in FIGURES if figure.is_rate)
