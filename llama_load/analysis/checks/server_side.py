"""Checks of the server: did it work for us alone, did it have enough memory, does it explain the
times that we measured?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from llama_load.analysis.checks.client import loop_is_late
from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.statistics.replica_speed import (
    ReplicaLengths,
    replica_difference,
    replica_lengths,
)
from llama_load.ground.units import NS_PER_MS, quantity
from llama_load.run_folder.arithmetic.token_span import counts_of
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.servers.answer_form import FREE
from llama_load.servers.apis import NOT_CACHED

# Less unexplained time than this, in the mean of a request, is the network's and the event loop's.
LEAST_UNEXPLAINED_MS = 50.0
# Counters rounded by more than this share of our own tokens show no other client.
MOST_ROUNDING = 0.25
# The most models that a sentence names.
MOST_MODELS = 3
# A server that was started this recently may still be warming up.
JUST_STARTED_S = 60.0
# Copying prompts is reported above this share of the run.
LEAST_SAVED = 0.02
# What may have made this part of an unexplained time is its cause.
EXPLAINED = 0.5
NO_PROMPT_CACHE = "--cache-ram 0"
LET_IT_NOT_SLEEP = "raise --sleep-idle-seconds above the longest pause of the load"


def other_clients(evidence: Evidence) -> Iterator[Check]:
    """What the server counted during the measurement against what was sent and received.

    vLLM counts requests: served must lie between the successful ones and all that were sent, tries
    included. llama-server counts tokens: those of the answers, and of the prompts. The value is the
    part beyond that range, relative to it. 30 requests served, 24 sent: 0.25. Counters that are
    printed rounded are compared within their rounding. Counts: no other error.
    """
    name = "other_client_ratio"
    counters = evidence.counters
    if counters is None:
        yield limited(
            name,
            None,
            "the server's counters are not known: other clients on it would not show",
        )
        return
    is_other = any(
        evidence.sent.equals("endpoint", endpoint).any() for endpoint in NOT_CACHED
    )
    if evidence.others.requests or is_other or _several_answers(evidence.sent):
        yield limited(
            name,
            None,
            "the server's counters include requests that are not chats or completions of one answer",
        )
        return
    counted = list(_served(evidence, counters))
    if not counted:
        yield limited(
            name,
            None,
            "the server does not count requests or tokens: other clients on it would not show",
        )
        return
    excesses = [count for count in counted if count[2] <= MOST_ROUNDING * count[3]]
    if not excesses:
        text = f"the server's counters are rounded to ± {counted[0][2]} {counted[0][0]}: other clients on it would not show"
        yield limited(name, None, text)
        return
    what, served, error, least, most = max(
        excesses, key=lambda count: _beyond(*count[1:])
    )
    beyond = _beyond(served, error, least, most)
    count = f"{served}" if not error else f"{served} ± {error}"
    if beyond <= LIMITS[name].limit:
        text = f"the server counted {count} {what} during the measurement, as many as were ours"
        # Rounded counters hide twice their error: ours may lie at one end of it.
        detects = LIMITS[name].limit + 2 * error / max(1, most) if error else None
        yield limited(name, beyond, text, detects=detects)
        return
    ours = f"{least}" if least == most else f"{least} to {most}"
    text = (
        f"the server counted {count} {what} during the measurement, ours were {ours}: "
    )
    text += (
        "another client used it, or a gateway sent requests again"
        if served > most
        else "another server answered some of them"
    )
    yield limited(name, beyond, text)


def _several_answers(records: Records) -> bool:
    """Whether requests ask for several answers each (`n`), which take a slot each and are counted
    one by one."""
    return bool((records.numbers("choices") > 1).any())


def _served(
    evidence: Evidence, counters: ServerCounters
) -> Iterator[tuple[str, int, int, int, int]]:
    """What the server counted: its unit, the count and its rounding error, the least and the most
    that our requests can have caused."""
    # The counters are read when the last measured request has ended; others that kept up the load
    # may have ended later.
    records = evidence.sent
    ended_ns = records.instants("ended_mono_ns")
    is_counted = records.equals("status", "ok") & (
        ended_ns <= evidence.records.instants("ended_mono_ns").max(initial=0)
    )
    ok = records.where(is_counted)
    rest = records.where(~is_counted)
    if counters.requests is not None:
        yield (
            "requests",
            counters.requests,
            counters.error("requests"),
            len(ok),
            int(np.nan_to_num(records.numbers("tries"), nan=1.0).sum()),
        )
        return
    answers = ok.numbers("output_tokens")
    prompts = ok.numbers("prompt_tokens")
    if (
        counters.output_tokens is not None
        and len(answers)
        and not np.isnan(answers).any()
    ):
        possible = np.fmax(rest.numbers("token_events"), rest.numbers("max_tokens"))
        error = counters.error("output_tokens")
        yield (
            "output tokens",
            counters.output_tokens,
            error,
            int(answers.sum()),
            int(answers.sum() + np.nansum(possible)),
        )
    possible = rest.numbers("prompt_tokens")
    if (
        counters.prompt_tokens is not None
        and len(prompts)
        and not np.isnan(prompts).any()
        and not np.isnan(possible).any()
    ):
        error = counters.error("prompt_tokens")
        # Of requests that did not succeed the tokens were counted before the chat template, which
        # is shorter than any whole prompt.
        most = prompts.sum() + possible.sum() + len(possible) * prompts.min()
        yield (
            "prompt tokens",
            counters.prompt_tokens,
            error,
            int(prompts.sum()),
            int(most),
        )


def _beyond(served: int, error: int, least: int, most: int) -> float:
    """How far a count lies outside the range even with its rounding error, relative to the range's
    nearer end."""
    if served > most:
        return max(0, served - error - most) / max(1, most)
    return max(0, least - served - error) / max(1, least)


def preemptions(evidence: Evidence) -> Iterator[Check]:
    """Requests that vLLM set aside because its KV cache was full; their prompts are computed again.
    Evidence: its counter, which includes other clients (see `other_clients`)."""
    count = None if evidence.counters is None else evidence.counters.preemptions
    if count is not None and len(evidence.sent):
        text = f"the server preempted requests {quantity(count, 'time')}"
        if count:
            text += " because its KV cache was full: their prompts were computed again"
        yield limited("preemption_ratio", count / len(evidence.sent), text)


def replicas(evidence: Evidence) -> Iterator[Check]:
    """A replica that is slower or faster than the others all the time (see `analysis.statistics.replica_speed`,
    which has its error rate)."""
    if len(evidence.hosts) < 2:
        return
    lengths = _other_lengths(evidence)
    if lengths is not None:
        text = f"answers of replica {lengths.host} have {lengths.tokens:.0f} tokens, those of the others {lengths.others:.0f} (means): "
        text += "it has another model, or ends its answers"
        yield limited("replica_difference", lengths.size, text)
        return
    difference = replica_difference(evidence.records.ok(), evidence.hosts)
    if difference is None:
        yield limited(
            "replica_difference",
            None,
            "too few answers of each replica to compare their speed",
        )
    elif not difference.is_sure:
        text = f"no replica was called different; one that differs by {difference.detects:.1f} x all the time would have been"
        yield limited("replica_difference", 1.0, text, detects=difference.detects)
    else:
        how = "slower" if difference.ratio > 1 else "faster"
        text = f"replica {difference.host} is {difference.size:.1f} x {how} than the others "
        text += f"({difference.latency}, all the time)"
        yield limited("replica_difference", difference.size, text)


def _other_lengths(evidence: Evidence) -> ReplicaLengths | None:
    """The replica whose answers have another length; None where none has, or where conversations,
    workloads or models may be the reason, which stay with their replica."""
    ok = evidence.records.ok()
    has_turns = bool((ok.numbers("turn") > 0).any())
    is_mixed = any(
        len(ok.values_of(name)) > 1 for name in ("workload", "model", "adapter")
    )
    return None if has_turns or is_mixed else replica_lengths(ok, evidence.hosts)


def models(evidence: Evidence) -> Iterator[Check]:
    """Models that the answers name. Evidence: `model` and `system_fingerprint` of the streams,
    which stay the same for one server, endpoint (not all of them send a fingerprint) and requested
    model. Counts: no error."""
    ok = evidence.records.ok()
    keys = zip(
        *(ok.strings(name) for name in ("host", "endpoint", "model", "answered_model")),
        strict=True,
    )
    named: dict[tuple[str | None, ...], Counter[str]] = {}
    for *requested, answered in keys:
        if answered is not None:
            named.setdefault(tuple(requested), Counter())[answered] += 1
    if not named:
        yield limited(
            "answer_models",
            None,
            "the answers do not name the model that generated them",
        )
        return
    changed = max(named.values(), key=len)
    text = f"the answers of one server name {quantity(len(changed), 'model')}"
    if len(changed) > 1:
        text += ": " + ", ".join(
            f"{count} × {name}" for name, count in changed.most_common(MOST_MODELS)
        )
    yield limited("answer_models", len(changed) - 1, text)


def unused_draft_model(evidence: Evidence) -> Iterator[Check]:
    """A draft model that was loaded and never drafted. Evidence: the server's command and its
    counters."""
    counters = evidence.counters
    drafted = evidence.figures.speculation is not None
    if counters is not None and counters.speculation is not None:
        drafted |= counters.speculation.draft_tokens > 0
    if evidence.draft_models and not drafted:
        text = f"the draft model of {', '.join(evidence.draft_models)} never drafted a token"
        yield information(
            "unused_draft_model",
            len(evidence.draft_models),
            f"{text}; add --spec-type draft-simple",
        )


def just_started(evidence: Evidence) -> Iterator[Check]:
    """A server that had been running for less than a minute when the run was prepared."""
    if evidence.uptime_s is not None and evidence.uptime_s < JUST_STARTED_S:
        text = f"the server was started {evidence.uptime_s:.0f} s before the run: the first requests may have warmed it up"
        yield information("server_uptime_s", evidence.uptime_s, text)


def sleeps(evidence: Evidence) -> Iterator[Check]:
    """How often a server woke from its sleep (llama-server's --sleep-idle-seconds): it loads its
    model again, which is a part of that request's TTFT. Evidence: its log. No statistics."""
    if evidence.wakes:
        yield information("server_wakes", evidence.wakes, _woke(evidence))


def _woke(evidence: Evidence) -> str:
    times = quantity(evidence.wakes, "time")
    return (
        f"the server slept and woke {times} (--sleep-idle-seconds): "
        "loading its model again is a part of TTFT"
    )


def prompt_saves(evidence: Evidence) -> Iterator[Check]:
    """How long llama-server copied prompts from slots to its prompt cache in memory
    (--cache-ram), as it does when a request gets a slot: all others wait. Evidence: its log, from
    -lv 4 on. No statistics."""
    seconds = evidence.figures.duration_s
    if not evidence.prompt_saves_ms > LEAST_SAVED * seconds * 1000:
        return
    yield information(
        "prompt_saves_ms",
        evidence.prompt_saves_ms,
        f"{_saved(evidence)}: {NO_PROMPT_CACHE} ends that",
    )


def _saved(evidence: Evidence) -> str:
    return (
        f"llama-server copied prompts from slots to its prompt cache for "
        f"{evidence.prompt_saves_ms / 1000:.2f} s, while requests waited"
    )


def _saves_explain(evidence: Evidence, unexplained_ms: float) -> bool:
    """Whether the copying may have made most of the unexplained time: each of the requests in
    flight waits for it."""
    most_ms = evidence.prompt_saves_ms * max(1, evidence.figures.peak_in_flight)
    return most_ms >= EXPLAINED * unexplained_ms * len(evidence.records.ok())


def unexplained(evidence: Evidence) -> Iterator[Check]:
    """The share of E2EL, or of TTFT where that is larger, that is neither the server's own time nor
    a wait that the records explain (see `analysis.figures.time_sums`), or the part of the mean E2EL beyond
    the server's own. Evidence: the client's times and the server's, of the same requests, and the
    lag of the client's event loop. Means of whole runs against a limit of 50 ms: no statistics.

    Tokens that the server generated before its first event (blanks before JSON, hidden reasoning,
    the name of a tool) took its own time. What it does before a prompt begins, it does not report: where answers are forced
    into a form, that may be the preparation of the form."""
    unexplained = evidence.unexplained
    if unexplained is None or _several_answers(evidence.records):
        return
    beyond_ms, mean_ms = unexplained
    unsent_ms = _unsent_ms(evidence)
    unexplained_ms = max(0.0, beyond_ms - unsent_ms)
    of = "E2EL"
    ttft_ms = evidence.figures.distributions["ttft"].mean
    before_ms = unexplained_ms - _stretched_ms(evidence)
    if ttft_ms and mean_ms and before_ms / ttft_ms > unexplained_ms / mean_ms:
        unexplained_ms = before_ms
        mean_ms = ttft_ms
        of = "TTFT"
    share = unexplained_ms / mean_ms if mean_ms > 0 else 0.0
    limit = LEAST_UNEXPLAINED_MS / mean_ms if mean_ms > 0 else None
    most_ms = max(LEAST_UNEXPLAINED_MS, LIMITS["unexplained_ratio"].limit * mean_ms)
    text = f"{share:.0%} of the mean {of} "
    text += f"({unexplained_ms:.1f} of {mean_ms:.1f} ms) "
    text += "is neither the server's own time nor a known wait"
    if unexplained_ms <= most_ms:
        if unexplained_ms + unsent_ms > most_ms:
            text += f"; {unsent_ms:.1f} ms are of tokens that the server generated before its first event"
        yield limited("unexplained_ratio", share, text, limit=limit)
        return
    prepared_ms = _before_the_prompt_ms(evidence)
    if loop_is_late(evidence):
        text += "; whose it is is not known, because the client's event loop was late"
        yield limited("unexplained_ratio", None, text)
    elif unexplained_ms - prepared_ms <= most_ms:
        text += f"; {prepared_ms:.1f} ms are before the prompt, in which the server also prepares the form of the answer"
        yield limited("unexplained_ratio", None, text)
    elif evidence.wakes:
        text += f": {_woke(evidence)}"
        yield limited(
            "unexplained_ratio", share, text, limit=limit, advice=LET_IT_NOT_SLEEP
        )
    elif _saves_explain(evidence, unexplained_ms):
        text += f": {_saved(evidence)}"
        advice = f"start it with {NO_PROMPT_CACHE}"
        yield limited("unexplained_ratio", share, text, limit=limit, advice=advice)
    else:
        text += ": another client on the server, a proxy or the network"
        yield limited("unexplained_ratio", share, text, limit=limit)


def _unsent_ms(evidence: Evidence) -> float:
    """The server's own time for tokens before its first event, mean: at most its time beyond that
    from the first event to the last, and at most the share of tokens without an event of their own.
    150 ms for 40 tokens in 30 events, 120 ms from first to last: 30 ms. (A parser of tool calls
    sends a call's name in one event.) A proxy that holds tokens back sends them later: they have
    events of their own."""
    ok = evidence.records.ok()
    first_ns = ok.optional_instants("first_token_mono_ns")
    took_ms = (ok.optional_instants("last_token_mono_ns") - first_ns) / NS_PER_MS
    own_ms = ok.numbers("server_predict_ms")
    counts = counts_of(ok)
    # the token that ends an answer comes after the others
    ends = np.asarray(counts.ends_itself, dtype=np.float64)
    unsent = np.maximum(0.0, counts.tokens - counts.events - ends)
    of_tokens_ms = own_ms * unsent / np.maximum(1.0, counts.tokens)
    before_ms = np.minimum(np.maximum(0.0, own_ms - took_ms), of_tokens_ms)
    known_ms = before_ms[(first_ns >= 0) & ~np.isnan(before_ms)]
    return float(known_ms.mean()) if len(known_ms) else 0.0


def _before_the_prompt_ms(evidence: Evidence) -> float:
    """Time with a free slot before the prompts began, mean, where answers are forced into a form; 0
    where none is."""
    forms = set(evidence.records.values_of("answer_form"))
    is_forced = bool(forms - {FREE})
    return evidence.unattributed_ms if is_forced else 0.0


def _stretched_ms(evidence: Evidence) -> float:
    """How much longer streams took from the first token to the last than the server's own time for
    them, mean: it is no part of TTFT."""
    ok = evidence.records.ok()
    first_ns = ok.optional_instants("first_token_mono_ns")
    took_ms = (ok.optional_instants("last_token_mono_ns") - first_ns) / NS_PER_MS
    beyond_ms = (took_ms - ok.numbers("server_predict_ms"))[first_ns >= 0]
    known_ms = beyond_ms[~np.isnan(beyond_ms)]
    return max(0.0, float(known_ms.mean())) if len(known_ms) else 0.0
