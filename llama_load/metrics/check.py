"""One check of a result: a value, the limit that it must not exceed, and a sentence. All limits stand here, with their reasons."""

from __future__ import annotations

from dataclasses import dataclass

# The words of a verdict, the gravest first.
INCOMPLETE, FAILED, NOT_COMPARABLE, CLIENT_BOUND, BLURRED, VALID = WORDS = (
    "INCOMPLETE",
    "FAILED",
    "NOT COMPARABLE",
    "CLIENT-BOUND",
    "BLURRED",
    "VALID",
)

# The client's own delays may reach this share of what was measured: its figures are then right to 1 %.
OWN_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Limit:
    """A check's word, its limit (the value must not exceed it) and the reason for the number."""

    word: str
    limit: float
    reason: str


LIMITS = {
    # something is missing
    "missing_records": Limit(INCOMPLETE, 0, "a request that is not in the records is in no figure"),
    "missing_stages": Limit(INCOMPLETE, 0, "a comparison of loads needs all of them"),
    "lost_requests": Limit(INCOMPLETE, 0, "the server may have worked on them for an unknown time"),
    "damaged_records": Limit(INCOMPLETE, 0, "what the disk lost is in no figure"),
    # the server did not answer
    "failure_ratio": Limit(FAILED, 0.01, "failures free the server for the requests that remain"),
    # something else was measured
    "dropped_ratio": Limit(NOT_COMPARABLE, 0.01, "what is never sent frees the server for the requests that remain"),
    "unanswered_ratio": Limit(NOT_COMPARABLE, 0.01, "the arrivals that waited longest are the ones that are missing"),
    "cut_shift": Limit(NOT_COMPARABLE, 0.05, "the slowest requests are the ones that the end of the time cuts off"),
    "missed_levels": Limit(NOT_COMPARABLE, 0, "a stage that never had its load says nothing about that load"),
    "ramp_ratio": Limit(NOT_COMPARABLE, 0.05, "while users are being started the load is lower than what was asked for"),
    "users_changed": Limit(NOT_COMPARABLE, 0, "the figures are of several loads"),
    "excess_in_flight": Limit(NOT_COMPARABLE, 0, "more in flight than asked for is another load"),
    "crossing_ratio": Limit(NOT_COMPARABLE, 0.2, "slow requests cross a stage's end most often, so its figures look too good"),
    "short_answer_ratio": Limit(NOT_COMPARABLE, 0.01, "answers that end early make a server look fast"),
    "cached_prompt_ratio": Limit(NOT_COMPARABLE, 0.01, "a cached prompt costs no prefill, so its TTFT is another thing"),
    "cached_token_ratio": Limit(NOT_COMPARABLE, 0.02, "what comes from the cache is missing from the prefill that TTFT contains"),
    "server_cache_hit_ratio": Limit(NOT_COMPARABLE, 0.02, "the same, where only the server's sums are known"),
    "repeated_prompt_ratio": Limit(NOT_COMPARABLE, 0.01, "a cache may have answered them, and the server does not report it"),
    "earlier_prompt_ratio": Limit(NOT_COMPARABLE, 0.01, "a cache may still hold them, and the server does not report it"),
    "repeated_ttft_saving": Limit(NOT_COMPARABLE, 0.33, "queueing alone makes the TTFT of one prompt vary by less, in the median"),
    "cut_by_context_ratio": Limit(NOT_COMPARABLE, 0.01, "answers cut short by the context make a server look fast"),
    "drift_ratio": Limit(NOT_COMPARABLE, 1.5, "percentiles of a latency that grows depend on how long the run lasts"),
    "in_flight_imbalance": Limit(NOT_COMPARABLE, 0.6, "0 is even, 1 is all on one replica; chance alone stays below 0.5"),
    "task_exception_ratio": Limit(NOT_COMPARABLE, 0.01, "what a task would have done after its exception is missing from the load"),
    "server_changes": Limit(NOT_COMPARABLE, 0, "the figures are of two servers"),
    "buffered_ratio": Limit(NOT_COMPARABLE, 0.5, "a stream that arrives in lumps was held back by a proxy or by the server"),
    "unbelievable_counts": Limit(NOT_COMPARABLE, 0, "a server that miscounts once may miscount everywhere"),
    # the client was too busy; the limits of delays grow with what was measured (see `OWN_SHARE`)
    "own_delay_p99_ms": Limit(CLIENT_BOUND, 5.0, "it is part of every TTFT, and users notice differences of tens of ms"),
    "late_p99_ms": Limit(CLIENT_BOUND, 5.0, "the schedule is the load: what is sent later is another load"),
    "loop_lag_p99_ms": Limit(CLIENT_BOUND, 5.0, "requests leave this late when the client's loop is busy"),
    "client_pause_ms": Limit(CLIENT_BOUND, 1000.0, "a client that stands still sends nothing; a p99 does not show it"),
    "stolen_ratio": Limit(CLIENT_BOUND, 0.05, "while the hypervisor gives the CPU to others, neither client nor clock moves on"),
    "core_busy": Limit(CLIENT_BOUND, 0.85, "a single-threaded client queues its own work above this"),
    # single gaps cannot be told apart
    "merged_ratio": Limit(BLURRED, 0.01, "a gap of zero beside one of double length: ITL percentiles above p99 are of no use"),
    "tokens_per_event": Limit(BLURRED, 1.1, "a gap between events of several tokens is no gap between tokens"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its value, the limit it must not exceed (None: for information), and a sentence. `stage` names the stage that it
    looked at; None: the whole run."""

    name: str
    value: float | None
    limit: float | None
    ok: bool
    text: str
    stage: str | None = None

    @property
    def word(self) -> str:
        """What the verdict says if this check is not ok."""
        return LIMITS[self.name].word


def limited(name: str, value: float | None, text: str, *, limit: float | None = None) -> Check:
    """A check against its limit in `LIMITS`, or against a larger one that depends on what was measured. A value that is not known
    (None) is ok, and its sentence must say so."""
    limit = LIMITS[name].limit if limit is None else max(limit, LIMITS[name].limit)
    return Check(name, value, limit, value is None or value <= limit, text)


def information(name: str, value: float | None, text: str) -> Check:
    """A check without a limit: it is reported and never turns the verdict."""
    return Check(name, value, None, True, text)


def plural(count: int, noun: str) -> str:
    """1 request, 2 requests."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
