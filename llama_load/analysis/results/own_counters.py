"""The servers' counters without the probes (--probe-rate): about the load alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from llama_load.run_folder import Manifest, Run, StageRecord
from llama_load.run_folder.observed.probe_names import BESIDE
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_counters import ServerCounters, ServerTimes

# The prompt tokens of a probe that failed or was cut, where none was answered: their texts have 40
# to 60.
GUESSED_TOKENS = 60


def without_probes(run: Run) -> Run:
    """The run with the counters of its load alone, of the whole run and of each stage.

    The probes in them are those that were sent while requests were measured: others are sent before
    the counters are read, or not at all.
    """
    if run.probes is None or not len(run.probes):
        return run

    manifest: Manifest = run.manifest
    beside = run.probes.where(run.probes.equals("name", BESIDE))
    started_ns = beside.instants("started_mono_ns")
    stages = []
    for number, stage in enumerate(manifest.stages):
        if stage.counters is not None:
            begun_ns = stage.begun_mono_ns or 0
            # Requests and probes in flight at a stage's end are waited for before the counters are
            # read.
            until_ns = _first_begin_ns(manifest.stages[number + 1 :])
            is_own = (started_ns >= begun_ns) & (started_ns < until_ns)
            own = beside.where(np.asarray(is_own))
            stage = replace(stage, counters=counters_without(stage.counters, own))

        stages.append(stage)

    counters = manifest.counters
    if counters is not None:
        counters = counters_without(counters, beside)

    return replace(run, manifest=replace(manifest, counters=counters, stages=stages))


def _first_begin_ns(stages: Sequence[StageRecord]) -> float:
    """When the first of these stages began that did; infinity where none did."""
    for stage in stages:
        if stage.begun_mono_ns is not None:
            return stage.begun_mono_ns

    return math.inf


def counters_without(counters: ServerCounters, probes: Records) -> ServerCounters:
    """The counters less what these probes added to them.

    What a probe that was not answered added is not known: it is in the errors. A count of tokens
    that the probes' answers do not report is not known either.
    """
    ok = probes.ok()
    unanswered = len(probes) - len(ok)
    prompts = ok.total("prompt_tokens")
    errors = dict(counters.errors)
    if unanswered:
        for name, most in _most_added(probes).items():
            errors[name] = errors.get(name, 0.0) + float(unanswered * most)

    times = counters.times
    if times is not None:
        times = _times_without(times, ok)

    return replace(
        counters,
        prompt_tokens=_less(counters.prompt_tokens, prompts),
        cache_queries=_less(counters.cache_queries, prompts),
        cache_hits=_less(counters.cache_hits, ok.total("cached_tokens") or 0),
        output_tokens=_less(counters.output_tokens, ok.total("output_tokens")),
        requests=_less(counters.requests, len(ok)),
        times=times,
        errors=errors,
    )


def _most_added(probes: Records) -> dict[str, float]:
    """What a probe that was not answered can have added to each counter at most."""
    longest = (
        np.nanmax(probes.ok().numbers("prompt_tokens"), initial=0) or GUESSED_TOKENS
    )
    return {
        "requests": 1,
        "output_tokens": np.nanmax(probes.numbers("max_tokens"), initial=0),
        "prompt_tokens": longest,
        "cache_queries": longest,
        "cache_hits": longest,
    }


def _times_without(times: ServerTimes, ok: Records) -> ServerTimes:
    """The histograms' sums less the probes' times as the client measured them.

    Without connecting; of their wait in the queue and their prefill, which only the server knows,
    the mean of all requests.
    """
    connect_ms = np.nan_to_num(ok.numbers("connect_ms")) + np.nan_to_num(
        ok.numbers("tls_ms")
    )
    ttft_ms = float(np.nansum(ok.numbers("ttft_ms") - connect_ms))
    e2el_ms = float(np.nansum(ok.numbers("e2el_ms") - connect_ms))
    share = 0.0
    if times.requests:
        share = min(1.0, len(ok) / times.requests)

    queue_ms = times.queue_ms * share
    prefill_ms = times.prefill_ms * share
    of_probes = ServerTimes(
        len(ok), ttft_ms, e2el_ms, queue_ms, prefill_ms, e2el_ms - ttft_ms
    )

    return times.combined(of_probes, -1)


def _less(count: int | None, own: int | None) -> int | None:
    if count is None or own is None:
        return None
    return count - own
