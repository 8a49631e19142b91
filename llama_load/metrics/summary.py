"""From the records of a run to its figures: totals, distributions, what the server said, what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.rates import duration_s, peak_in_flight, peak_output_tok_per_s
from llama_load.metrics.slo import Slo, meets
from llama_load.metrics.speculative import Speculation
from llama_load.metrics.statistics import Distribution, describe
from llama_load.metrics.table import Records

# Column of requests.parquet -> key of its distribution; "itl" is pooled over requests.
LATENCIES = {"ttft": "ttft_ms", "tpot": "tpot_ms", "itl": "itl_ms", "e2el": "e2el_ms"}
# Of requests that were scheduled alone (open loop), each the sum of these columns.
SCHEDULED = {
    "client_queue": ("client_queue_ms",),
    "late": ("late_ms",),
    "scheduled_ttft": ("ttft_ms", "client_queue_ms"),
    "scheduled_e2el": ("e2el_ms", "client_queue_ms"),
}
EXTRAS = {
    "answer_ttft": "answer_ttft_ms",
    "connect": "connect_ms",
    "tls": "tls_ms",
    "queue": "queue_ms",
}


@dataclass(frozen=True, slots=True)
class FailureCount:
    """One class of failure: how often, and what the first one said."""

    kind: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures of a set of requests. Rates are per second of `duration_s`; None where nothing was measured."""

    completed: int
    failed: int
    cancelled: int
    duration_s: float
    total_input_tokens: int | None
    total_output_tokens: int
    request_throughput: float | None
    request_goodput: float | None
    output_throughput: float | None
    total_token_throughput: float | None
    max_output_tokens_per_s: float | None
    max_concurrent_requests: int
    output_chars_per_s: float | None
    total_inputs: int | None
    total_images: int | None
    tokens_per_image: float | None
    total_cached_tokens: int | None
    speculation: Speculation | None
    reused_connections: int
    reopened_connections: int
    server_prompt_tok_per_s: float | None
    server_predict_tok_per_s: float | None
    distributions: dict[str, Distribution]
    token_sources: dict[str, int]
    prompt_token_sources: dict[str, int]
    clock_sources: dict[str, int]
    endpoints: dict[str, int]
    failures: list[FailureCount] = field(default_factory=list)

    @property
    def failure_ratio(self) -> float | None:
        """Failed / (completed + failed), 0 to 1; cancelled requests are neither. None if no request ended."""
        ended = self.completed + self.failed
        return self.failed / ended if ended else None


def totals(records: Records, percentiles: Sequence[float] = (99.0,), slos: tuple[Slo, ...] = ()) -> Totals:
    """The figures of these (measured) requests. Failed ones are in no latency list, but in the duration."""
    ok, failed = records.ok(), records.failed()
    duration = duration_s(records)
    input_tokens = _sum(ok.numbers("prompt_tokens"))
    output_tokens = int(np.nansum(ok.numbers("output_tokens")))

    def rate(amount: float | None) -> float | None:
        return amount / duration if duration > 0 and amount is not None else None

    distributions = {
        key: describe(ok.gaps_ms() if key == "itl" else ok.numbers(column), percentiles)
        for key, column in (LATENCIES | EXTRAS).items()
    }
    for key, columns in SCHEDULED.items():
        distributions[key] = describe(sum(map(ok.numbers, columns), np.zeros(len(ok))), percentiles)
    return Totals(
        completed=len(ok),
        failed=len(failed),
        cancelled=len(records.cancelled()),
        duration_s=duration,
        total_input_tokens=input_tokens,
        total_output_tokens=output_tokens,
        request_throughput=rate(len(ok)),
        request_goodput=rate(meets(ok, slos)) if slos else None,
        output_throughput=rate(output_tokens),
        total_token_throughput=rate(None if input_tokens is None else input_tokens + output_tokens),
        max_output_tokens_per_s=_peak(ok, records),
        max_concurrent_requests=peak_in_flight(records),
        output_chars_per_s=rate(_sum(ok.numbers("output_chars"))),
        total_inputs=_sum(ok.numbers("inputs")),
        total_images=_sum(ok.numbers("images")),
        tokens_per_image=_per_image(ok.numbers("image_tokens"), ok.numbers("images")),
        total_cached_tokens=_sum(ok.numbers("cached_tokens")),
        speculation=_speculation(ok),
        reused_connections=int(records.equals("connection_reused", True).sum()),
        reopened_connections=int(records.equals("connection_reopened", True).sum()),
        server_prompt_tok_per_s=_speed(ok.numbers("server_prompt_tokens"), ok.numbers("server_prompt_ms")),
        server_predict_tok_per_s=_speed(ok.numbers("output_tokens") - 1, ok.numbers("server_predict_ms")),
        distributions=distributions,
        token_sources=_counts(ok, "token_source"),
        prompt_token_sources=_counts(ok, "prompt_token_source"),
        clock_sources=_counts(ok, "clock_source"),
        endpoints=_counts(records, "endpoint"),
        failures=_failures(failed),
    )


def _peak(ok: Records, records: Records) -> float | None:
    """The busiest second's output tokens; None where no answer was streamed, so that no token has a time."""
    streamed = bool(len(ok)) and not np.isnan(ok.numbers("first_token_mono_ns")).all()
    return peak_output_tok_per_s(ok, int(records.instants("started_mono_ns").min())) if streamed else None


def shown_latencies(wanted: Sequence[str], figures: Totals) -> Sequence[str]:
    """Which latencies are worth a section: those wanted, or E2EL alone where no answer was streamed."""
    streamed, whole = figures.distributions["ttft"].count, figures.distributions["e2el"].count
    return ["e2el"] if whole and not streamed else wanted


def _per_image(tokens: NDArray[np.float64], images: NDArray[np.float64]) -> float | None:
    """Mean prompt tokens an image: sum of image tokens / sum of images, where both are known."""
    known = ~np.isnan(tokens) & (images > 0)
    return float(tokens[known].sum() / images[known].sum()) if known.any() else None


def _sum(values: NDArray[np.float64]) -> int | None:
    """The sum of what was measured, None if nothing was."""
    return None if np.isnan(values).all() else int(np.nansum(values))


def _speculation(ok: Records) -> Speculation | None:
    """What llama-server's timings say of drafted tokens, over all requests; None if nothing was drafted."""
    drafted, accepted = _sum(ok.numbers("draft_tokens")), _sum(ok.numbers("draft_accepted"))
    return Speculation(drafted, accepted or 0) if drafted else None


def _speed(tokens: NDArray[np.float64], took_ms: NDArray[np.float64]) -> float | None:
    """Tokens/s over all requests: sum of tokens / sum of the server's own ms, where it tells both.

    Prompt: tokens processed (cached ones left out). Predict: output tokens after the first, which the prompt's time
    brings. Source: llama.cpp's timings, whose predicted_per_second is (n - 1) / predicted_ms.
    """
    told = (took_ms > 0) & (tokens > 0)
    return float(tokens[told].sum() / took_ms[told].sum() * 1e3) if told.any() else None


def _counts(records: Records, column: str) -> dict[str, int]:
    return {str(value): count for value, count in Counter(records.strings(column)).most_common()}


def _failures(failed: Records) -> list[FailureCount]:
    examples: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for kind, text in zip(failed.strings("status"), failed.strings("error"), strict=True):
        counts[kind] += 1
        examples.setdefault(kind, text or "")
    return [FailureCount(kind, count, examples[kind]) for kind, count in counts.most_common()]
