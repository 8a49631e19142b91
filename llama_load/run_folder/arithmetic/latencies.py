"""The latencies of one request, computed from its timestamps: one function per definition.

All take monotonic ns and return ms; None where a timestamp is missing. "Token" means token event: a
stream event with generated content (text, reasoning, tool calls).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from llama_load.ground.units import ns_to_ms


def _between(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else ns_to_ms(end_ns - start_ns)


def waited_ms(before_ended_ns: int | None, started_ns: int) -> float | None:
    """Wait before a later turn of a conversation, ms: its start - end of the answer before it.
    Think time, a tool's run time, or sub-agents."""
    return _between(before_ended_ns, started_ns)


def ttft_ms(started_ns: int, first_token_ns: int | None) -> float | None:
    """Time to first token, ms: first token - started. Connect (and TLS) are included.

    Started at 0, first token received at 120 ms: 120.0. Source: vLLM benchmarks, which start their
    clock before posting.
    """
    return _between(started_ns, first_token_ns)


def answer_ttft_ms(started_ns: int, first_answer_ns: int | None) -> float | None:
    """Time to the first token that is not reasoning, ms: first such token - started. TTFT where
    there is no reasoning."""
    return _between(started_ns, first_answer_ns)


def e2el_ms(started_ns: int, last_token_ns: int | None) -> float | None:
    """End-to-end latency, ms: last token - started. The usage event and [DONE] that follow do not
    count."""
    return _between(started_ns, last_token_ns)


def e2el_per_token_ms(e2el: float | None, output_tokens: int | None) -> float | None:
    """End-to-end latency per output token, ms: E2EL / output tokens, all of them, with the first.

    What an agent waits for each token of an answer, the prompt's prefill included: 2 s for 100
    tokens are 20.0; 1000 divided by it is the speed of the request in tokens/s. None where tokens
    are not known, or there are none. Source: InferenceX's axis of agents, evalscope.
    """
    if e2el is None or not output_tokens:
        return None
    return e2el / output_tokens


def itl_ms(token_ns: Sequence[int]) -> list[float]:
    """Inter-token latencies, ms: every gap between token events, one per event after the first
    (length n - 1).

    Tokens at 50, 60, 80 ms: [10.0, 20.0]. An event of several tokens gives one sample, as in vLLM.
    """
    return [ns_to_ms(later - earlier) for earlier, later in pairwise(token_ns)]


def tpot_ms(
    ttft: float | None, e2el: float | None, tokens_between: float | None
) -> float | None:
    """Mean time per output token after the first, ms: (E2EL - TTFT) / tokens between the first and
    the last token event.

    These are the output tokens - 1, as in vLLM's formula (benchmarks/serve.py, calculate_metrics),
    where the stream brings all of them: first token at 50 ms, last at 250 ms, 11 tokens: 20.0.
    Tokens that came at other times are left out: hidden reasoning and blanks before the first
    event, all of the first event, the end token (see `run_folder.arithmetic.token_span`). None below two events,
    and where the time after the first event does not cover most tokens: 60 tokens in one event:
    None, not 0.0.
    """
    if ttft is None or e2el is None or not tokens_between:
        return None
    return (e2el - ttft) / tokens_between


def connect_ms(started_ns: int, connected_ns: int | None) -> float | None:
    """Time to open the connection, ms: connected - started."""
    return _between(started_ns, connected_ns)


def tls_ms(connected_ns: int | None, secured_ns: int | None) -> float | None:
    """Time of the TLS handshake, ms: TLS done - connected. Part of TTFT."""
    return _between(connected_ns, secured_ns)


def own_delay_ms(
    started_ns: int,
    connected_ns: int | None,
    handshake_ns: int | None,
    *,
    first_write_ns: int | None = None,
) -> float | None:
    """The client's own delay before a request was sent, ms: (connected - started) - the kernel's
    handshake time.

    The kernel completes the TCP handshake and measures it (tcpi_rtt of TCP_INFO); the rest is the
    time until the client noticed. Connected after 3.0 ms, round trip 0.2 ms: 2.8. None where the
    kernel does not report it or repeated its SYN (a full backlog is the server's delay). On an open
    connection (`first_write_ns` is given): first bytes handed to the kernel - started.
    """
    if first_write_ns is not None:
        return ns_to_ms(first_write_ns - started_ns)
    if connected_ns is None or handshake_ns is None:
        return None
    return max(0.0, ns_to_ms(connected_ns - started_ns - handshake_ns))


def client_queue_ms(scheduled_ns: int | None, started_ns: int) -> float | None:
    """How long a scheduled request waited at the client, ms: started - scheduled. None in a closed
    loop, which has no schedule.

    Scheduled at 1000 ms, sent at 1250 ms because the limit was reached: 250.0. TTFT and E2EL from
    the scheduled instant include it. Source: vLLM benchmarks/serve.py (Client Queue Time); G. Tene,
    "How NOT to Measure Latency" (coordinated omission).
    """
    return _between(scheduled_ns, started_ns)


def retry_ms(started_ns: int, attempt_ns: int) -> float:
    """Earlier tries of a request that the server refused, and the pauses after them, ms: start of
    the last try - started.

    Part of TTFT and E2EL, which count from the first try.
    """
    return ns_to_ms(attempt_ns - started_ns)


def scheduled_ttft_ms(ttft: float | None, client_queue: float | None) -> float | None:
    """TTFT from the scheduled instant, ms: TTFT + client queue time.

    Source: wrk2; G. Tene, "How NOT to Measure Latency".
    """
    return None if ttft is None or client_queue is None else ttft + client_queue


def scheduled_e2el_ms(e2el: float | None, client_queue: float | None) -> float | None:
    """E2EL from the scheduled instant, ms: E2EL + client queue time.

    Source: vLLM benchmarks/serve.py (E2EL incl. Client Queue).
    """
    return None if e2el is None or client_queue is None else e2el + client_queue


def late_ms(
    scheduled_ns: int | None, allowed_ns: int | None, started_ns: int
) -> float | None:
    """Lateness, the client's own share of the client queue time, ms: started - max(scheduled,
    allowed).

    A request is allowed when the limit of requests in flight lets it go. Scheduled at 1000 ms,
    allowed at 1249 ms, sent at 1250 ms: 1.0.
    """
    return (
        None
        if scheduled_ns is None
        else ns_to_ms(started_ns - max(scheduled_ns, allowed_ns or scheduled_ns))
    )


def queue_ms(
    sent_ns: int | None, headers_ns: int | None, *, headers_alone: bool, held: bool
) -> float | None:
    """Time in the server's queue, ms: headers - sent, where the server holds its headers until a
    slot is free.

    None unless the server is known to hold them (llama-server) and they came in a separate read:
    headers that come with the first token do not measure the queue.
    """
    return _between(sent_ns, headers_ns) if held and headers_alone else None


def tokens_per_s(
    prompt_tokens: float | None, output_tokens: float | None, e2el: float | None
) -> float | None:
    """Tokens per second of one request: (prompt tokens + output tokens) / E2EL.

    11980 and 128 tokens in 96.4 s: 125.6.
    """
    if prompt_tokens is None or output_tokens is None or not e2el:
        return None
    return (prompt_tokens + output_tokens) / e2el * 1e3


def prompt_per_s(prompt_tokens: float | None, took_ms: float | None) -> float | None:
    """Prompt tokens per second: processed tokens / the server's ms for them (or TTFT, where it
    reports none)."""
    return prompt_tokens / took_ms * 1e3 if prompt_tokens and took_ms else None


def predict_per_s(output_tokens: float | None, took_ms: float | None) -> float | None:
    """Output tokens per second: (n - 1) / ms. The first token belongs to the prompt's time. None
    below two tokens.

    128 tokens in 64 s: 1.98. Source: llama.cpp's timings, predicted_per_second.
    """
    return (
        (output_tokens - 1) / took_ms * 1e3
        if output_tokens and output_tokens > 1 and took_ms
        else None
    )
