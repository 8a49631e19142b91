"""A check of a result: a value, the limit that it must not exceed, and a sentence. All limits are here, with their reasons."""

from __future__ import annotations

from dataclasses import dataclass

# The words of a verdict, the most severe first.
INCOMPLETE, FAILED, NOT_COMPARABLE, CLIENT_BOUND, BLURRED, VALID = WORDS = (
    "INCOMPLETE",
    "FAILED",
    "NOT COMPARABLE",
    "CLIENT-BOUND",
    "BLURRED",
    "VALID",
)

# The client's own delays may reach this share of the measured latency: figures are then accurate to 1 %.
OWN_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Limit:
    """A check's word, its limit (the value must not exceed it) and the reason for the number."""

    word: str
    limit: float
    reason: str


LIMITS = {
    # something is missing
    "missing_records": Limit(INCOMPLETE, 0, "a request without a record is in no figure"),
    "server_endings": Limit(INCOMPLETE, 0, "what was sent after a server ended is missing"),
    "missing_stages": Limit(INCOMPLETE, 0, "a comparison of loads needs all of them"),
    "lost_requests": Limit(INCOMPLETE, 0, "the server may have worked on them for an unknown time"),
    "damaged_records": Limit(INCOMPLETE, 0, "a lost record is in no figure"),
    # the server did not answer
    "failure_ratio": Limit(FAILED, 0.01, "failures free the server for the other requests"),
    # something else was measured
    "dropped_ratio": Limit(NOT_COMPARABLE, 0.01, "a request that is never sent frees the server for the others"),
    "unanswered_ratio": Limit(NOT_COMPARABLE, 0.01, "the arrivals that waited longest are missing"),
    "cut_shift": Limit(NOT_COMPARABLE, 0.05, "the end of the time cuts off the slowest requests"),
    "missed_levels": Limit(NOT_COMPARABLE, 0, "a stage that never reached its load does not measure it"),
    "ramp_ratio": Limit(NOT_COMPARABLE, 0.05, "during a ramp the load is lower than configured"),
    "users_changed": Limit(NOT_COMPARABLE, 0, "the figures mix several loads"),
    "excess_in_flight": Limit(NOT_COMPARABLE, 0, "more requests in flight than configured are another load"),
    "crossing_ratio": Limit(NOT_COMPARABLE, 0.2, "slow requests cross a stage's end most often, so its figures look too good"),
    "short_answer_ratio": Limit(NOT_COMPARABLE, 0.01, "answers that end early make a server look fast"),
    "cached_prompt_ratio": Limit(NOT_COMPARABLE, 0.01, "a cached prompt costs no prefill, so its TTFT is not comparable"),
    "cached_token_ratio": Limit(NOT_COMPARABLE, 0.02, "cached tokens cost no prefill, which is part of TTFT"),
    "server_cache_hit_ratio": Limit(NOT_COMPARABLE, 0.02, "the same, where only the server's counters are known"),
    "repeated_prompt_ratio": Limit(NOT_COMPARABLE, 0.01, "a cache may have answered them, and the server does not report it"),
    "earlier_prompt_ratio": Limit(NOT_COMPARABLE, 0.01, "a cache may still hold them, and the server does not report it"),
    "repeated_ttft_saving": Limit(NOT_COMPARABLE, 0.33, "queueing alone makes the TTFT of one prompt vary by less, in the median"),
    "cut_by_context_ratio": Limit(NOT_COMPARABLE, 0.01, "answers cut short by the context make a server look fast"),
    "drift_ratio": Limit(NOT_COMPARABLE, 1.5, "percentiles of a latency that grows depend on how long the run lasts"),
    "in_flight_imbalance": Limit(NOT_COMPARABLE, 0.6, "0 is even, 1 is all on one replica; chance alone stays below 0.5"),
    "task_exception_ratio": Limit(NOT_COMPARABLE, 0.01, "an exception ends a task, so the rest of its load is missing"),
    "unused_rpc_workers": Limit(NOT_COMPARABLE, 0, "the model ran on other machines than configured"),
    "server_changes": Limit(NOT_COMPARABLE, 0, "the figures mix two servers"),
    "other_client_ratio": Limit(NOT_COMPARABLE, 0.01, "another client's requests are part of the load"),
    "unexplained_ratio": Limit(NOT_COMPARABLE, 0.25, "time that nothing explains is another program's, such as a proxy's"),
    "buffered_ratio": Limit(NOT_COMPARABLE, 0.5, "a stream that arrives in bursts was buffered by a proxy or by the server"),
    "unbelievable_counts": Limit(NOT_COMPARABLE, 0, "a server that miscounts once may miscount everywhere"),
    # the client was too busy; the limits of delays grow with the measured latency (see `OWN_SHARE`)
    "own_delay_p99_ms": Limit(CLIENT_BOUND, 5.0, "it is part of every TTFT, where differences of tens of ms matter"),
    "late_p99_ms": Limit(CLIENT_BOUND, 5.0, "the schedule is the load: requests sent later are another load"),
    "loop_lag_p99_ms": Limit(CLIENT_BOUND, 5.0, "requests are sent this late when the client's event loop is busy"),
    "client_pause_ms": Limit(CLIENT_BOUND, 1000.0, "a paused client sends nothing, and a p99 does not show it"),
    "stolen_ratio": Limit(CLIENT_BOUND, 0.05, "the client does not run while the hypervisor gives its CPU to others"),
    "core_wait_ratio": Limit(CLIENT_BOUND, 0.05, "tokens that arrive while the client waits for a core share one timestamp"),
    "core_busy": Limit(CLIENT_BOUND, 0.85, "a single-threaded client queues its own work above this"),
    # single gaps between tokens cannot be distinguished
    "merged_ratio": Limit(BLURRED, 0.01, "merging makes one gap zero and another twice as long: wrong ITL percentiles above p99"),
    "tokens_per_event": Limit(BLURRED, 1.1, "a gap between events of several tokens is not a gap between tokens"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """A value, the limit it must not exceed (None: for information), and a sentence. `stage` is the checked stage's name;
    None: the whole run."""

    name: str
    value: float | None
    limit: float | None
    ok: bool
    text: str
    stage: str | None = None

    @property
    def word(self) -> str:
        """The verdict's word if this check is not ok."""
        return LIMITS[self.name].word


def limited(name: str, value: float | None, text: str, *, limit: float | None = None) -> Check:
    """A check against its limit in `LIMITS`, or against `limit` if that is larger. An unknown value (None) is ok; its sentence
    must say that it is unknown."""
    limit = LIMITS[name].limit if limit is None else max(limit, LIMITS[name].limit)
    return Check(name, value, limit, value is None or value <= limit, text)


def information(name: str, value: float | None, text: str) -> Check:
    """A check without a limit: it is reported and never changes the verdict."""
    return Check(name, value, None, True, text)
