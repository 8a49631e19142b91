"""What a client reports, in the words of all clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Seen:
    """A completed request as the client reports it; times in ms, None where it reports none.

    It is matched with the server's log by the server's `number` of the request, or by the
    `request_id` that the client sent; with neither only distributions can be compared. `itl_ms` has
    a gap per event after the first, in their order, or is empty. `late_ms`: how long after its
    scheduled time the request was sent.
    """

    number: int | None = None
    request_id: str | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2el_ms: float | None = None
    itl_ms: Sequence[float] = ()
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    late_ms: float | None = None


TIMES, RATES, COUNTS, LOAD, PERCENTILES = (
    "times",
    "rates",
    "counts",
    "load",
    "percentiles",
)
TOPICS = (TIMES, RATES, COUNTS, LOAD, PERCENTILES)


@dataclass(frozen=True, slots=True)
class Doubt:
    """What a client itself says against its figures, and against which of them."""

    text: str
    about: Sequence[str] = TOPICS


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run.

    `requests`: the completed ones. `reported`: figures of the client's own summary (`p99_ttft_ms`,
    `request_rps`, `output_tok_per_s`…). `completed`, `failed`, `output_tokens`, `input_tokens`: its
    counts, None where it has none. `doubts`: what the client itself says against its figures.
    """

    requests: Sequence[Seen]
    reported: Mapping[str, float] = field(default_factory=dict)
    completed: int | None = None
    failed: int | None = None
    output_tokens: int | None = None
    input_tokens: int | None = None
    doubts: Sequence[Doubt] = ()
    note: str = ""

    def doubts_about(self, topic: str) -> list[Doubt]:
        """What the client says against figures of this kind."""
        return [doubt for doubt in self.doubts if topic in doubt.about]
