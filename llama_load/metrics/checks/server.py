"""Checks of the server: did it work for us alone, did it have enough memory, does it explain the times that we measured?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from llama_load.metrics.check import LIMITS, Check, information, limited
from llama_load.metrics.evidence import Evidence
from llama_load.metrics.prompt_cache import NOT_CACHED
from llama_load.metrics.records import Records
from llama_load.metrics.server_counters import ServerCounters
from llama_load.units import quantity

# Less unexplained time than this, in the mean of a request, is the network's and the event loop's.
LEAST_UNEXPLAINED_MS = 50.0
# A server that was started this recently may still be warming up.
JUST_STARTED_S = 60.0


def other_clients(evidence: Evidence) -> Iterator[Check]:
    """What the server counted during the measurement against what was sent and received.

    vLLM counts requests: served must lie between the successful ones and all that were sent, tries included. llama-server counts
    tokens: those of the answers, and of the prompts. The value is the part beyond that range, relative to it. 30 requests served,
    24 sent: 0.25.
    """
    name, counters = "other_client_ratio", evidence.counters
    if counters is None:
        yield limited(name, None, "the server's counters are not known: other clients on it would not show")
        return
    is_other = any(evidence.records.equals("endpoint", each).any() for each in NOT_CACHED)
    if evidence.others.requests or is_other or _several_answers(evidence.records):
        yield limited(name, None, "the server's counters include requests that are not chats or completions of one answer")
        return
    found = list(_served(evidence.records, counters))
    if not found:
        yield limited(name, None, "the server does not count requests or tokens: other clients on it would not show")
        return
    what, served, error, least, most = max(found, key=lambda each: _beyond(*each[1:]))
    beyond = _beyond(served, error, least, most)
    count = f"{served}" if not error else f"{served} ± {error}"
    if beyond <= LIMITS[name].limit:
        yield limited(name, beyond, f"the server counted {count} {what} during the measurement, as many as were ours")
        return
    ours = f"{least}" if least == most else f"{least} to {most}"
    text = f"the server counted {count} {what} during the measurement, ours were {ours}: "
    text += "another client used it" if served > most else "another server answered some of them"
    yield limited(name, beyond, text)


def _several_answers(records: Records) -> bool:
    """Whether requests ask for several answers each (`n`), which take a slot each and are counted one by one."""
    return bool((records.numbers("choices") > 1).any())


def _served(records: Records, counters: ServerCounters) -> Iterator[tuple[str, int, int, int, int]]:
    """What the server counted: its unit, the count and its rounding error, the least and the most that our requests can have
    caused."""
    ok, rest = records.ok(), records.where(~records.equals("status", "ok"))
    if counters.requests is not None:
        yield (
            "requests",
            counters.requests,
            counters.error("requests"),
            len(ok),
            int(np.nan_to_num(records.numbers("tries"), nan=1.0).sum()),
        )
        return
    answers, prompts = ok.numbers("output_tokens"), ok.numbers("prompt_tokens")
    if counters.output_tokens is not None and len(answers) and not np.isnan(answers).any():
        possible = np.fmax(rest.numbers("token_events"), rest.numbers("max_tokens"))
        error = counters.error("output_tokens")
        yield "output tokens", counters.output_tokens, error, int(answers.sum()), int(answers.sum() + np.nansum(possible))
    possible = rest.numbers("prompt_tokens")
    if counters.prompt_tokens is not None and len(prompts) and not np.isnan(prompts).any() and not np.isnan(possible).any():
        error = counters.error("prompt_tokens")
        yield "prompt tokens", counters.prompt_tokens, error, int(prompts.sum()), int(prompts.sum() + possible.sum())


def _beyond(served: int, error: int, least: int, most: int) -> float:
    """How far a count lies outside the range even with its rounding error, relative to the range's nearer end."""
    if served > most:
        return max(0, served - error - most) / max(1, most)
    return max(0, least - served - error) / max(1, least)


def preemptions(evidence: Evidence) -> Iterator[Check]:
    """Requests that vLLM set aside because its KV cache was full; their prompts are computed again."""
    count = None if evidence.counters is None else evidence.counters.preemptions
    if count:
        text = (
            f"the server preempted requests {quantity(count, 'time')}: its KV cache was full, and their prompts were computed again"
        )
        yield information("preemptions", count, f"{text}; lower the load or give it more memory (--gpu-memory-utilization)")


def just_started(evidence: Evidence) -> Iterator[Check]:
    """A server that had been running for less than a minute when the run was prepared."""
    if evidence.uptime_s is not None and evidence.uptime_s < JUST_STARTED_S:
        text = f"the server was started {evidence.uptime_s:.0f} s before the run: the first requests may have warmed it up"
        yield information("server_uptime_s", evidence.uptime_s, text)


def unexplained(evidence: Evidence) -> Iterator[Check]:
    """The share of E2EL that is neither the server's own time nor a wait that the records explain (see `metrics.time_sums`), or
    the part of the mean E2EL beyond the server's own."""
    found = evidence.unexplained
    if found is None or _several_answers(evidence.records):
        return
    unexplained_ms, mean_ms = found
    share = unexplained_ms / mean_ms if mean_ms > 0 else 0.0
    limit = LEAST_UNEXPLAINED_MS / mean_ms if mean_ms > 0 else None
    text = (
        f"{share:.0%} of the mean E2EL ({unexplained_ms:.1f} of {mean_ms:.1f} ms) is neither the server's own time nor a known wait"
    )
    if limit is not None and share > max(limit, LIMITS["unexplained_ratio"].limit):
        text += ": another client on the server, a proxy or the network"
    yield limited("unexplained_ratio", share, text, limit=limit)
