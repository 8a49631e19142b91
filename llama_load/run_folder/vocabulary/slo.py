"""Service level objectives and goodput."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.vocabulary.definitions import BY_KEY, OBJECTIVE_KEYS


@dataclass(frozen=True, slots=True)
class Slo:
    """An objective: a request's value of the metric must not exceed `limit_ms`. `text` is the
    flag's value as given."""

    metric: str
    limit_ms: float
    text: str = field(default="", compare=False)


def parse_slo(text: str) -> Slo:
    """Parse `ttft:500` (ms, as vLLM's --goodput). Raises ValueError with a message for users."""
    metric, _, limit = text.partition(":")
    try:
        value = float(limit)
    except ValueError:
        value = -1.0
    if metric not in OBJECTIVE_KEYS or not value > 0:
        raise ValueError(
            f"--goodput takes METRIC:MILLISECONDS with {', '.join(OBJECTIVE_KEYS)}, such as ttft:500, got {text!r}"
        )
    return Slo(metric, value, text)


def met(ok: Records, slo: Slo) -> NDArray[np.bool_] | None:
    """Whether each successful request meets the objective; None if the metric was not measured
    (TTFT and TPOT without streaming).

    A request without a second token has no TPOT and meets that objective, as in vLLM.
    """
    values = BY_KEY[slo.metric].of_each(ok)
    needless = np.zeros(len(ok), dtype=np.bool_)
    if slo.metric == "tpot":
        needless = ok.has("first_token_mono_ns") & (ok.numbers("output_tokens") < 2)
    if (np.isnan(values) & ~needless).any():
        return None
    return np.asarray(needless | (values <= slo.limit_ms))


def margin_ms(ok: Records, slos: tuple[Slo, ...]) -> float | None:
    """The least by which the latencies of all requests would have to be lower for one more of them
    to meet every objective, in ms; infinite where all meet them, None if a metric was not measured.

    Objectives ttft:500 and e2el:2000; one request with 510 and 2030 ms misses them: 30.
    """
    excess_ms = np.full(len(ok), -math.inf)
    for slo in slos:
        if met(ok, slo) is None:
            return None
        values = BY_KEY[slo.metric].of_each(ok)
        excess_ms = np.fmax(excess_ms, values - slo.limit_ms)

    missed = excess_ms[excess_ms > 0]
    return float(missed.min(initial=math.inf))


def meets(ok: Records, slos: tuple[Slo, ...]) -> int | None:
    """How many successful requests meet every objective; None if a metric was not measured. Goodput
    is this / duration, in 1/s."""
    good = np.ones(len(ok), dtype=np.bool_)
    for slo in slos:
        is_met = met(ok, slo)
        if is_met is None:
            return None
        good &= is_met
    return int(good.sum())
