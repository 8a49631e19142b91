"""The client's and the server's figures of the same requests, side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llama_load.analysis.statistics.intervals import Durations
from llama_load.analysis.statistics.statistics import mean, total
from llama_load.ground.units import NS_PER_MS
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_counters import ServerCounters, ServerTimes

E2EL = "E2EL (ms)"
TTFT = "TTFT (ms)"
IN_QUEUE = "wait in the queue (ms)"
PREFILL = "prefill (ms)"


@dataclass(frozen=True, slots=True)
class SidePair:
    """A figure as the client measured it and as the server reports it; None where one side does not
    know it."""

    name: str
    client: float | None
    server: float | None
    # the server's is from its counters, which include all its clients
    coarse: bool = False

    @property
    def difference(self) -> float | None:
        """Client - server."""
        return (
            None
            if self.client is None or self.server is None
            else self.client - self.server
        )


def side_by_side(records: Records, counters: ServerCounters | None) -> list[SidePair]:
    """Mean times in ms, then numbers of tokens and requests, that the server reports; empty where
    it reports nothing."""
    ok = records.ok()
    pairs = [pair for pair in _of_answers(ok) if pair.server is not None]
    if counters is None:
        return pairs
    if counters.times is not None and counters.times.requests > 0:
        known = {pair.name for pair in pairs}
        for pair in _of_histograms(ok, counters.times):
            if pair.name not in known:
                pairs.append(pair)
    for name, column, server in (
        ("output tokens", "output_tokens", counters.output_tokens),
        ("prompt tokens", "prompt_tokens", counters.prompt_tokens),
    ):
        if server is not None:
            pairs.append(SidePair(name, total(ok.numbers(column)), server, coarse=True))
    if counters.requests is not None:
        pairs.append(SidePair("requests", len(records), counters.requests, coarse=True))
    return pairs


def _of_answers(ok: Records) -> list[SidePair]:
    """From llama-server's `timings` in each answer, prefill only where the headers show when it
    began; and from vLLM's `metrics`."""
    prefill_ms = ok.numbers("ttft_ms") - _until_headers_ms(ok)
    prompt_ms = ok.numbers("server_prompt_ms")
    decode_ms = _decode_ms(ok)
    predict_ms = ok.numbers("server_predict_ms")
    both = ~np.isnan(prefill_ms) & ~np.isnan(prompt_ms)
    decoded = ~np.isnan(decode_ms) & ~np.isnan(predict_ms)
    in_queue_ms = ok.numbers("server_queue_ms")
    first_ms = in_queue_ms + prompt_ms
    queued = ~np.isnan(first_ms)
    return [
        SidePair(
            TTFT,
            mean((ok.numbers("ttft_ms") - _connect_ms(ok))[queued]),
            mean(first_ms[queued]),
        ),
        SidePair(
            "headers to first token (ms)", mean(prefill_ms[both]), mean(prompt_ms[both])
        ),
        SidePair(
            "first to last token (ms)",
            mean(decode_ms[decoded]),
            mean(predict_ms[decoded]),
        ),
        SidePair(IN_QUEUE, None, mean(in_queue_ms[queued])),
        SidePair(PREFILL, None, mean(prompt_ms[queued])),
    ]


def _of_histograms(ok: Records, times: ServerTimes) -> list[SidePair]:
    """From vLLM's histograms: sums / requests. The client's times are without connecting, which the
    server does not see."""
    connect_ms = _connect_ms(ok)
    return [
        SidePair(
            TTFT,
            mean(ok.numbers("ttft_ms") - connect_ms),
            times.ttft_ms / times.requests,
            coarse=True,
        ),
        SidePair(
            E2EL,
            mean(ok.numbers("e2el_ms") - connect_ms),
            times.e2el_ms / times.requests,
            coarse=True,
        ),
        SidePair(
            "first to last token (ms)",
            mean(_decode_ms(ok)),
            times.decode_ms / times.requests,
            coarse=True,
        ),
        SidePair(IN_QUEUE, None, times.queue_ms / times.requests, coarse=True),
        SidePair(PREFILL, None, times.prefill_ms / times.requests, coarse=True),
    ]


def _connect_ms(ok: Records) -> Durations:
    connect_ms = np.nan_to_num(ok.numbers("connect_ms"))
    return connect_ms + np.nan_to_num(ok.numbers("tls_ms"))


def _until_headers_ms(ok: Records) -> Durations:
    sent = ok.optional_instants("sent_mono_ns")
    started = ok.optional_instants("started_mono_ns")
    return np.where(
        sent < 0, np.nan, (sent - started) / NS_PER_MS + ok.numbers("queue_ms")
    )


def _decode_ms(ok: Records) -> Durations:
    """Last - first token, of streamed answers."""
    return ok.numbers("e2el_ms") - ok.numbers("ttft_ms")
