"""Checks of the client: were its own delays small against the measured latencies (see
`analysis.figures.check.OWN_SHARE`)?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.check_limits import LIMITS, OWN_SHARE
from llama_load.analysis.figures.cpu_shares import cpu_shares
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.spoiled import RATES
from llama_load.analysis.statistics.statistics import known
from llama_load.ground.units import quantity
from llama_load.run_folder.arithmetic.percentiles import is_enough
from llama_load.run_folder.vocabulary.bound import Bound

# With fewer values the largest one counts (see `_high`).
LEAST_TO_EXCUSE_ONE = 10
# A pause of 1 % of the time changes rates by as much; a longer one than this is an event in any
# run.
LONGEST_PAUSE_MS = 1000.0
# `WorkerHealth.receiver` of a client in which a thread apart reads.
COMPILED = "compiled"
# Arrivals that the kernel stamped, in `Summary.clock_sources`.
KERNEL = "kernel"
# Beginning of `WorkerHealth.priority` of a client that has real-time priority.
REAL_TIME = "real-time"
LEAVE_A_CORE = (
    "leave it a core (fewer threads for the server), or run it on another machine"
)


def late(evidence: Evidence) -> Iterator[Check]:
    """How late scheduled requests were sent, without the wait for the limit of requests in flight.
    Limit: 1 % of the mean gap between arrivals."""
    values = known(evidence.records.numbers("late_ms"))
    if not len(values):
        return
    value, which = _high(values, evidence)
    text = f"scheduled requests were sent late: {which} {value:.2f} ms, max {values.max():.2f} ms"
    limit = OWN_SHARE * (evidence.gap_ms or 0.0)
    yield limited("late_p99_ms", value, text, limit=limit, advice=_advice(evidence))


def own_delay(evidence: Evidence) -> Check:
    """The client's own delay before a request was sent. Evidence: the kernel's time of the TCP
    handshake against the client's. Where it is known for each request, it is in no figure. Else
    limit: 1 % of the median TTFT (E2EL without streaming)."""
    values = known(evidence.records.numbers("own_delay_ms"))
    if not len(values):
        return limited(
            "own_delay_p99_ms",
            None,
            "the client's own delay before sending is not known",
        )
    value, which = _high(values, evidence)
    text = f"the client's own delay before sending: {which} {value:.2f} ms"
    if is_left_out(evidence):
        return information(
            "own_delay_p99_ms", value, f"{text}, which no latency includes"
        )
    limit = OWN_SHARE * (_median(evidence, "ttft") or _median(evidence, "e2el"))
    return limited(
        "own_delay_p99_ms",
        value,
        text,
        limit=limit,
        advice=_advice(evidence),
        bound=Bound(ms=float(values.max())),
    )


def event_loop(evidence: Evidence) -> Iterator[Check]:
    """The lag of the client's event loop, its longest pause, and who took the machine. Evidence: a
    timer every 20 ms; CPU times of the client, the servers and the machine. Where the kernel stamps
    every arrival, and the delay before sending is known, a lag is in no latency: users of a closed
    loop ask later by it (see `asked_later`; of an open one see `late`). Else limit of the lag: 1 %
    of the median E2EL (in an open loop: of the mean gap between arrivals)."""
    health = evidence.health
    p99 = _worst([worker.loop_lag_p99_ms for worker in health])
    longest = _worst(
        [worker.longest_pause_ms or worker.loop_lag_max_ms for worker in health]
    )
    asleep = _worst([worker.suspended_ms for worker in health]) or 0.0
    text = "the client's event loop lag was not measured"
    if p99 is not None and longest is not None:
        text = f"client event loop lag: p99 {p99:.2f} ms, max {longest:.1f} ms"
    is_late = loop_is_late(evidence)
    shares = cpu_shares(health)
    if is_late and shares is not None:
        text += f"; {shares.text}"
    left_out = is_left_out(evidence)
    if left_out:
        yield information("loop_lag_p99_ms", p99, text)
    else:
        yield limited(
            "loop_lag_p99_ms",
            p99,
            text,
            limit=_loop_limit_ms(evidence),
            advice=_advice(evidence),
            bound=_bound_of_lag(evidence, p99, longest),
        )
    if left_out and evidence.gap_ms is None:
        yield asked_later(evidence, p99)
    pause = max(longest or 0.0, asleep)
    most = max(
        LIMITS["client_pause_ms"].limit,
        min(LONGEST_PAUSE_MS, OWN_SHARE * evidence.figures.duration_s * 1e3),
    )
    if pause > most:  # else the lag's maximum shows it
        why = (
            "the machine was suspended"
            if asleep >= pause
            else "nothing was sent or read then"
        )
        yield limited(
            "client_pause_ms",
            pause,
            f"the client was paused for {pause / 1000:.1f} s: {why}",
            limit=most,
            spoils=(RATES,) if left_out else None,
            bound=_bound_of_pause(evidence, pause),
        )


def _bound_of_lag(
    evidence: Evidence, p99_ms: float | None, longest_ms: float | None
) -> Bound | None:
    """A latency has the longest lag at most; users of a closed loop ask later by it. None where the
    load is a schedule, whose rates a lag does not bound."""
    e2el_ms = evidence.figures.distributions["e2el"].mean
    if p99_ms is None or longest_ms is None or not e2el_ms or evidence.gap_ms:
        return None
    return Bound(ms=longest_ms, ratio=p99_ms / e2el_ms)


def _bound_of_pause(evidence: Evidence, pause_ms: float) -> Bound | None:
    duration_ms = evidence.figures.duration_s * 1e3
    if pause_ms >= duration_ms:
        return None
    return Bound(ms=pause_ms, ratio=pause_ms / (duration_ms - pause_ms))


def is_left_out(evidence: Evidence) -> bool:
    """Whether the client's own delays are in no latency: the kernel stamped every arrival, and the
    delay before sending is known of each request."""
    ok = evidence.records.ok()
    sources = evidence.figures.clock_sources
    is_kernels = sources.get(KERNEL, 0) == sum(sources.values())
    return len(ok) > 0 and is_kernels and bool(ok.has("asked_mono_ns").all())


def asked_later(evidence: Evidence, lag_p99_ms: float | None) -> Check:
    """By how much users of a closed loop ask later than at once, which lowers rates, at most: (mean
    own delay + p99 of the loop's lag) / mean E2EL. 2 ms and 10 ms at 600 ms: 2 %."""
    name = "asked_later_ratio"
    e2el_ms = evidence.figures.distributions["e2el"].mean
    if lag_p99_ms is None or not e2el_ms:
        return limited(name, None, "how late users asked is not known")
    own_ms = float(np.mean(known(evidence.records.numbers("own_delay_ms"))))
    later_ms = own_ms + lag_p99_ms
    text = f"users asked up to {later_ms:.1f} ms later than at once, which lowers rates by at most "
    text += f"{later_ms / e2el_ms:.1%}"
    ratio = later_ms / e2el_ms
    return limited(
        name, ratio, text, advice=_advice(evidence), bound=Bound(ratio=ratio)
    )


def loop_is_late(evidence: Evidence) -> bool:
    """Whether the event loop's lag exceeds its limit. Then bursts and unexplained time may be the
    client's, not a proxy's."""
    p99 = _worst([worker.loop_lag_p99_ms for worker in evidence.health])
    return p99 is not None and p99 > max(
        LIMITS["loop_lag_p99_ms"].limit, _loop_limit_ms(evidence)
    )


def reads_are_late(evidence: Evidence) -> bool:
    """Whether the event loop's lag may have merged tokens: it reads late, unless a thread apart
    reads (the compiled receiver)."""
    is_apart = bool(evidence.health) and all(
        worker.receiver == COMPILED for worker in evidence.health
    )
    return loop_is_late(evidence) and not is_apart


def _loop_limit_ms(evidence: Evidence) -> float:
    return OWN_SHARE * (
        _median(evidence, "e2el") if evidence.gap_ms is None else evidence.gap_ms
    )


def cpu(evidence: Evidence) -> Iterator[Check]:
    """How busy the client's core was, and how much CPU time the hypervisor gave to others."""
    busy = _worst([worker.core_busy for worker in evidence.health])
    text = (
        "the client's CPU use was not measured"
        if busy is None
        else f"busiest client process: {busy:.0%} of a core"
    )
    shares = cpu_shares(evidence.health)
    text += "" if shares is None else f"; {shares.text}"
    yield limited("core_busy", busy, text)
    stolen = _worst([worker.stolen_ratio for worker in evidence.health])
    if stolen:
        yield limited(
            "stolen_ratio",
            stolen,
            f"{stolen:.1%} of the client machine's CPU time was taken by its hypervisor",
        )


def core_wait(evidence: Evidence) -> Check:
    """The share of time in which the client was ready to run but waited for a core: of the worker
    that waited most."""
    waiting = [
        worker for worker in evidence.health if worker.core_wait_ratio is not None
    ]
    if not waiting:
        return limited(
            "core_wait_ratio",
            None,
            "how long the client waited for a core is not known",
        )
    worst = max(waiting, key=lambda worker: worker.core_wait_ratio or 0.0)
    text = (
        f"the client waited for a core {worst.core_wait_ratio or 0.0:.1%} of the time, "
    )
    text += f"for up to {worst.core_wait_longest_ms or 0.0:.1f} ms"
    text += f" (priority: {worst.priority})" if worst.priority else ""
    if is_left_out(evidence):
        # tokens that it merged have a check of their own
        return information("core_wait_ratio", worst.core_wait_ratio, text)
    has_it = worst.priority is not None and worst.priority.startswith(REAL_TIME)
    return limited(
        "core_wait_ratio",
        worst.core_wait_ratio,
        text,
        advice=LEAVE_A_CORE if has_it else None,
    )


def master_lag(evidence: Evidence) -> Iterator[Check]:
    """How far a swarm's master is behind: the time from the end of a request until its record is on
    disk."""
    if evidence.master_lag_s is not None:
        text = f"90 % of the records were on the master's disk within {evidence.master_lag_s:.1f} s of their request's end"
        yield limited("master_lag_s", evidence.master_lag_s, text)


def clock(evidence: Evidence) -> Check:
    """The source of arrival times: kernel timestamps, or the client process."""
    sources = evidence.figures.clock_sources
    kernel = sources.get(KERNEL, 0)
    total = sum(sources.values())
    if not total:
        text = "no arrival time was recorded"
    elif kernel == total:
        text = "all arrival times are kernel receive timestamps"
        receivers = sorted(
            {
                worker.receiver
                for worker in evidence.health
                if worker.receiver is not None
            }
        )
        if receivers:
            text += f" (receiver: {', '.join(receivers)})"
    else:
        text = f"{total - kernel} of {quantity(total, 'request')} were timed in user space{_lacking(evidence, kernel)}, at least in part: client load delays that"
    return information("kernel_clock_ratio", kernel / total if total else None, text)


def _lacking(evidence: Evidence, kernel: int) -> str:
    """What this system lacks, where no arrival time is the kernel's."""
    if kernel:
        return ""
    lacking = ["no kernel timestamps"]
    for worker in evidence.health:
        if worker.priority is not None and not worker.priority.startswith(REAL_TIME):
            lacking.append("no real-time priority")
            break
    return f" ({'; '.join(lacking)})"


def swarm_clock(evidence: Evidence) -> Iterator[Check]:
    """The uncertainty of the workers' clocks: it affects instants compared between workers, and no
    latency."""
    worst = _worst([worker.clock_uncertainty_ms for worker in evidence.health])
    if worst is not None:
        text = f"clocks of {quantity(len(evidence.health), 'worker')} are synchronized within {worst:.2f} ms"
        yield information(
            "clock_uncertainty_ms", worst, text + "; latencies do not depend on it"
        )


def connections(evidence: Evidence) -> Check:
    """How connections were used: opening one is part of TTFT."""
    figures = evidence.figures
    requests = len(evidence.records)
    reused = figures.reused_connections
    reopened = figures.reopened_connections
    if not reused and not reopened:
        text = "every request opened a new connection, which is part of its TTFT"
    else:
        text = f"{reused} of {quantity(requests, 'request')} reused an open connection"
        if reopened:
            text += f"; {reopened} found it closed by the server and were sent again on a new one"
    return information(
        "reused_connection_ratio", reused / requests if requests else None, text
    )


def _advice(evidence: Evidence) -> str | None:
    """What to do where another program or the servers took the client's machine; None: the usual
    remedy."""
    shares = cpu_shares(evidence.health)
    return None if shares is None else shares.advice


def _high(values: NDArray[np.float64], evidence: Evidence) -> tuple[float, str]:
    """The value to compare with a limit, and its name: p99 of 100 values or more, or the highest
    printed percentile above it that they are enough for; the second largest of 10 to 99 (a single
    outlier moves no figure by 1 %); the largest of fewer."""
    if is_enough(len(values), 99):
        p = max(
            (p for p in evidence.percentiles if p > 99 and is_enough(len(values), p)),
            default=99.0,
        )
        return float(np.percentile(values, p)), f"p{p:g}"
    if len(values) < LEAST_TO_EXCUSE_ONE:
        return float(values.max()), "at most"
    return float(np.partition(values, -2)[-2]), "all but one within"


def _median(evidence: Evidence, key: str) -> float:
    return evidence.figures.distributions[key].median or 0.0


def _worst(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
