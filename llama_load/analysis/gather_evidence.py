"""The evidence for the verdict of a run or of a stage, from its records and its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llama_load.failure_kind import LIMIT, FailureKind
from llama_load.foreign_json import decode_foreign
from llama_load.metrics.client_server import E2EL, side_by_side
from llama_load.metrics.evidence import Evidence
from llama_load.metrics.failure_hints import FailureContext
from llama_load.metrics.probe_figures import ProbeFigures, probe_figures
from llama_load.metrics.prompt_cache import CacheEvidence, PromptTable
from llama_load.metrics.summary import Summary, shown_latencies
from llama_load.metrics.time_sums import TimeParts
from llama_load.metrics.token_counts import TokenCounts
from llama_load.observed.other_requests import in_all
from llama_load.observed.records import Records
from llama_load.observed.server_counters import ServerCounters
from llama_load.observed.slot_context import slot_context_of
from llama_load.observed.window import Window
from llama_load.observed.worker_health import within
from llama_load.run_folder import Manifest, Run, StageRecord
from llama_load.targets.apis import WITH_TEMPLATE
from llama_load.targets.servers import kind_named
from llama_load.units import ns_to_ms

TRACE = "trace"
# Fields of a body that chat templates render, besides the messages.
TEMPLATE_FIELDS = frozenset(("tools", "functions", "documents", "chat_template", "chat_template_kwargs", "response_format"))
# How a run ended that somebody stopped (Ctrl-C, the web UI).
BY_HAND = ("stopped", "interrupted")
# Used where the server does not report its chat template: those of current models add 10 to 40 tokens.
GUESSED_HEAD_TOKENS = 40


def evidence_of_run(
    run: Run,
    measured: Records,
    figures: Summary,
    *,
    parts: TimeParts | None,
    counted: TokenCounts,
    probes: ProbeFigures | None,
) -> Evidence:
    """The evidence of a whole run: its measured requests, their figures, the prompts of all requests."""
    manifest = run.manifest
    cache = cache_evidence(manifest)
    return Evidence(
        records=measured,
        figures=figures,
        beside=run.records if manifest.hands_over else None,
        users=manifest.users if manifest.arrival is None else manifest.max_in_flight,
        ramp_s=manifest.ramp_s,
        users_asked=[asked.users for asked in manifest.users_asked],
        gap_ms=_mean_gap_ms(measured),
        is_steady=manifest.ramp is None and manifest.ramp_s is None and manifest.arrival != TRACE,
        cut_ns=None if manifest.stages else cut_ns(manifest, measured),
        planned=None if manifest.end == "time" or manifest.num_prompts is None else manifest.num_prompts - manifest.cut,
        unsent=max(0, manifest.due - manifest.dropped - len(measured)) if manifest.end == "time" and manifest.due else None,
        dropped=manifest.dropped,
        interrupted=manifest.end in ("interrupted", "running", "aborted", "server")
        or (manifest.end == "stopped" and manifest.run_time_s is not None),
        stopped_by_hand=manifest.end in BY_HAND and bool(manifest.workers),  # a run that was killed has no health of its workers
        shared_machine=manifest.shared_machine,
        aborts_by_tokens=_aborts_by_tokens(manifest),
        percentiles=manifest.percentiles,
        shown=() if manifest.stages else shown_latencies(manifest.percentile_metrics, figures),
        health=manifest.workers,
        lost=manifest.lost,
        master_lag_s=manifest.master_lag_s,
        damaged=manifest.damaged,
        changed=run.changed,
        hosts=[str(target["url"]) for target in manifest.targets],
        slots=_slots(manifest),
        length_means_full=_length_means_full(manifest),
        fixed_lengths=manifest.fixed_lengths,
        server_changes=manifest.server_changes,
        counters=manifest.counters,
        uptime_s=min(_numbers(manifest, "uptime_s"), default=None),
        unexplained=_unexplained(run.records if manifest.hands_over else measured, parts, manifest.counters),
        unattributed_ms=_unattributed_ms(parts),
        server_endings=[server.ended for server in manifest.servers if server.ended],
        hang_ups=manifest.hang_ups,
        unused_rpc_workers=[address for server in manifest.servers for address in server.rpc_unused],
        draft_models=[server.url for server in manifest.servers if kind_named(server.backend).draft_flags & _flags(server.command)],
        failure_context=_failure_context(run),
        prompts=PromptTable(run.records, cache),
        count_gaps=counted.gaps,
        tpot_bounds=counted.tpot_bounds,
        probes=probes,
        recorded_history=manifest.options.get("history") == "recorded",
        shortened_conversations=_shortened(manifest),
        conversations=manifest.conversations,
        others=in_all(worker.others for worker in manifest.workers),
        cache=cache,
    )


def evidence_of_stage(
    whole: Evidence, of_stage: Records, figures: Summary, *, number: int, record: StageRecord, parts: TimeParts | None
) -> Evidence:
    """The evidence of a stage: its requests, including those that ended after it, and its figures. `whole`: that of the run."""
    is_open, begun_ns, ended_ns = record.rate_rps is not None, record.begun_mono_ns or 0, record.ended_mono_ns
    return replace(
        whole,
        records=of_stage,
        figures=figures,
        beside=None,
        stage=record.name,
        stage_number=number,
        users=whole.users if is_open else record.users,
        gap_ms=_mean_gap_ms(of_stage),
        is_steady=record.start is None,
        cut_ns=ended_ns if record.is_timed else None,
        unsent=record.unsent if is_open else None,
        health=[] if ended_ns is None else [within(worker, begun_ns, ended_ns) for worker in whole.health],
        counters=record.counters,
        unexplained=_unexplained(of_stage, parts, record.counters),
        unattributed_ms=_unattributed_ms(parts),
    )


def _is_template_known(manifest: Manifest) -> bool:
    """Whether planned prompt tokens include all that is put around the prompts: the chat template, if any. A text that makes each
    request's prompt new (--bust-prefix-cache) is not counted."""
    if manifest.options.get("bust_prefix_cache") or _adds_to_prompts(manifest.options.get("extra_body")):
        return False
    templates = [target.get("template_tokens") for target in manifest.targets]
    return manifest.endpoint not in WITH_TEMPLATE or (bool(templates) and None not in templates)


def _adds_to_prompts(extra_body: object) -> bool:
    """Whether a text of --extra-body has a field that a chat template puts into every prompt, as it does with tools."""
    try:
        fields = decode_foreign(str(extra_body or "{}").encode())
    except ValueError:
        return True
    return isinstance(fields, dict) and not TEMPLATE_FIELDS.isdisjoint(fields)


def cache_evidence(manifest: Manifest) -> CacheEvidence:
    """The evidence about the prompt cache besides the records. Where only a template's total length is known, it counts as its
    head."""
    guess = GUESSED_HEAD_TOKENS if manifest.endpoint in WITH_TEMPLATE else 0
    heads = {}
    for target in manifest.targets:
        reported = (target.get(name) for name in ("head_tokens", "template_tokens"))
        heads[str(target.get("url"))] = next((tokens for tokens in reported if tokens is not None), guess)
    return CacheEvidence(
        intended=manifest.cache_meant,
        is_off=manifest.cache_off,
        head_tokens=heads,
        prefix_tokens=manifest.prefix_tokens or 0,
        shared_tokens=manifest.shared_tokens,
        estimated=manifest.tokenizer == "estimate",
        template_known=_is_template_known(manifest),
        sent_before=manifest.prompts_sent_before,
        common=manifest.common_beginnings,
    )


def _aborts_by_tokens(manifest: Manifest) -> bool:
    """Whether --abort-after is a number of tokens: `first-token` (the default), `20 tokens`."""
    after = manifest.options.get("abort_after") or "first-token"
    return str(after).endswith(("token", "tokens"))


def _flags(command: str | None) -> set[str]:
    """The words of a server's command, without values that `=` joins to them."""
    return {word.partition("=")[0] for word in (command or "").split()}


def probes_of(run: Run, window: Window) -> ProbeFigures | None:
    """The figures of the probes; None without --probe-rate. Where their file cannot be read, there are no probes in them."""
    manifest = run.manifest
    if manifest.probe_rate_rps is None:
        return None
    return probe_figures(
        run.records.where(~run.records.has("request_id")) if run.probes is None else run.probes,
        run.records,
        window,
        rate_rps=manifest.probe_rate_rps,
        stages=[(stage.name, stage.begun_mono_ns, stage.ended_mono_ns) for stage in manifest.stages],
        missing=manifest.probes_unwritten,
        skipped=manifest.probes_skipped,
        lost_neighbours=sum(len(gone.possibly_sent) + len(gone.possibly_sent_warmup) for gone in manifest.lost),
    )


def cut_ns(manifest: Manifest, measured: Records) -> int | None:
    """When the load was ended by time or by hand, with requests in flight; None where every request ended normally."""
    cancelled = measured.cancelled()
    if manifest.end == "complete" and not len(cancelled):
        return None
    if manifest.cut_mono_ns is not None:
        return manifest.cut_mono_ns
    return int(cancelled.instants("ended_mono_ns").min()) if len(cancelled) else None


def _mean_gap_ms(records: Records) -> float | None:
    """Mean time between the scheduled instants of these requests, ms; None in a closed loop."""
    scheduled = records.instants("scheduled_mono_ns")
    return ns_to_ms(int(scheduled.max() - scheduled.min())) / (len(scheduled) - 1) if len(scheduled) > 1 else None


def _slots(manifest: Manifest) -> int | None:
    """The slots of all replicas; None where one does not report them."""
    slots = _whole_numbers(manifest, "slots")
    return sum(slots) if slots and len(slots) == len(manifest.targets) else None


def _failure_context(run: Run) -> FailureContext:
    """What hints on failures need to know besides the load."""
    manifest = run.manifest
    contexts, slots = _whole_numbers(manifest, "ctx_per_slot"), _whole_numbers(manifest, "slots")
    backends = {str(target.get("backend")) for target in manifest.targets}
    return FailureContext(
        slots_each=max(slots, default=None),
        ctx_per_slot=min(contexts, default=None),
        is_shared=_is_shared(manifest),
        backend=backends.pop() if len(backends) == 1 else None,
        limits_s=_limits_s(manifest.options),
        last_words=next((server.ended for server in manifest.servers if server.ended), None),
    )


def _is_shared(manifest: Manifest) -> bool | None:
    """Whether slots share one KV cache, by the servers' logs or --kv-pool; None where neither says it."""
    if manifest.options.get("kv_pool"):
        return True
    known = [shared for server in manifest.servers if (shared := slot_context_of(server).is_shared) is not None]
    return any(known) if known else None


def _unexplained(records: Records, parts: TimeParts | None, counters: ServerCounters | None) -> tuple[float, float] | None:
    """Mean E2EL that nothing explains, and mean E2EL, ms: from the parts of the requests, else from the server's histograms."""
    if parts is not None and parts.unexplained_ms is not None and parts.explained_of_ms is not None:
        return parts.unexplained_ms, parts.explained_of_ms
    for pair in side_by_side(records, counters):
        if pair.name == E2EL and pair.client is not None and pair.difference is not None:
            return max(0.0, pair.difference), pair.client
    return None


def _unattributed_ms(parts: TimeParts | None) -> float:
    """Mean time of a request that belongs to no part; 0 where the parts are not known."""
    rest = None if parts is None else parts.parts["unattributed"]
    return 0.0 if rest is None else rest.mean_ms


def _numbers(manifest: Manifest, name: str) -> list[float]:
    """A fact of the targets that report it as a number."""
    return [value for target in manifest.targets if isinstance(value := target.get(name), int | float)]


def _whole_numbers(manifest: Manifest, name: str) -> list[int]:
    """A fact of the targets that report it as a positive whole number."""
    return [value for value in _numbers(manifest, name) if isinstance(value, int) and value > 0]


def _limits_s(options: Mapping[str, Any]) -> dict[str, float]:
    """The time limits of the run by failure class, s."""
    limits = {}
    for kind in (known.value for known in FailureKind if known.trait == LIMIT):
        try:
            limits[kind] = float(options.get(kind) or "")
        except (TypeError, ValueError):
            continue
    return limits


def _length_means_full(manifest: Manifest) -> bool:
    """Whether all servers generate to the end of their context where max_tokens is not set."""
    return bool(manifest.targets) and all(kind_named(str(target.get("backend"))).fills_context for target in manifest.targets)


def _shortened(manifest: Manifest) -> int:
    """Whole conversations whose last turns were left out. (Of chats, --turns asks for as many turns as fit.)"""
    dataset, shortened = manifest.prompts.get("dataset"), manifest.prompts.get("shortened")
    whole = isinstance(dataset, dict) and ("layout" in dataset or "rounds" in dataset)
    return shortened if whole and isinstance(shortened, int) else 0
