"""The limits of all checks, with their reasons and remedies."""

from __future__ import annotations

from dataclasses import dataclass

from llama_load.metrics.verdict_words import (
    ALIVE,
    ALONE,
    ASKED,
    BLURRED,
    CLIENT_BOUND,
    COUNTED,
    FAILED,
    INCOMPLETE,
    NOT_COMPARABLE,
    SAME,
    SEEN,
)

# The client's own delays may reach this share of the measured latency: figures are then accurate to 1 %.
OWN_SHARE = 0.01
UNCACHED = "--bust-prefix-cache makes prompts unique; --cache-prompt on declares that caching is intended"


@dataclass(frozen=True, slots=True)
class Limit:
    """A check's word, its limit (the value must not exceed it), the statement that it tests, the reason for the number, and what
    to do where the check fails."""

    word: str
    limit: float
    statement: str
    reason: str
    remedy: str


LIMITS = {
    # something is missing
    "missing_records": Limit(
        INCOMPLETE,
        0,
        SEEN,
        "a request without a record is in no figure",
        "run again; after a crash `llama-load report RUN` reads what was written",
    ),
    "server_endings": Limit(
        INCOMPLETE, 0, SAME, "what was sent after a server ended is missing", "read the server's log in the section about it"
    ),
    "missing_stages": Limit(
        INCOMPLETE, 0, ASKED, "a comparison of loads needs all of them", "run again, or leave these stages out"
    ),
    "lost_requests": Limit(
        INCOMPLETE,
        0,
        SEEN,
        "the server may have worked on them for an unknown time",
        "see why the worker ended; `llama-load report RUN --add SPOOL` adds records that it kept",
    ),
    "damaged_records": Limit(INCOMPLETE, 0, SEEN, "a lost record is in no figure", "check the disk; the damaged file is kept"),
    # the server did not answer
    "failure_ratio": Limit(
        FAILED,
        0.01,
        ALIVE,
        "failures free the server for the other requests",
        "follow the hint of the failure class, or the server's log",
    ),
    # something else was measured
    "dropped_ratio": Limit(
        NOT_COMPARABLE,
        0.01,
        ASKED,
        "a request that is never sent frees the server for the others",
        "raise --max-concurrency, or queue arrivals (--on-limit queue)",
    ),
    "unanswered_ratio": Limit(
        NOT_COMPARABLE, 0.01, ASKED, "the arrivals that waited longest are missing", "lower the rate, or give --num-prompts"
    ),
    "cut_shift": Limit(
        NOT_COMPARABLE, 0.05, SEEN, "the end of the time cuts off the slowest requests", "measure longer, or give --num-prompts"
    ),
    "aborted_shift": Limit(
        NOT_COMPARABLE,
        0.05,
        SEEN,
        "users who hang up after a time hang up on slow requests, so the others look too good",
        "let users hang up after a number of tokens, or a smaller share of them (--abort-rate)",
    ),
    "slots_not_freed": Limit(
        NOT_COMPARABLE,
        0,
        SAME,
        "a slot that works for a client that has gone is missing for all later requests",
        "read the server's log; restart it before the next run, and report this to its developers",
    ),
    "probe_failure_ratio": Limit(
        NOT_COMPARABLE,
        0.01,
        ALIVE,
        "a probe that fails is in no latency, and often it is one that waited longest",
        "read the table of probes with this in mind; lower the load, or raise --first-token-timeout",
    ),
    "probe_cut_shift": Limit(
        NOT_COMPARABLE,
        0.05,
        SEEN,
        "the end of the load cuts off the probes that waited longest",
        "measure longer",
    ),
    "probe_token_ratio": Limit(
        NOT_COMPARABLE,
        0.1,
        ALONE,
        "probes that are a tenth of all tokens are a part of the load",
        "lower --probe-rate, or leave it out",
    ),
    "probe_cache_gap": Limit(
        NOT_COMPARABLE,
        0.1,
        SAME,
        "a probe whose prompt is cached alone and not beside the load (or the reverse) is less (or more) work there",
        "turn the prefix cache off, or compare probes with each other and not with their value alone",
    ),
    "missed_levels": Limit(
        NOT_COMPARABLE,
        0,
        ASKED,
        "a stage that never reached its load does not measure it",
        "leave out wait_time in the locustfile, or make the stages longer",
    ),
    "missing_conversations": Limit(
        NOT_COMPARABLE,
        0,
        ASKED,
        "fewer conversations than configured are a lower load",
        "give more --num-prompts or -t, and leave out wait_time in the locustfile",
    ),
    "ramp_ratio": Limit(
        NOT_COMPARABLE, 0.05, ASKED, "during a ramp the load is lower than configured", "leave out -r, or measure longer"
    ),
    "users_changed": Limit(NOT_COMPARABLE, 0, ASKED, "the figures mix several loads", "use --stages to measure several loads"),
    "excess_in_flight": Limit(
        NOT_COMPARABLE,
        0,
        ASKED,
        "more requests in flight than configured are another load",
        "give more users to a task that sends several requests at once",
    ),
    "crossing_ratio": Limit(
        NOT_COMPARABLE,
        0.2,
        SEEN,
        "slow requests cross a stage's end most often, so its figures look too good",
        "make the stages longer, or give them a number of prompts",
    ),
    "short_answer_ratio": Limit(NOT_COMPARABLE, 0.01, ASKED, "answers that end early make a server look fast", "add --ignore-eos"),
    "long_answer_ratio": Limit(
        NOT_COMPARABLE, 0.01, ASKED, "longer answers than configured are another load", "use a server that obeys max_tokens"
    ),
    "shortened_prompt_ratio": Limit(
        NOT_COMPARABLE,
        0.01,
        ASKED,
        "a prompt that was cut costs less prefill, so its TTFT is not comparable",
        "give the server a larger context (-c, --max-model-len), or see which program cuts prompts",
    ),
    "missed_turn_ratio": Limit(
        NOT_COMPARABLE,
        0.01,
        ASKED,
        "a turn without its tool calls goes on with a history that the model did not write",
        "add --history recorded, which every model gets alike; or see whether the server parses tool calls",
    ),
    "late_turn_ratio": Limit(
        NOT_COMPARABLE, 0.01, ASKED, "longer waits are a lower load", "give more workers, or leave out wait_time in the locustfile"
    ),
    "shortened_conversations": Limit(
        NOT_COMPARABLE,
        0,
        ASKED,
        "the last turns have the longest prompts",
        "give the slots a larger context; of synthetic agents ask for fewer --rounds",
    ),
    "equal_answer_ratio": Limit(
        NOT_COMPARABLE,
        0.05,
        ALIVE,
        "one answer for different prompts was not generated for each of them",
        "look for a cache or a stub in front of the server; read the answers (--save-texts)",
    ),
    "refused_ratio": Limit(
        NOT_COMPARABLE,
        0.01,
        ALIVE,
        "a refused request costs less than an answered one",
        "turn the filter off, or use other prompts",
    ),
    "abrupt_answer_ratio": Limit(
        NOT_COMPARABLE,
        0.05,
        ALIVE,
        "refusals and error texts make a server look fast",
        "read the answers (--save-texts); a lower --max-tokens declares short answers",
    ),
    "early_first_ratio": Limit(
        NOT_COMPARABLE,
        0.5,
        ALIVE,
        "a token that was not generated makes TTFT meaningless",
        "see which program sends the first token (a proxy, a template)",
    ),
    "count_gap_ratio": Limit(
        NOT_COMPARABLE,
        0.02,
        COUNTED,
        "the resolution of the counts is below one token in a hundred",
        "see which program rewrites usage or merges events; compare with the server's own log",
    ),
    "cached_prompt_ratio": Limit(
        NOT_COMPARABLE, 0.02, ALIVE, "a cached prompt costs no prefill, so its TTFT is not comparable", UNCACHED
    ),
    "server_cache_hit_ratio": Limit(NOT_COMPARABLE, 0.02, ALIVE, "the same, where only the server's counters are known", UNCACHED),
    "repeated_prompt_ratio": Limit(
        NOT_COMPARABLE,
        0.01,
        ALIVE,
        "a cache may have answered them: the server does not report it, or they got their first token sooner",
        "leave out --seed, or add --bust-prefix-cache; --cache-prompt on declares that caching is intended",
    ),
    "cut_by_context_ratio": Limit(
        NOT_COMPARABLE,
        0.01,
        ASKED,
        "answers cut short by the context make a server look fast",
        "start the server with a larger -c or fewer slots, or lower --max-tokens",
    ),
    "changed_ratio": Limit(
        NOT_COMPARABLE,
        1.25,
        SAME,
        "a change this large in a third of the time moves a mean by 8 %: figures then depend on how long the run lasts",
        "find what changed (cold start: raise --warmup; throttling, full memory, other load) and run again",
    ),
    "cold_start_ratio": Limit(
        NOT_COMPARABLE,
        3.0,
        SAME,
        "first requests this slow are the start of the server, not its speed, and they are the highest percentiles",
        "raise --warmup",
    ),
    "failure_burst_ratio": Limit(
        NOT_COMPARABLE,
        0.05,
        SAME,
        "failures that come together are an event, such as a restart, after which the server is another one",
        "read the server's log at that time",
    ),
    "backlog_ratio": Limit(
        NOT_COMPARABLE,
        0.02,
        SAME,
        "the limit is what chance explains; percentiles of a queue that grows depend on how long the run lasts",
        "lower --request-rate: the server cannot keep up",
    ),
    "preemption_ratio": Limit(
        NOT_COMPARABLE,
        0.01,
        SAME,
        "a preempted request is computed twice, which other loads are not",
        "lower the load, or give the server more memory (--gpu-memory-utilization)",
    ),
    "answer_models": Limit(
        NOT_COMPARABLE,
        0,
        SAME,
        "the figures mix two models",
        "see which program chooses the model (a router, a reload)",
    ),
    "mixed_up_models": Limit(
        NOT_COMPARABLE,
        0,
        ASKED,
        "figures by model are those of another model",
        "see which model the server has under each name (/v1/models)",
    ),
    "missing_sessions": Limit(
        NOT_COMPARABLE,
        0.01,
        ASKED,
        "turns without their session may go to any replica, and find nothing cached",
        "look for the header of --session-header in the answers: in ASCII, below 1000 characters",
    ),
    "replica_difference": Limit(
        NOT_COMPARABLE,
        1.5,
        SAME,
        "the figures mix two servers; equal replicas differ by less",
        "see what slows the replica (other programs, clocks, settings), or measure it alone",
    ),
    "in_flight_imbalance": Limit(
        NOT_COMPARABLE,
        0.6,
        SAME,
        "0 is even, 1 is all on one replica; chance alone stays below 0.5",
        "use --balance least-in-flight; check the replicas",
    ),
    "task_exception_ratio": Limit(
        NOT_COMPARABLE,
        0.01,
        ASKED,
        "an exception ends a task, so the rest of its load is missing",
        "correct the locustfile; Locust's output has the traceback",
    ),
    "unused_rpc_workers": Limit(
        NOT_COMPARABLE, 0, ASKED, "the model ran on other machines than configured", "use commas in --rpc; raise -ngl"
    ),
    "server_changes": Limit(NOT_COMPARABLE, 0, SAME, "the figures mix two servers", "run again against one server"),
    "other_client_ratio": Limit(
        NOT_COMPARABLE, 0.01, ALONE, "another client's requests add load", "stop other clients; list each replica in --host"
    ),
    "unexplained_ratio": Limit(
        NOT_COMPARABLE,
        0.25,
        ALONE,
        "time that nothing explains is another program's, such as a proxy's",
        "look for a proxy, another client or a slow network",
    ),
    "buffered_ratio": Limit(
        NOT_COMPARABLE,
        0.5,
        ALONE,
        "a stream that arrives in bursts was buffered by a proxy or by the server",
        "turn buffering off in the proxy (nginx: proxy_buffering off)",
    ),
    "unbelievable_counts": Limit(
        NOT_COMPARABLE, 0, COUNTED, "a server that miscounts once may miscount everywhere", "update the server"
    ),
    # the client was too busy; the limits of delays grow with the measured latency (see `OWN_SHARE`)
    "own_delay_p99_ms": Limit(
        CLIENT_BOUND,
        5.0,
        SEEN,
        "it is part of every TTFT, where differences of tens of ms matter",
        "use more workers (--processes); stop other programs on the client",
    ),
    "late_p99_ms": Limit(
        CLIENT_BOUND,
        5.0,
        SEEN,
        "the schedule is the load: requests sent later are another load",
        "use more workers (--processes); stop other programs on the client",
    ),
    "loop_lag_p99_ms": Limit(
        CLIENT_BOUND,
        5.0,
        SEEN,
        "requests are sent this late when the client's event loop is busy",
        "use more workers (--processes); stop other programs on the client",
    ),
    "client_pause_ms": Limit(
        CLIENT_BOUND,
        1000.0,
        SEEN,
        "a paused client sends nothing, and a p99 does not show it",
        "run again on a machine that is neither suspended, swapping nor overloaded",
    ),
    "stolen_ratio": Limit(
        CLIENT_BOUND, 0.05, ALONE, "the client does not run while its CPU is given to others", "use a machine with dedicated CPUs"
    ),
    "core_wait_ratio": Limit(
        CLIENT_BOUND,
        0.05,
        ALONE,
        "tokens that arrive while the client waits for a core share one timestamp",
        "allow it real-time priority (`ulimit -r 1`, LimitRTPRIO=1, setcap), or use another machine",
    ),
    "core_busy": Limit(
        CLIENT_BOUND,
        0.85,
        SEEN,
        "a single-threaded client queues its own work above this",
        "use more workers; `llama-load calibrate --for 2000x50` estimates how many",
    ),
    "first_merged_shift": Limit(
        CLIENT_BOUND,
        0.05,
        SEEN,
        "a first token that is read together with the second has the second one's arrival time: TTFT is too large",
        "fewer streams per worker (`--processes`); else the server or a proxy sends them together",
    ),
    "master_lag_s": Limit(
        CLIENT_BOUND,
        5.0,
        SEEN,
        "a master that is behind with records is late with leases, too",
        "less load for one master, or a faster machine for it",
    ),
    # single gaps between tokens cannot be distinguished
    "merged_ratio": Limit(
        BLURRED,
        0.01,
        SEEN,
        "merging makes one gap zero and another twice as long: wrong ITL percentiles above p99",
        "read TPOT instead of ITL; fewer streams per worker, less network buffering",
    ),
    "tokens_per_event": Limit(
        BLURRED, 1.1, SEEN, "a gap between events of several tokens is not a gap between tokens", "read TPOT instead of ITL"
    ),
}
