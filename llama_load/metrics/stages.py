"""The figures of a stage: latencies of the requests that lived entirely in it, throughputs of its time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.rates import token_times_ns
from llama_load.metrics.server_counters import ServerCounters
from llama_load.metrics.slo import Slo, meets
from llama_load.metrics.summary import Totals
from llama_load.metrics.table import Records
from llama_load.units import ns_to_s


@dataclass(frozen=True, slots=True)
class StageFigures:
    """A stage and its figures. `crossing` requests of it ended after it and are in none of them; `dropped` were never sent.
    `lost` workers went away in it.

    `users` requests were in flight, or `rate_rps` arrived a second. `is_whole`: it came to its end.
    """

    name: str
    users: int | None
    rate_rps: float | None
    figures: Totals
    crossing: int = 0
    dropped: int = 0
    is_whole: bool = True
    peak: int = 0  # requests that began in it, crossing ones included, in flight at once
    lost: int = 0
    counters: ServerCounters | None = None  # what the servers counted in it

    @property
    def is_reached(self) -> bool:
        """Whether as many requests were in flight at once as it says, if there were twice as many to send."""
        count = self.figures.completed + self.figures.failed + self.crossing
        return self.users is None or count < 2 * self.users or self.peak >= self.users

    @property
    def is_comparable(self) -> bool:
        """Whether its figures may be ranked: its load was what it says, all requests were answered, and none was dropped."""
        good = self.is_whole and self.is_reached and not self.lost and self.figures.completed > 0
        return good and not self.figures.failed and not self.dropped

    @property
    def crossing_ratio(self) -> float:
        """The share of its requests that ended after it, 0 to 1."""
        inside = self.figures.completed + self.figures.failed
        return self.crossing / (self.crossing + inside) if self.crossing else 0.0

    @property
    def tok_per_s_per_user(self) -> float | None:
        """How fast a user sees tokens come, tokens/s: 1000 / mean TPOT in ms. Mean TPOT 20 ms: 50.0."""
        mean = self.figures.distributions["tpot"].mean
        return 1000 / mean if mean else None


def inside(records: Records, stage: int, ended_mono_ns: int | None) -> tuple[Records, int]:
    """The records of a stage that ended in it, or failed whenever that was, and how many others there are. None: it had no end, so
    all ended in it. (What hangs ends late: a stage is not to be praised for requests that time out after it.)"""
    own = records.where(records.equals("stage", stage))
    if ended_mono_ns is None:
        return own, 0
    ended = own.where((own.instants("ended_mono_ns") <= ended_mono_ns) | own.is_failed())
    return ended, len(own) - len(ended)


def in_its_time(figures: Totals, measured: Records, begun_mono_ns: int, ended_mono_ns: int, slos: tuple[Slo, ...]) -> Totals:
    """The figures of a stage that had a time, with the throughputs of this time.

    A request counts when it ends, its prompt when the first token comes, an output token when it comes, whoever's request it was
    and whichever stage that began in. Of the requests that lived entirely in the stage alone, throughput would be too low: at its
    beginning and end the server works on others. 8 in flight, each for 1 s, in a stage of 8 s: 8 of 64 are missing.
    """
    span_s = ns_to_s(ended_mono_ns - begun_mono_ns)

    def within(instants_ns: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((instants_ns >= begun_mono_ns) & (instants_ns < ended_mono_ns))

    ok = measured.ok()
    tells_prompts = not np.isnan(ok.numbers("prompt_tokens")).all()
    # The tokens of all others came at other times: every stage looks at its own alone.
    ok = ok.where((ok.instants("started_mono_ns") < ended_mono_ns) & (ok.instants("ended_mono_ns") >= begun_mono_ns))
    ended = ok.where(within(ok.instants("ended_mono_ns")))
    output = sum(float(weights[within(times_ns)].sum()) for times_ns, weights in token_times_ns(ok))
    first_ns = np.where(np.isnan(ok.numbers("first_token_mono_ns")), ok.numbers("ended_mono_ns"), ok.numbers("first_token_mono_ns"))
    prompts = ok.numbers("prompt_tokens")[within(first_ns)]
    return replace(
        figures,
        duration_s=span_s,
        request_throughput=len(ended) / span_s,
        request_goodput=None if figures.request_goodput is None else meets(ended, slos) / span_s,
        output_throughput=output / span_s,
        total_token_throughput=(output + float(np.nansum(prompts))) / span_s if tells_prompts else None,
    )


def repeated_prompts(measured: Records, stages: int) -> int:
    """How many requests had a prompt that a request of an earlier stage had."""
    seen: set[str] = set()
    again = 0
    for stage in range(stages):
        own = measured.where(measured.equals("stage", stage)).strings("prompt_sha256")
        again += sum(digest in seen for digest in own)
        seen.update(own)
    return again
