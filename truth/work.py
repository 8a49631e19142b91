"""Work: what a client is asked to do, in no client's words."""

from __future__ import annotations

from dataclasses import dataclass

from truth.cases import CLOSED, Case

MODEL = "simulated"


@dataclass(frozen=True, slots=True)
class Work:
    """A closed loop of `streams` requests in flight, or an open loop of `rate_rps` with `arrival`
    poisson or constant. Lengths are in tokens, of each request. `tokenizer` is a folder or a name,
    `seed` None where it was not given.

    With `ttft_ms` the client searches the load: the most users of whom `share` of the requests get
    their first token in time. `warmup` requests come before. With `seconds` the run ends by time.
    `prompts`: a file with an object per line, whose texts (`prompt`) are sent in their order;
    empty: generated ones.
    """

    url: str
    requests: int
    tokens: int
    prompt_tokens: int
    streams: int = 0
    rate_rps: float = 0.0
    arrival: str = CLOSED
    choices: int = 1
    model: str = MODEL
    tokenizer: str = ""
    seed: int | None = None
    warmup: int = 0
    seconds: float = 0.0
    prompts: str = ""
    ignore_eos: bool = True
    ttft_ms: float = 0.0
    share: float = 0.0

    @property
    def closed(self) -> bool:
        """Whether the next request waits for the end of another."""
        return self.arrival == CLOSED

    @property
    def duration_s(self) -> int:
        """Of an open loop, for clients that take a time instead of a number of requests."""
        return max(1, round(self.requests / self.rate_rps))


def work_of(case: Case, url: str, tokenizer: str, prompts: str = "") -> Work:
    """The work of a case at the server that serves it."""
    load = case.load
    return Work(
        url=url,
        requests=load.requests,
        tokens=load.tokens,
        prompt_tokens=load.prompt_tokens,
        streams=load.streams,
        rate_rps=load.rate_rps,
        arrival=load.arrival,
        choices=load.choices,
        tokenizer=tokenizer,
        warmup=load.warmup,
        seconds=load.seconds,
        prompts=prompts if load.file else "",
        ttft_ms=load.ttft_ms,
        share=load.share,
    )
