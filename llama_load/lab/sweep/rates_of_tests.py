"""Tokens per second of the requests of a test."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from llama_load.lab.sweep.tests_load import PROCESS, parse_test
from llama_load.run_folder.observed.records import Records

# of a test's prompt tokens: BOS and the beginning of a cached prefix may differ by a few
LEAST_PROCESSED = 0.9
Rates = NDArray[np.float64]


def rates_of_test(records: Records, test: str) -> tuple[list[float], bool]:
    """Tokens per second of each successful request of a test.

    And whether they come from the client's times.

    pp: prompt tokens that the server processed / its prompt time; tg: (output tokens - 1) / its
    time of decoding. Without the server's timings: the test's tokens / TTFT, and 1 / TPOT; these
    include the network and HTTP. A request whose tokens came from the cache, as of a server that
    had them from an earlier sweep, has no rate of pp.
    """
    kind, tokens = parse_test(test)
    ok = records.ok()
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind == PROCESS:
            by_server, by_client = _processing_rates(ok, tokens)
        else:
            by_server, by_client = decoding_rates(ok)

    if len(by_server):
        return by_server.tolist(), False
    return by_client.tolist(), True


def _processing_rates(ok: Records, tokens: int) -> tuple[Rates, Rates]:
    """By the server's times and by the client's."""
    processed = ok.numbers("server_prompt_tokens")
    not_cached = ok.numbers("prompt_tokens") - np.nan_to_num(
        ok.numbers("cached_tokens")
    )
    not_cached = np.where(np.isnan(processed), not_cached, processed)
    is_whole = ~(not_cached < LEAST_PROCESSED * tokens)  # also where it is not known

    by_server = processed / ok.numbers("server_prompt_ms") * 1e3
    by_client = tokens / ok.numbers("ttft_ms") * 1e3
    return _known_rates(by_server[is_whole]), _known_rates(by_client[is_whole])


def decoding_rates(ok: Records) -> tuple[Rates, Rates]:
    """Tokens per second of each answer, by the server's times and by the client's; without those
    that have none."""
    steps = ok.numbers("output_tokens") - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        by_server = steps / ok.numbers("server_predict_ms") * 1e3
        by_client = 1e3 / ok.numbers("tpot_ms")
    return _known_rates(by_server), _known_rates(by_client)


def _known_rates(rates: Rates) -> Rates:
    return rates[np.isfinite(rates) & (rates > 0)]
