"""How far a result can be trusted: a list of checks and one word.

The word is that of the first group, in the order of `WORDS`, with a check that is not ok:

    INCOMPLETE      records are missing
    CLIENT-BOUND    the client was too busy to be believed
    NOT COMPARABLE  something else than the traffic asked for was measured
    BLURRED         single gaps between tokens cannot be told apart
    VALID           none of these
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from llama_load.metrics.summary import Totals
from llama_load.metrics.table import Records

INCOMPLETE, CLIENT_BOUND, NOT_COMPARABLE, BLURRED, VALID = WORDS = (
    "INCOMPLETE",
    "CLIENT-BOUND",
    "NOT COMPARABLE",
    "BLURRED",
    "VALID",
)


@dataclass(frozen=True, slots=True)
class Limit:
    """A check's word, its limit (the value must not exceed it) and the reason for the number."""

    word: str
    limit: float
    reason: str


# How LLM servers name themselves in the Server field; any other name is that of something in between.
MOST_NAMED = 12
LLM_SERVERS = ("llama.cpp", "uvicorn")

LIMITS = {
    "missing_records": Limit(INCOMPLETE, 0, "a request that is not in the records is in no figure"),
    "missing_stages": Limit(INCOMPLETE, 0, "a comparison of loads wants all of them"),
    "lost_requests": Limit(INCOMPLETE, 0, "the server may have worked on them, and nobody knows how"),
    "own_delay_p99_ms": Limit(CLIENT_BOUND, 5.0, "it is part of every TTFT, and users notice differences of tens of ms"),
    "late_p99_ms": Limit(CLIENT_BOUND, 5.0, "the schedule is the load: what is sent later is another load"),
    "loop_lag_p99_ms": Limit(CLIENT_BOUND, 5.0, "requests leave this late when the client's loop is busy"),
    "stolen_ratio": Limit(CLIENT_BOUND, 0.05, "while the hypervisor gives the CPU to others, neither client nor clock moves on"),
    "core_busy": Limit(CLIENT_BOUND, 0.85, "a single-threaded client queues its own work above this"),
    "failure_ratio": Limit(NOT_COMPARABLE, 0.01, "failures free the server for the requests that remain"),
    "dropped_ratio": Limit(NOT_COMPARABLE, 0.01, "what is never sent frees the server for the requests that remain"),
    "unanswered_ratio": Limit(NOT_COMPARABLE, 0.01, "those that waited longest are the ones that are missing"),
    "missed_levels": Limit(NOT_COMPARABLE, 0, "a stage that never had its load says nothing about that load"),
    "repeated_prompt_ratio": Limit(NOT_COMPARABLE, 0.01, "a cache may have answered them, and the server does not tell"),
    "crossing_ratio": Limit(NOT_COMPARABLE, 0.2, "slow requests cross a stage's end most often, so its figures look too good"),
    "cached_prompt_ratio": Limit(NOT_COMPARABLE, 0.01, "a cached prompt costs no prefill, so its TTFT is another thing"),
    "cut_by_context_ratio": Limit(NOT_COMPARABLE, 0.01, "answers cut short by the context make a server look fast"),
    "buffered_ratio": Limit(NOT_COMPARABLE, 0.5, "a stream that arrives in lumps was held back by a proxy or by the server"),
    "merged_ratio": Limit(BLURRED, 0.01, "a gap of zero beside one of double length: ITL percentiles above p99 are of no use"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its value, the limit it must not exceed (None: told for information), and a sentence."""

    name: str
    value: float | None
    limit: float | None
    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The word and everything it rests on."""

    word: str
    checks: list[Check]


@dataclass(slots=True)
class WorkerHealth:
    """What a worker noticed of itself during the measurement.

    `core_busy` is 0 to 1, of one core; `stolen_ratio` the share of all CPU time that the machine's hypervisor gave to others;
    `clock_offset_ms` what was added to its instants to bring them onto the master's clock, None in one process;
    `clock_uncertainty_ms` by how much that may be wrong, the worst of all that was added to its records.
    `longest_pause_ms` is the longest time for which the event loop did not run (20 ms between two samples subtracted), which
    began at `longest_pause_mono_ns` by the master's clock; `suspended_ms` for how long the machine was asleep.
    `machine_busy` is the share of all cores' time that anybody used, `own_share` that of this process, and `server_share` that of
    the servers under test, None where they are not seen on this machine; all are 0 to 1, and of the whole measurement.
    """

    worker: str
    loop_lag_p99_ms: float | None = None
    loop_lag_max_ms: float | None = None
    core_busy: float | None = None
    stolen_ratio: float | None = None
    clock_offset_ms: float | None = None
    clock_uncertainty_ms: float | None = None
    longest_pause_ms: float | None = None
    longest_pause_mono_ns: int | None = None
    suspended_ms: float | None = None
    machine_busy: float | None = None
    own_share: float | None = None
    server_share: float | None = None


@dataclass(slots=True)
class LostWorker:
    """A worker that went away: the measured requests that it may have sent and of which no record came, how many it had not
    begun, which went to others, and the requests of warm-ups that it may have sent."""

    worker: str
    possibly_sent: list[int] = field(default_factory=list)
    handed_on: int = 0
    possibly_sent_warmup: list[int] = field(default_factory=list)


def judge(
    records: Records,
    figures: Totals,
    planned: int | None,
    health: Sequence[WorkerHealth],
    *,
    lost: Sequence[LostWorker] = (),
    dropped: int = 0,
    missing_stages: Sequence[str] = (),
    crossing: Mapping[str, float] = {},
    unsent: int | None = None,
    repeated_prompts: int = 0,
    missed_levels: Sequence[str] = (),
    interrupted: bool = False,
    cache_meant: bool = False,
    head_tokens: int = 0,
    length_means_full: bool = False,
    shown: Sequence[str] = ("ttft", "tpot", "itl", "e2el"),
) -> Verdict:
    """The verdict on measured `records` and their figures.

    `planned` is how many requests there should be (None: as many as fit the time), `lost` which workers went away, `dropped` how
    many arrivals were not sent because the limit of requests in flight was reached, `missing_stages` which stages never ended,
    `missed_levels` which never had their load, `unsent` how many arrivals a time cut off (None: no time did), `repeated_prompts`
    how many prompts an earlier stage had sent,
    `crossing` by stage which share of its requests ended after it,
    `interrupted` whether the run was cut before its end, `cache_meant` whether cached prompts are part of what is measured,
    `head_tokens` how many tokens the chat template puts before every prompt, `length_means_full` whether a finish by length
    without max_tokens means a full context (llama-server), `shown` the latencies whose percentiles are printed.
    """
    ok = records.ok()
    checks = [
        _missing(planned, len(records) - figures.cancelled, dropped, interrupted),
        *_stages(missing_stages, missed_levels, crossing),
        *_lost(lost),
        *_dropped(dropped, len(records)),
        *_unanswered(unsent, figures, len(records)),
        *_repeated(ok, repeated_prompts),
        *_late(records),
        _own_delay(records),
        *_health(health),
        _check("failure_ratio", figures.failure_ratio, f"{figures.failed} of {figures.completed + figures.failed} requests failed"),
        _cached(ok, cache_meant, head_tokens),
        _cut_by_context(ok, length_means_full),
        *_merged(ok),
        _clock(figures),
        *_swarm_clock(health),
        _connections(figures, len(records)),
        *_counted(figures),
        *_evidence(figures, shown),
    ]
    bad = {LIMITS[check.name].word for check in checks if not check.ok}
    return Verdict(next((word for word in WORDS if word in bad), VALID), checks)


def _check(name: str, value: float | None, text: str) -> Check:
    limit = LIMITS[name].limit
    return Check(name, value, limit, value is None or value <= limit, text)


def _missing(planned: int | None, ended: int, dropped: int, interrupted: bool) -> Check:
    if not ended:
        return _check("missing_records", max(1, planned or 1), "no request ended: nothing was measured")
    if planned is None:
        if interrupted:
            return _check("missing_records", 1, f"the run was interrupted after {ended} requests, before its time was over")
        return _check("missing_records", 0, f"{ended} requests ended in the run's time")
    missing = max(0, planned - dropped - ended)
    text = f"{missing} of {planned} planned requests did not end" if missing else f"all {planned - dropped} requests are on record"
    return _check("missing_records", missing, text)


def _lost(lost: Sequence[LostWorker]) -> list[Check]:
    """Workers that went away, and what they may have sent without a record."""
    checks = []
    for gone in lost:
        some = ", ".join(map(str, gone.possibly_sent[:MOST_NAMED])) + (", …" if len(gone.possibly_sent) > MOST_NAMED else "")
        text = f"worker {gone.worker} was lost"
        if gone.possibly_sent:
            text += f" with {len(gone.possibly_sent)} requests that it may have sent (prompts {some})"
        else:
            text += "; it had no request under way"
        if gone.handed_on:
            text += f"; {gone.handed_on} that it had not begun went to others"
        checks.append(_check("lost_requests", len(gone.possibly_sent), text))
    return checks


def _stages(missing: Sequence[str], missed: Sequence[str], crossing: Mapping[str, float]) -> list[Check]:
    """Stages that were planned and did not come to their end or to their load, and the one that lost most of its requests at its
    end."""
    checks = [_check("missing_stages", len(missing), f"stages that did not end: {', '.join(missing)}")] if missing else []
    if missed:
        text = f"stages that never had as many requests in flight as they say (users think, or were lost): {', '.join(missed)}"
        checks.append(_check("missed_levels", len(missed), text))
    worst = max(crossing, key=crossing.__getitem__, default=None)
    if worst is not None and crossing[worst]:
        text = f"of stage {worst}, {crossing[worst]:.0%} of the requests ended after it and are in none of its latencies"
        checks.append(_check("crossing_ratio", crossing[worst], text + "; a longer stage loses fewer"))
    return checks


def _dropped(dropped: int, sent: int) -> list[Check]:
    """Arrivals that were never sent: the limit of requests in flight was reached, and --on-limit drop was asked for."""
    if not dropped:
        return []
    total = dropped + sent
    text = f"{dropped} of {total} arrivals were dropped at the limit of requests in flight: the server got less than was asked for"
    return [_check("dropped_ratio", dropped / total, text)]


def _unanswered(unsent: int | None, figures: Totals, sent: int) -> list[Check]:
    """What an open loop that was cut by its time had not answered by then. None: it was not cut."""
    if unsent is None:
        return []
    missing, due = unsent + figures.cancelled, unsent + sent
    text = f"{missing} of {due} arrivals were not sent or not answered when the time was over, those that waited longest"
    return [_check("unanswered_ratio", missing / due if due else None, text)]


def _repeated(ok: Records, repeated: int) -> list[Check]:
    """Prompts that an earlier stage had sent, where the server does not tell what came from its cache."""
    if not repeated or not np.isnan(ok.numbers("cached_tokens")).all():
        return []
    text = f"{repeated} prompts had been sent in an earlier stage (a larger data set or --bust-prefix-cache avoids it)"
    return [_check("repeated_prompt_ratio", repeated / len(ok) if len(ok) else None, text)]


def _late(records: Records) -> list[Check]:
    """How late the client was with what was scheduled, waiting for the limit of requests in flight left out."""
    late = records.numbers("late_ms")
    late = late[~np.isnan(late)]
    if not len(late):
        return []
    value = float(np.percentile(late, 99))
    text = f"requests left late, after the schedule (or the limit) allowed them: p99 {value:.2f} ms, at most {late.max():.2f} ms"
    return [_check("late_p99_ms", value, text)]


def _own_delay(records: Records) -> Check:
    delay = records.numbers("own_delay_ms")
    delay = delay[~np.isnan(delay)]
    if not len(delay):
        return _check("own_delay_p99_ms", None, "the client's own delay before sending is not known")
    value = float(np.percentile(delay, 99))
    return _check("own_delay_p99_ms", value, f"the client's own delay before sending: p99 {value:.2f} ms")


def _health(health: Sequence[WorkerHealth]) -> list[Check]:
    p99 = _worst([worker.loop_lag_p99_ms for worker in health])
    longest = _worst([worker.loop_lag_max_ms for worker in health])
    busy = _worst([worker.core_busy for worker in health])
    lag_text = "the lag of the client's event loop was not measured"
    if p99 is not None and longest is not None:
        lag_text = f"lag of the client's event loop: p99 {p99:.2f} ms, at most {longest:.1f} ms"
    busy_text = "not known how busy the client was" if busy is None else f"busiest client process: {busy:.0%} of a core"
    checks = [_check("loop_lag_p99_ms", p99, lag_text), _check("core_busy", busy, busy_text)]
    stolen = _worst([worker.stolen_ratio for worker in health])
    if stolen:
        checks.append(
            _check("stolen_ratio", stolen, f"the hypervisor took {stolen:.1%} of the client machine's CPU time for others")
        )
    return checks


def _worst(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _cached(ok: Records, cache_meant: bool, head_tokens: int) -> Check:
    """Requests whose prompt was more than half cached. The chat template's head, which all prompts share, does not count."""
    name = "cached_prompt_ratio"
    cached, prompt = ok.numbers("cached_tokens"), ok.numbers("prompt_tokens")
    if not len(ok) or np.isnan(cached).all():
        return _check(name, None, "the server does not tell how many prompt tokens came from its cache")
    with np.errstate(invalid="ignore"):
        mostly = int(np.nansum(cached - head_tokens > (prompt - head_tokens) / 2))
    ratio = mostly / len(ok)
    tokens, total = int(np.nansum(cached)), int(np.nansum(prompt))
    text = f"{tokens} of {total} prompt tokens came from the cache; {mostly} of {len(ok)} prompts were mostly cached"
    if cache_meant:
        return Check(name, ratio, None, True, text + ", as asked")
    if ratio > LIMITS[name].limit:
        text += " (--bust-prefix-cache or --cache-prompt off avoids it, --cache-prompt on says that it is meant)"
    return _check(name, ratio, text)


def _cut_by_context(ok: Records, length_means_full: bool) -> Check:
    """Answers that ended by length before max_tokens: the context was full. Counted events are too few to tell."""
    asked, got = ok.numbers("max_tokens"), ok.numbers("output_tokens")
    with np.errstate(invalid="ignore"):
        short = (got < asked) & ~ok.equals("token_source", "events")
    if length_means_full:
        short |= np.isnan(asked)
    cut = int((ok.equals("finish_reason", "length") & short).sum())
    text = f"{cut} answers were cut by the context" if cut else "no answer was cut by the context"
    return _check("cut_by_context_ratio", cut / len(ok), text) if len(ok) else _check("cut_by_context_ratio", None, "no answers")


def _merged(ok: Records) -> list[Check]:
    merged, events = ok.numbers("merged_events"), ok.numbers("token_events")
    total = float(events.sum())
    if not total:
        return [_check("merged_ratio", None, "nothing was streamed: there are no token events")]
    with np.errstate(invalid="ignore", divide="ignore"):
        lumps = float(((events >= 8) & (merged >= 0.75 * events)).sum()) / len(ok)
    ratio = float(merged.sum()) / total
    text = f"{int(merged.sum())} of {int(total)} token events arrived together with a later one"
    if lumps > LIMITS["buffered_ratio"].limit:
        proxies = [name for name in ok.values_of("answered_by") if not name.startswith(LLM_SERVERS) or ", via " in name]
        who = f"a proxy ({', '.join(proxies)})" if proxies else "a proxy (or the server)"
        lumpy = (
            f"{lumps:.0%} of the streams arrived in lumps: {who} buffers them, so TTFT and ITL are its own; "
            "switch that off (nginx: proxy_buffering off)"
        )
        return [_check("buffered_ratio", lumps, lumpy), _check("merged_ratio", ratio, text)]
    first = int(ok.equals("first_merged", True).sum())
    if first:
        text += f"; {first} first tokens among them, whose TTFT is an upper bound"
    return [_check("merged_ratio", ratio, text)]


def _clock(figures: Totals) -> Check:
    kernel = figures.clock_sources.get("kernel", 0)
    total = sum(figures.clock_sources.values())
    if not total:
        text = "no arrival time was taken"
    elif kernel == total:
        text = "all arrival times are the kernel's receive stamps"
    else:
        text = f"{total - kernel} of {total} requests were timed in user space, at least in part: a busy client delays them"
    return Check("kernel_clock_ratio", kernel / total if total else None, None, True, text)


def _swarm_clock(health: Sequence[WorkerHealth]) -> list[Check]:
    """How well the workers' clocks are known: it is the error of instants between workers, and of no latency."""
    worst = _worst([worker.clock_uncertainty_ms for worker in health])
    if worst is None:
        return []
    text = f"clocks of {len(health)} workers are on one axis within {worst:.2f} ms; latencies do not depend on it"
    return [Check("clock_uncertainty_ms", worst, None, True, text)]


def _connections(figures: Totals, requests: int) -> Check:
    """How connections were used: opening them is part of TTFT, and a client that never does sees less."""
    reused, reopened = figures.reused_connections, figures.reopened_connections
    if not reused and not reopened:
        text = "every request opened a connection of its own, which is part of its TTFT"
    else:
        text = f"{reused} of {requests} requests used a connection that was open already"
        if reopened:
            text += f"; {reopened} found it closed by the server and went out once more on a fresh one"
    return Check("reused_connection_ratio", reused / requests if requests else None, None, True, text)


def _counted(figures: Totals) -> list[Check]:
    """Whose counts the token figures rest on, where it is not the server's."""
    checks = []
    if events := figures.token_sources.get("events", 0):
        text = f"output tokens of {events} requests are counted events: the server tells none, and one event may hold several"
        checks.append(Check("counted_output_requests", events, None, True, text))
    if planned := figures.prompt_token_sources.get("plan", 0):
        text = f"prompt tokens of {planned} requests were counted before the run, without the chat template"
        checks.append(Check("counted_prompt_requests", planned, None, True, text))
    return checks


def _evidence(figures: Totals, shown: Sequence[str]) -> list[Check]:
    """For each printed percentile: its 95 % confidence interval. (Gaps of one stream are taken as independent.)"""
    checks = []
    for key in shown:
        sample = figures.distributions[key]
        for p, value in sample.percentiles.items():
            if value is None:
                continue
            low, high = sample.intervals[p]
            label = f"P{p:g} {key.upper()}"
            if high is None or low is None:
                text = f"{label} {value:.2f} ms: {sample.count} values are too few for a 95 % interval"
            else:
                text = f"{label} {value:.2f} ms, 95 % interval {low:.2f} to {high:.2f}"
            checks.append(Check(f"p{p:g}_{key}_ms_interval", value, None, True, text))
    return checks
