"""What each client is asked to do: how many streams, of which server, on which machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from truth.cases import CLOSED, CONSTANT, POISSON, Answers

PROMPT_TOKENS = 40
SYNCHRONOUS = Answers(synchronous=True)
JITTERED = Answers(jitter_ms=8.0)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A closed loop of `streams` requests in flight, or an open loop of `rate_rps`.

    `busy`: as many other processes as cores never sleep. `quota`: the share of one core that the
    client gets.
    """

    name: str
    title: str
    requests: int
    tokens: int = 100
    prompt_tokens: int = PROMPT_TOKENS
    streams: int = 0
    schedule: Answers = SYNCHRONOUS
    busy: bool = False
    quota: float | None = None
    arrival: str = CLOSED
    rate_rps: float = 0.0


# In the order of the measurement: a run that ends early has the first ones of all clients.
SCENARIOS = (
    Scenario("64", "64 streams", 128, streams=64),
    Scenario("400", "400 streams", 800, streams=400),
    Scenario(
        "64-busy", "64 streams, a busy process per core", 128, streams=64, busy=True
    ),
    Scenario(
        "poisson",
        "20 requests/s, Poisson",
        300,
        tokens=50,
        schedule=JITTERED,
        arrival=POISSON,
        rate_rps=20,
    ),
    Scenario("1", "1 stream", 10, streams=1),
    Scenario("1600", "1600 streams", 3200, streams=1600),
    Scenario(
        "400-jittered",
        "400 streams, tokens at random times",
        800,
        streams=400,
        schedule=JITTERED,
    ),
    Scenario("64-slow", "64 streams, half of a core", 128, streams=64, quota=0.5),
    Scenario(
        "constant",
        "20 requests/s, evenly spaced",
        300,
        tokens=50,
        schedule=JITTERED,
        arrival=CONSTANT,
        rate_rps=20,
    ),
)


@dataclass(frozen=True, slots=True)
class Job:
    """A scenario against the server at `url`; the client's files go into `folder`."""

    scenario: Scenario
    url: str
    folder: Path
    tokenizer: Path
