"""The servers' counters without the probes (--probe-rate), so that they are about the load alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from llama_load.observed.probe_names import BESIDE
from llama_load.observed.records import Records
from llama_load.observed.server_counters import ServerCounters, ServerTimes
from llama_load.run_folder import Manifest, Run

# The prompt tokens of a probe that failed or was cut, where none was answered: their texts have 40 to 60.
GUESSED_TOKENS = 60


def without_probes(run: Run) -> Run:
    """The run with the counters of its load alone, of the whole run and of each stage. The probes in them are those that were sent
    while requests were measured: others are sent before the counters are read, or not at all."""
    if run.probes is None or not len(run.probes):
        return run
    manifest: Manifest = run.manifest
    beside = run.probes.where(run.probes.equals("name", BESIDE))
    started = beside.instants("started_mono_ns")
    begins = [stage.begun_mono_ns for stage in manifest.stages]
    stages = []
    for number, stage in enumerate(manifest.stages):
        # Until the next stage begins: requests and probes in flight at a stage's end are waited for before the counters are read.
        until = next((begin for begin in begins[number + 1 :] if begin is not None), math.inf)
        own = beside.where(np.asarray((started >= (stage.begun_mono_ns or 0)) & (started < until)))
        stages.append(replace(stage, counters=None if stage.counters is None else counters_without(stage.counters, own)))
    counters = None if manifest.counters is None else counters_without(manifest.counters, beside)
    return replace(run, manifest=replace(manifest, counters=counters, stages=stages))


def counters_without(counters: ServerCounters, probes: Records) -> ServerCounters:
    """The counters less what these probes added to them. What a probe that was not answered added is not known: it is in the
    errors. A count of tokens that the probes' answers do not report is not known either."""
    ok, unknown = probes.ok(), len(probes) - len(probes.ok())
    prompts, answers, cached = map(ok.total, ("prompt_tokens", "output_tokens", "cached_tokens"))
    longest = np.nanmax(ok.numbers("prompt_tokens"), initial=0) or GUESSED_TOKENS
    most_tokens = np.nanmax(probes.numbers("max_tokens"), initial=0)
    added = {"requests": 1, "output_tokens": most_tokens} | dict.fromkeys(("prompt_tokens", "cache_queries", "cache_hits"), longest)
    errors = {name: counters.errors.get(name, 0.0) + float(unknown * most) for name, most in added.items() if unknown}
    return replace(
        counters,
        prompt_tokens=_less(counters.prompt_tokens, prompts),
        cache_queries=_less(counters.cache_queries, prompts),
        cache_hits=_less(counters.cache_hits, 0 if cached is None else cached),
        output_tokens=_less(counters.output_tokens, answers),
        requests=_less(counters.requests, len(ok)),
        times=None if counters.times is None else _times_without(counters.times, ok),
        errors={**counters.errors, **errors},
    )


def _times_without(times: ServerTimes, ok: Records) -> ServerTimes:
    """The histograms' sums less the probes' times as the client measured them, without connecting; of their wait in the queue and
    their prefill, which only the server knows, the mean of all requests."""
    connect_ms = np.nan_to_num(ok.numbers("connect_ms")) + np.nan_to_num(ok.numbers("tls_ms"))
    ttft, e2el = (float(np.nansum(ok.numbers(name) - connect_ms)) for name in ("ttft_ms", "e2el_ms"))
    share = min(1.0, len(ok) / times.requests) if times.requests else 0.0
    return times.combined(
        ServerTimes(len(ok), ttft, e2el, times.queue_ms * share, times.prefill_ms * share, e2el - ttft),
        -1,
    )


def _less(count: int | None, own: int | None) -> int | None:
    return None if count is None or own is None else count - own
