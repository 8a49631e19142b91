"""Service level objectives and goodput."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from llama_load.metrics.definitions import BY_KEY, OBJECTIVE_KEYS
from llama_load.metrics.records import Records


@dataclass(frozen=True, slots=True)
class Slo:
    """One objective: the metric's value of a request must not exceed `limit_ms`. `text` is how it was given."""

    metric: str
    limit_ms: float
    text: str = field(default="", compare=False)


def parse_slo(text: str) -> Slo:
    """Read `ttft:500` (ms, as vLLM's --goodput). Raises ValueError with a sentence."""
    metric, _, limit = text.partition(":")
    try:
        value = float(limit)
    except ValueError:
        value = -1.0
    if metric not in OBJECTIVE_KEYS or not value > 0:
        raise ValueError(f"--goodput wants METRIC:MILLISECONDS with {', '.join(OBJECTIVE_KEYS)}, such as ttft:500, got {text!r}")
    return Slo(metric, value, text)


def meets(ok: Records, slos: tuple[Slo, ...]) -> int | None:
    """How many successful requests meet every objective; None if one of them has a metric that was not measured (TTFT and TPOT of a
    whole answer, say). Goodput is this / duration, in req/s.

    A request that has no TPOT because it has no second token meets that objective, as in vLLM.
    """
    good = np.ones(len(ok), dtype=np.bool_)
    for slo in slos:
        values = sum(map(ok.numbers, BY_KEY[slo.metric].columns), np.zeros(len(ok)))
        needless = np.zeros(len(ok), dtype=np.bool_)
        if slo.metric == "tpot":
            needless = ok.has("first_token_mono_ns") & (ok.numbers("output_tokens") < 2)
        if (np.isnan(values) & ~needless).any():
            return None
        good &= needless | (values <= slo.limit_ms)
    return int(good.sum())
