"""Runs on simulated queues whose truth is known: open and closed loops, and servers that change.

A server has slots; a request waits for one (first come, first served), is prefilled and decoded.
`Slowdown`s make it slower by a factor for a part of the time; the work of a request that meets one
is stretched for just that part.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.constant_load import Observed

Floats = NDArray[np.float64]
Instants = NDArray[np.int64]

SLOTS = 4
PREFILL_S, TPOT_S, TOKENS = 0.1, 0.02, 46
SERVICE_S = PREFILL_S + TPOT_S * (TOKENS - 1)  # 1.0

# How the number of tokens varies; the last draws the speed instead: the same lengths, another TPOT
# for each request.
LAWS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "deterministic": lambda rng, n: np.ones(n),
    "exponential": lambda rng, n: rng.exponential(1.0, n),
    "lognormal": lambda rng, n: rng.lognormal(-0.5, 1.0, n),
}


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The server is `factor` times as slow from `begin_s` to `end_s`."""

    begin_s: float
    end_s: float
    factor: float


@dataclass(frozen=True, slots=True)
class QueueRun:
    """The requests of a run, in order of their start; `scheduled_ns` None in a closed loop.
    `tokens` of each answer."""

    scheduled_ns: Instants | None
    started_ns: Instants
    first_ns: Instants
    ended_ns: Instants
    tokens: Instants

    @property
    def ttft_ms(self) -> Floats:
        """Time to first token."""
        return np.asarray((self.first_ns - self.started_ns) / 1e6)

    @property
    def tpot_ms(self) -> Floats:
        """Time per output token after the first."""
        return np.asarray((self.ended_ns - self.first_ns) / 1e6 / (self.tokens - 1))

    @property
    def e2el_ms(self) -> Floats:
        """End-to-end latency."""
        return np.asarray((self.ended_ns - self.started_ns) / 1e6)


class _Clock:
    """Converts work of the server (s at its normal speed) into time, and back."""

    def __init__(self, changes: Sequence[Slowdown]) -> None:
        edges = sorted(
            {
                0.0,
                1e7,
                *(each.begin_s for each in changes),
                *(min(each.end_s, 1e7) for each in changes),
            }
        )
        work = [0.0]
        for begin, end in zip(edges[:-1], edges[1:], strict=True):
            factor = float(
                np.prod(
                    [
                        each.factor
                        for each in changes
                        if each.begin_s <= begin < each.end_s
                    ]
                    or [1.0]
                )
            )
            work.append(work[-1] + (end - begin) / factor)
        self._edges, self._work, self._is_even = edges, work, not changes

    def after(self, at_s: float, work_s: float) -> float:
        """When work that begins at `at_s` is done."""
        if self._is_even:
            return at_s + work_s
        return float(
            np.interp(
                np.interp(at_s, self._edges, self._work) + work_s,
                self._work,
                self._edges,
            )
        )

    def work(self, begin_s: float, end_s: float) -> float:
        """The work that is done between two instants."""
        if self._is_even:
            return end_s - begin_s
        return float(
            np.interp(end_s, self._edges, self._work)
            - np.interp(begin_s, self._edges, self._work)
        )


def open_loop(
    rng: np.random.Generator,
    n: int,
    load: float,
    law: str = "exponential",
    **more: object,
) -> QueueRun:
    """Poisson arrivals at `load` x the capacity: M/M/4 with the exponential law."""
    arrivals = np.cumsum(rng.exponential(SERVICE_S / (SLOTS * load), n))
    return _run(rng, n, law, arrivals=arrivals.tolist(), **more)  # type: ignore[arg-type]


def closed_loop(
    rng: np.random.Generator,
    n: int,
    users: int,
    law: str = "exponential",
    **more: object,
) -> QueueRun:
    """`users` that all start at once on an idle server, and send their next request when the last
    one is answered."""
    return _run(rng, n, law, users=users, **more)  # type: ignore[arg-type]


def shared_loop(
    rng: np.random.Generator,
    n: int,
    load: float,
    law: str = "exponential",
    changes: Sequence[Slowdown] = (),
) -> QueueRun:
    """An open loop on a server that works on all requests at once, as with continuous batching: up
    to `SLOTS` at full speed, more share it, so that TPOT is long where many are in flight.

    All progress alike, by V(t) with dV/dt = min(1, SLOTS / in flight): a request's milestones are
    at V(its arrival) + its work.
    """
    arrivals = np.cumsum(rng.exponential(SERVICE_S / (SLOTS * load), n))
    tokens = np.maximum(2, np.rint(TOKENS * LAWS[law](rng, n))).astype(np.int64)
    prefill = PREFILL_S * rng.lognormal(0, 0.1, n)
    decode = (tokens - 1) * TPOT_S * rng.lognormal(0, 0.05, n)
    clock, milestones = _Clock(changes), []
    firsts, ends = np.zeros(n), np.zeros(n)
    now = progress = 0.0
    in_flight = arrived = 0
    while arrived < n or milestones:
        speed = min(1.0, SLOTS / in_flight) if in_flight else 1.0
        due = (
            clock.after(now, (milestones[0][0] - progress) / speed)
            if milestones
            else float("inf")
        )
        if arrived < n and arrivals[arrived] <= due:
            at = float(arrivals[arrived])
            progress += clock.work(now, at) * speed
            heapq.heappush(
                milestones, (progress + float(prefill[arrived]), arrived, False)
            )
            heapq.heappush(
                milestones,
                (progress + float(prefill[arrived] + decode[arrived]), arrived, True),
            )
            now, in_flight, arrived = at, in_flight + 1, arrived + 1
            continue
        now = due
        progress, number, is_end = heapq.heappop(milestones)
        (ends if is_end else firsts)[number] = now
        in_flight -= is_end
    started_ns, first_ns, ended_ns = (
        np.rint(each * 1e9).astype(np.int64) for each in (arrivals, firsts, ends)
    )
    return QueueRun(started_ns, started_ns, first_ns, ended_ns, tokens)


def _run(
    rng: np.random.Generator,
    n: int,
    law: str,
    *,
    arrivals: Sequence[float] | None = None,
    users: int = 0,
    slots: int = SLOTS,
    changes: Sequence[Slowdown] = (),
    slow_first: float = 1.0,
    varies: str = "tokens",
    until_s: float = float("inf"),
) -> QueueRun:
    """`slow_first`: the first request's prefill takes this many times as long. `varies`: what the
    law draws, "tokens" or "speed". `until_s`: no request starts later."""
    draws = LAWS[law](rng, n)
    tokens = np.maximum(
        2, np.rint(TOKENS * (draws if varies == "tokens" else 1.0))
    ).astype(np.int64) * np.ones(n, np.int64)
    decode = (
        (tokens - 1)
        * TPOT_S
        * rng.lognormal(0, 0.05, n)
        * (draws if varies == "speed" else 1.0)
    )
    prefill = PREFILL_S * rng.lognormal(0, 0.1, n)
    prefill[0] *= slow_first
    clock, free = _Clock(changes), [0.0] * slots
    ready = [0.0] * users
    starts, firsts, ends = [], [], []
    for number in range(n):
        start = arrivals[number] if arrivals is not None else heapq.heappop(ready)
        if start >= until_s:
            break
        first = clock.after(max(start, free[0]), float(prefill[number]))
        end = clock.after(first, float(decode[number]))
        heapq.heapreplace(free, end)
        if arrivals is None:
            heapq.heappush(ready, end)
        starts.append(start)
        firsts.append(first)
        ends.append(end)
    started_ns, first_ns, ended_ns = (
        np.rint(np.array(each) * 1e9).astype(np.int64)
        for each in (starts, firsts, ends)
    )
    return QueueRun(
        started_ns if arrivals is not None else None,
        started_ns,
        first_ns,
        ended_ns,
        tokens[: len(starts)],
    )


def observed(run: QueueRun, cut_s: float | None = None) -> Observed:
    """The run as the verdict sees it; `cut_s`: what had not ended by then was cancelled."""
    cut_ns = 2**62 if cut_s is None else round(cut_s * 1e9)
    is_ok, first_ns = (
        run.ended_ns <= cut_ns,
        np.where(run.first_ns <= cut_ns, run.first_ns, -1),
    )
    got = np.where(
        is_ok, run.tokens, np.clip((cut_ns - run.first_ns) / 1e6 / run.tpot_ms, 0, None)
    )
    end_ns = int(run.started_ns.max()) if cut_s is None else cut_ns
    return Observed(
        started_ns=run.started_ns,
        first_ns=first_ns,
        ended_ns=np.minimum(run.ended_ns, cut_ns),
        is_ok=is_ok,
        is_failed=np.zeros(len(is_ok), dtype=np.bool_),
        ttft_ms=np.where(is_ok, run.ttft_ms, np.nan),
        tpot_ms=np.where(is_ok | (got > 2), run.tpot_ms, np.nan),
        e2el_ms=np.where(is_ok, run.e2el_ms, np.nan),
        tokens=got,
        prompt_tokens=np.full(len(is_ok), 100.0),
        begin_ns=int(run.started_ns.min()),
        end_ns=end_ns,
        scheduled_ns=run.scheduled_ns,
    )
