"""From the records of a run to its figures: totals, distributions, the server's own figures,
failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.figures.rates import (
    peak_in_flight,
    peak_output_tok_per_s,
    token_times_ns,
    vllm_peak_in_flight,
    vllm_peak_output,
)
from llama_load.analysis.figures.token_counts import tokens_per_event
from llama_load.analysis.statistics.large_sample import describe_pieces
from llama_load.analysis.statistics.statistics import Distribution, describe
from llama_load.run_folder.observed.record import ABORTED, OK
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.speculation import Speculation
from llama_load.run_folder.observed.window import Window, window_of
from llama_load.run_folder.vocabulary.definitions import LATENCIES, Latency
from llama_load.run_folder.vocabulary.slo import Slo, margin_ms, meets


@dataclass(frozen=True, slots=True)
class FailureCount:
    """A failure class: how often it happened, and the text of the first one."""

    kind: str
    count: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates per second of a window of `duration_s`, and how many requests in it meet every
    objective; None where a request's value is unknown."""

    duration_s: float
    request_throughput: float | None = None
    request_goodput: float | None = None
    good_requests: int | None = None
    goodput_margin_ms: float | None = None  # see `slo.margin_ms`
    output_throughput: float | None = None
    total_token_throughput: float | None = None
    output_chars_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Rates):
    """The figures of a set of requests. A figure is None where it was not measured, or not for all
    requests; `known_input_tokens` and `known_output_tokens` are sums over the requests whose counts
    are known."""

    completed: int
    failed: int
    cancelled: int
    aborted: int
    wasted_tokens: int  # of the aborted requests
    total_input_tokens: int | None
    total_output_tokens: int | None
    known_input_tokens: int
    known_output_tokens: int
    # this and the next as vLLM counts them, then as they were
    max_output_tokens_per_s: float | None
    max_concurrent_requests: int
    peak_output_tok_per_s: float | None
    peak_in_flight: int
    total_inputs: int | None
    total_images: int | None
    tokens_per_image: float | None
    total_cached_tokens: int | None
    tokens_per_event: Distribution
    # by vLLM's formulas, ms: ttft, tpot, e2el
    by_vllm: dict[str, Distribution]
    speculation: Speculation | None
    retried_requests: int  # sent more than once (--retry), and how often in addition
    retries: int
    reused_connections: int
    reopened_connections: int
    server_prompt_tok_per_s: float | None
    server_predict_tok_per_s: float | None
    distributions: dict[str, Distribution]
    token_sources: dict[str, int]
    prompt_token_sources: dict[str, int]
    clock_sources: dict[str, int]
    endpoints: dict[str, int]
    failures: list[FailureCount]
    valid_answer_ratio: float | None

    @property
    def failure_ratio(self) -> float | None:
        """Failed / (completed + failed), 0 to 1; cancelled and aborted requests are neither. None
        if no request ended."""
        ended = self.completed + self.failed
        return self.failed / ended if ended else None

    @property
    def tok_per_s_per_user(self) -> float | None:
        """Output tokens/s that one user sees: 1000 / mean TPOT in ms. Mean TPOT 20 ms: 50.0."""
        mean = self.distributions["tpot"].mean
        return 1000 / mean if mean else None

    @property
    def success_ratio(self) -> float | None:
        """Completed / (completed + failed), 0 to 1; None if no request ended."""
        return None if self.failure_ratio is None else 1 - self.failure_ratio


def summarize(
    records: Records,
    percentiles: Sequence[float] = (99.0,),
    slos: tuple[Slo, ...] = (),
    window: Window | None = None,
) -> Summary:
    """The figures of these (measured) requests. Failed ones count for the duration, not for
    latencies.

    Rates are of `window` (None: from the first start to the last end); see `window_rates`.
    """
    ok = records.ok()
    failed = records.failed()
    cancelled = records.cancelled()
    aborted = records.aborted()
    window = window or window_of(records)
    input_tokens = ok.numbers("prompt_tokens")
    output_tokens = output_counts(ok)
    return Summary(
        **asdict(window_rates(records, window, slos)),
        completed=len(ok),
        failed=len(failed),
        cancelled=len(cancelled),
        aborted=len(aborted),
        wasted_tokens=int(np.nansum(aborted.numbers("output_tokens"))),
        total_input_tokens=_total(input_tokens),
        total_output_tokens=_total(output_tokens),
        known_input_tokens=int(np.nansum(input_tokens)),
        known_output_tokens=int(np.nansum(output_tokens)),
        max_output_tokens_per_s=vllm_peak_output(ok),
        max_concurrent_requests=vllm_peak_in_flight(ok),
        peak_output_tok_per_s=peak_output_tok_per_s(_answered(records), window),
        peak_in_flight=peak_in_flight(records),
        total_inputs=_sum(ok.numbers("inputs")),
        total_images=_sum(ok.numbers("images")),
        tokens_per_image=_per_image(ok.numbers("image_tokens"), ok.numbers("images")),
        total_cached_tokens=_total(ok.numbers("cached_tokens")),
        tokens_per_event=describe(tokens_per_event(ok), percentiles),
        by_vllm={
            "ttft": describe(_since_asked_ms(ok, "ttft_ms"), percentiles),
            "tpot": describe(_vllm_tpot_ms(ok), percentiles),
            "e2el": describe(_since_asked_ms(ok, "e2el_ms"), percentiles),
        },
        speculation=_speculation(ok),
        retried_requests=int((records.numbers("tries") > 1).sum()),
        retries=int(np.nansum(np.maximum(0, records.numbers("tries") - 1))),
        reused_connections=int(records.equals("connection_reused", True).sum()),
        reopened_connections=int(records.equals("connection_reopened", True).sum()),
        server_prompt_tok_per_s=_speed(
            ok.numbers("server_prompt_tokens"), ok.numbers("server_prompt_ms")
        ),
        server_predict_tok_per_s=_speed(
            output_tokens - 1, ok.numbers("server_predict_ms")
        ),
        distributions={
            latency.key: distribution(ok, latency, percentiles) for latency in LATENCIES
        },
        token_sources=_counts_by_value(ok, "token_source"),
        prompt_token_sources=_counts_by_value(ok, "prompt_token_source"),
        clock_sources=_counts_by_value(ok, "clock_source"),
        endpoints=_counts_by_value(records, "endpoint"),
        failures=_failures(failed),
        valid_answer_ratio=valid_ratio(ok),
    )


def distribution(
    ok: Records, latency: Latency, percentiles: Sequence[float]
) -> Distribution:
    """The distribution of a latency over these requests."""
    if latency.is_pooled:
        return describe_pieces(ok.gap_pieces, percentiles)
    return describe(latency.of_each(ok), percentiles)


def window_rates(records: Records, window: Window, slos: tuple[Slo, ...] = ()) -> Rates:
    """The rates of a window.

    Not cut: totals of the successful requests / its length, as in vLLM. Cut: what arrived within
    it. A request counts when it ends, its prompt at its first token, an output token when it
    arrives, including those of requests cut at the end. From complete requests alone throughput
    would be too low: 8 users, each request 10 s and 100 tokens, cut after 15 s: 8 requests with 800
    tokens ended, but 1200 tokens arrived: 80 tok/s, not 53.
    """
    seconds = window.seconds
    if seconds <= 0:
        return Rates(duration_s=seconds)
    answered = (
        _overlapping(_answered(records), window) if window.is_cut else records.ok()
    )
    ok = answered.ok()
    ended = (
        ok.where(window.holds(ok.instants("ended_mono_ns"))) if window.is_cut else ok
    )
    good = meets(ended, slos) if slos else None
    margin = margin_ms(ended, slos) if slos else None
    output: float | None = (
        _output_within(answered, window) if window.is_cut else _total(output_counts(ok))
    )
    prompts = (
        _prompts_within(answered, window)
        if window.is_cut
        else ok.numbers("prompt_tokens")
    )
    input_tokens = _total(prompts)
    chars = float(np.nansum(answered.numbers("output_chars")))
    # characters have no timestamps: counted in proportion to the tokens
    if window.is_cut and output is not None:
        tokens = float(np.nansum(answered.numbers("output_tokens")))
        chars = chars * output / tokens if tokens else 0.0
    return Rates(
        duration_s=seconds,
        request_throughput=len(ended) / seconds,
        request_goodput=None if good is None else good / seconds,
        good_requests=good,
        goodput_margin_ms=margin,
        output_throughput=None if output is None else output / seconds,
        total_token_throughput=None
        if output is None or input_tokens is None
        else (output + input_tokens) / seconds,
        output_chars_per_s=chars / seconds if len(answered) else None,
    )


def output_counts(records: Records) -> NDArray[np.float64]:
    """Output tokens, NaN where they are unknown; 0 for embeddings."""
    return np.where(
        np.isnan(records.numbers("inputs")), records.numbers("output_tokens"), 0.0
    )


def _answered(records: Records) -> Records:
    """The successful requests, and those that were cancelled."""
    return records.where(~(records.is_failed() | records.equals("status", ABORTED)))


def _overlapping(records: Records, window: Window) -> Records:
    """The requests that were in flight within the window; the tokens of others arrived outside
    it."""
    began = records.instants("started_mono_ns")
    ended = records.instants("ended_mono_ns")
    return records.where((began < window.ended_ns) & (ended >= window.begun_ns))


def _output_within(answered: Records, window: Window) -> float | None:
    if np.isnan(output_counts(answered.ok())).any():
        return None
    return sum(
        float(weights[window.holds(times_ns)].sum())
        for times_ns, weights in token_times_ns(answered)
    )


def _prompts_within(answered: Records, window: Window) -> NDArray[np.float64]:
    """Prompt tokens of the requests whose first token (or unstreamed answer) arrived within the
    window."""
    first_ns = answered.optional_instants("first_token_mono_ns")
    is_ok = answered.equals("status", OK)
    prefilled_ns = np.where(
        (first_ns < 0) & is_ok, answered.instants("ended_mono_ns"), first_ns
    )
    return answered.where(window.holds(prefilled_ns) & (prefilled_ns >= 0)).numbers(
        "prompt_tokens"
    )


def shown_latencies(chosen: Sequence[str], figures: Summary) -> Sequence[str]:
    """The latencies that get a section: the chosen ones, or E2EL alone where no answer was
    streamed."""
    streamed = figures.distributions["ttft"].count
    whole = figures.distributions["e2el"].count
    return ["e2el"] if whole and not streamed else chosen


def _per_image(
    tokens: NDArray[np.float64], images: NDArray[np.float64]
) -> float | None:
    """Mean prompt tokens per image: sum of image tokens / sum of images, where both are known."""
    known = ~np.isnan(tokens) & (images > 0)
    if not known.any():
        return None
    return float(tokens[known].sum() / images[known].sum())


def valid_ratio(ok: Records) -> float | None:
    """Answers that follow --json-schema / answers that were forced to and checked, 0 to 1; None
    without such answers."""
    formed = ok.where(ok.equals("answer_form", "json_schema") & ok.has("valid_answer"))
    return float(formed.equals("valid_answer", True).mean()) if len(formed) else None


def _sum(values: NDArray[np.float64]) -> int | None:
    """The sum of a column that only some requests have (images, texts to embed); None if none has
    it."""
    return None if np.isnan(values).all() else int(np.nansum(values))


def _total(values: NDArray[np.float64]) -> int | None:
    """The sum of a column that every request has; None if one is unknown, because a partial sum is
    no total."""
    if not len(values) or np.isnan(values).any():
        return None
    return int(values.sum())


def _since_asked_ms(ok: Records, name: str) -> NDArray[np.float64]:
    """A latency by vLLM's formula, ms: from the instant at which the client began to send, its own
    delay included."""
    own_ms = np.where(ok.has("asked_mono_ns"), ok.numbers("own_delay_ms"), 0.0)
    return ok.numbers(name) + own_ms


def _vllm_tpot_ms(ok: Records) -> NDArray[np.float64]:
    """TPOT by vLLM's formula , ms: (E2EL - TTFT) / (output tokens - 1); NaN below two tokens.
    Source: benchmarks/serve.py, calculate_metrics."""
    took_ms = ok.numbers("e2el_ms") - ok.numbers("ttft_ms")
    tokens = ok.numbers("output_tokens")
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(tokens > 1, took_ms / (tokens - 1), np.nan)


def _speculation(ok: Records) -> Speculation | None:
    """Drafted tokens by llama-server's timings or vLLM's metrics in the answers, over all requests;
    None if nothing was drafted."""
    drafted = _sum(ok.numbers("draft_tokens"))
    accepted = _sum(ok.numbers("draft_accepted"))
    return (
        Speculation(drafted, accepted or 0, tokens=_sum(ok.numbers("output_tokens")))
        if drafted
        else None
    )


def _speed(tokens: NDArray[np.float64], took_ms: NDArray[np.float64]) -> float | None:
    """Tokens/s over all requests: sum of tokens / sum of the server's own ms, where it reports
    both.

    Prompt: processed tokens, without cached ones. Predict: output tokens after the first, which
    belongs to the prompt's time. Source: llama.cpp's timings, whose predicted_per_second is (n - 1)
    / predicted_ms.
    """
    known = (took_ms > 0) & (tokens > 0)
    if not known.any():
        return None
    tokens_per_ms = tokens[known].sum() / took_ms[known].sum()
    return float(tokens_per_ms * 1e3)


def _counts_by_value(records: Records, column: str) -> dict[str, int]:
    return {
        str(value): count
        for value, count in Counter(records.strings(column)).most_common()
    }


def _failures(failed: Records) -> list[FailureCount]:
    examples: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for kind, text in zip(
        failed.strings("status"), failed.strings("error"), strict=True
    ):
        counts[kind] += 1
        examples.setdefault(kind, text or "")
    return [
        FailureCount(kind, count, examples[kind])
        for kind, count in counts.most_common()
    ]
