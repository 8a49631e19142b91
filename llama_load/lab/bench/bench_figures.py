"""The figures of a bench's runs, with intervals.

Intervals are of 95 %, by Student's t: over requests sent one after the other (one user), and over
rounds (several): requests of one round wait for each other, so that they are no independent values.
A round is as many requests as there are users, in the order in which they ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.units import NS_PER_S
from llama_load.lab.bench.bench_runs import USERS, BenchRun
from llama_load.lab.sweep.mean_interval import MeanInterval, mean_with_interval
from llama_load.lab.sweep.rates_of_tests import decoding_rates
from llama_load.lab.sweep.tests_load import GENERATE, PROCESS
from llama_load.run_folder.observed.records import Records

# A prompt of whose depth a part was computed again: it was not cached.
CACHED_WITHIN = 1.5
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AloneFigure:
    """Tokens per second of a test of one user.

    `is_least`: the server does not say which part of the prompt it computed, so that the rate is
    that of the new tokens alone, or higher. `is_clients`: by the client's times.
    """

    name: str
    rate: MeanInterval
    is_least: bool
    is_clients: bool


@dataclass(frozen=True, slots=True)
class UsersFigure:
    """What users get at once. `ttft_ms` and `one` (tokens/s of one user): of each round the median;
    `together`: tokens/s of all."""

    context: int
    users: int
    ttft_ms: MeanInterval
    one: MeanInterval
    together: MeanInterval
    rounds: Sequence[tuple[float, float]]  # TTFT (ms) and tokens/s of one user


def alone_figure(records: Records, run: BenchRun) -> AloneFigure | None:
    """The figure of a test; None: no request shows it.

    pp: prompt tokens that the server computed / its time for them, or TTFT; tg: (output tokens - 1)
    / the server's time for them, or 1 / TPOT. Unit: tokens/s. Source: the answers' timings and
    usage, else the client's times.
    """
    ok = records.ok()
    if run.kind == GENERATE:
        return _generation(ok, run)
    return _processing(ok, run)


def _generation(ok: Records, run: BenchRun) -> AloneFigure | None:
    by_server, by_client = decoding_rates(ok)
    is_clients = not len(by_server)
    rate = mean_with_interval(by_client if is_clients else by_server)
    if rate is None:
        return None
    return AloneFigure(run.name, rate, is_least=False, is_clients=is_clients)


def _processing(ok: Records, run: BenchRun) -> AloneFigure | None:
    by_server = _positive(ok.numbers("server_prompt_ms"))
    is_clients = not np.isfinite(by_server).any()
    times_ms = _positive(ok.numbers("ttft_ms")) if is_clients else by_server

    computed = _computed_tokens(ok)
    is_unknown = not np.isfinite(computed).any()
    if is_unknown:
        computed = ok.numbers("prompt_tokens") - run.depth

    rate = mean_with_interval(computed / times_ms * 1e3)
    if rate is None:
        return None

    # Without a depth no prompt was sent before, so that nothing of it is cached.
    is_least = is_unknown and bool(run.depth)
    name = run.name
    median = float(np.nanmedian(computed))
    if run.depth and median > CACHED_WITHIN * run.tokens:
        name = f"{PROCESS}{run.depth + run.tokens}"
    return AloneFigure(name, rate, is_least, is_clients)


def _computed_tokens(ok: Records) -> Numbers:
    """Prompt tokens that the server computed; NaN where neither they nor the cached ones are
    known."""
    processed = ok.numbers("server_prompt_tokens")
    not_cached = ok.numbers("prompt_tokens") - ok.numbers("cached_tokens")
    return np.where(np.isnan(processed), not_cached, processed)


def users_figure(records: Records, run: BenchRun) -> UsersFigure | None:
    """What users get at once; None: not one round was answered.

    TTFT and TPOT by the client's times; tokens/s of all are output tokens of a round / time since
    the end of the round before it (of the first: since the first request).
    """
    assert run.kind == USERS
    ok = records.ok()
    ok = ok.where(ok.has("last_token_mono_ns") & ok.has("tpot_ms"))
    ends_ns = ok.instants("last_token_mono_ns")
    order = np.argsort(ends_ns, kind="stable")
    rounds = len(order) // run.users
    if not rounds:
        return None

    ttft_ms = ok.numbers("ttft_ms")
    speeds = 1e3 / _positive(ok.numbers("tpot_ms"))
    outputs = ok.numbers("output_tokens")
    before_ns = int(ok.instants("started_mono_ns").min())
    of_rounds = []
    together = []
    for number in range(rounds):
        places = order[number * run.users : (number + 1) * run.users]
        ended_ns = int(ends_ns[places[-1]])
        ttft = float(np.median(ttft_ms[places]))
        speed = float(np.median(speeds[places]))
        of_rounds.append((ttft, speed))
        together.append(outputs[places].sum() / (ended_ns - before_ns) * NS_PER_S)
        before_ns = ended_ns

    latencies = mean_with_interval([ttft for ttft, _ in of_rounds])
    speed_of_one = mean_with_interval([speed for _, speed in of_rounds])
    of_all = mean_with_interval(together)
    if latencies is None or speed_of_one is None or of_all is None:
        return None
    return UsersFigure(
        run.context, run.users, latencies, speed_of_one, of_all, of_rounds
    )


def _positive(values: Numbers) -> Numbers:
    return np.where(values > 0, values, np.nan)
