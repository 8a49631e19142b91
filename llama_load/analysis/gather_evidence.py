"""The evidence for the verdict of a run or of a stage, from its records and its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_load.analysis.cache_evidence import cache_evidence
from llama_load.failure_kind import LIMIT, FailureKind
from llama_load.metrics.client_server import E2EL, side_by_side
from llama_load.metrics.evidence import Evidence
from llama_load.metrics.failure_hints import FailureContext
from llama_load.metrics.prompt_cache import PromptTable
from llama_load.metrics.summary import Summary, shown_latencies
from llama_load.metrics.time_sums import TimeParts
from llama_load.observed.other_requests import in_all
from llama_load.observed.records import Records
from llama_load.observed.server_counters import ServerCounters
from llama_load.observed.worker_health import within
from llama_load.run_folder import Manifest, Run, StageRecord
from llama_load.targets.servers import kind_named
from llama_load.units import ns_to_ms

TRACE = "trace"
# Flags of llama-server that load a draft model.
DRAFT_FLAGS = ("-md", "--model-draft", "--spec-draft-model", "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf")


def evidence_of_run(run: Run, measured: Records, figures: Summary, *, prompts: PromptTable, parts: TimeParts | None) -> Evidence:
    """The evidence of a whole run: its measured requests, their figures, the prompts of all requests."""
    manifest = run.manifest
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
        percentiles=manifest.percentiles,
        shown=() if manifest.stages else shown_latencies(manifest.percentile_metrics, figures),
        health=manifest.workers,
        lost=manifest.lost,
        master_lag_s=manifest.master_lag_s,
        damaged=manifest.damaged,
        hosts=[str(target["url"]) for target in manifest.targets],
        slots=_slots(manifest),
        length_means_full=_length_means_full(manifest),
        fixed_lengths=manifest.fixed_lengths,
        server_changes=manifest.server_changes,
        counters=manifest.counters,
        uptime_s=min(_known_numbers(manifest, "uptime_s"), default=None),
        unexplained=_unexplained(run.records if manifest.hands_over else measured, parts, manifest.counters),
        server_endings=[server.ended for server in manifest.servers if server.ended],
        hang_ups=manifest.hang_ups,
        unused_rpc_workers=[address for server in manifest.servers for address in server.rpc_unused],
        draft_models=[server.url for server in manifest.servers if _has_draft_model(server.command)],
        failure_context=_failure_context(run),
        prompts=prompts,
        recorded_history=manifest.options.get("history") == "recorded",
        shortened_conversations=_shortened(manifest),
        conversations=manifest.conversations,
        others=in_all(worker.others for worker in manifest.workers),
        cache=cache_evidence(manifest),
    )


def evidence_of_stage(
    run: Run,
    of_stage: Records,
    figures: Summary,
    number: int,
    record: StageRecord,
    *,
    prompts: PromptTable,
    parts: TimeParts | None,
) -> Evidence:
    """The evidence of a stage: its requests, including those that ended after it, and its figures."""
    manifest = run.manifest
    is_open = record.rate_rps is not None
    begun_ns, ended_ns = record.begun_mono_ns, record.ended_mono_ns
    return Evidence(
        records=of_stage,
        figures=figures,
        stage=record.name,
        users=manifest.max_in_flight if is_open else record.users,
        gap_ms=_mean_gap_ms(of_stage),
        is_steady=record.start is None,
        cut_ns=record.ended_mono_ns if record.is_timed else None,
        unsent=record.unsent if is_open else None,
        percentiles=manifest.percentiles,
        health=[] if ended_ns is None else [within(worker, begun_ns or 0, ended_ns) for worker in manifest.workers],
        slots=_slots(manifest),
        length_means_full=_length_means_full(manifest),
        fixed_lengths=manifest.fixed_lengths,
        prompts=prompts,
        cache=cache_evidence(manifest),
        stage_number=number,
        counters=record.counters,
        unexplained=_unexplained(of_stage, parts, record.counters),
        failure_context=_failure_context(run),
    )


def _has_draft_model(command: str | None) -> bool:
    """Whether a llama-server's command names a draft model."""
    return any(word.partition("=")[0] in DRAFT_FLAGS for word in (command or "").split())


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
        backend=backends.pop() if len(backends) == 1 else None,
        limits_s=_limits_s(manifest.options),
        last_words=next((server.ended for server in manifest.servers if server.ended), None),
    )


def _unexplained(records: Records, parts: TimeParts | None, counters: ServerCounters | None) -> tuple[float, float] | None:
    """Mean E2EL that nothing explains, and mean E2EL, ms: from the parts of the requests, else from the server's histograms."""
    if parts is not None and parts.unexplained_ms is not None and parts.explained_of_ms is not None:
        return parts.unexplained_ms, parts.explained_of_ms
    for pair in side_by_side(records, counters):
        if pair.name == E2EL and pair.client is not None and pair.difference is not None:
            return max(0.0, pair.difference), pair.client
    return None


def _known_numbers(manifest: Manifest, name: str) -> list[float]:
    """A fact of the targets that report it as a number."""
    return [float(value) for target in manifest.targets if isinstance(value := target.get(name), int | float)]


def _whole_numbers(manifest: Manifest, name: str) -> list[int]:
    """A fact of the targets that report it as a positive whole number."""
    return [value for target in manifest.targets if isinstance(value := target.get(name), int) and value > 0]


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
