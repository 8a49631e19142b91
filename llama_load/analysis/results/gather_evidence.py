"""The evidence for the verdict of a run or of a stage, from its records and its manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llama_load.analysis.figures.client_server import E2EL, side_by_side
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.probe_figures import ProbeFigures, probe_figures
from llama_load.analysis.figures.prompt_cache import CacheEvidence, PromptTable
from llama_load.analysis.figures.summary import Summary, shown_latencies
from llama_load.analysis.figures.time_sums import TimeParts
from llama_load.analysis.figures.token_counts import TokenCounts
from llama_load.analysis.results.manifest_facts import (
    aborts_by_tokens,
    failure_context,
    is_template_known,
    length_means_full,
    numbers_of_targets,
    planned,
    servers_with_draft_model,
    shortened_conversations,
    slots_of_all,
    unused_rpc_workers,
)
from llama_load.ground.units import ns_to_ms
from llama_load.run_folder import Manifest, Run, StageRecord
from llama_load.run_folder.observed.other_requests import in_all
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.run_folder.observed.window import Window
from llama_load.run_folder.observed.worker_health import within
from llama_load.servers.apis import WITH_TEMPLATE

TRACE = "trace"
# How a run ended that somebody stopped (Ctrl-C, the web UI).
BY_HAND = ("stopped", "interrupted")
# How a run ended before its time.
INTERRUPTED = ("interrupted", "running", "aborted", "server")
# Used where the server does not report its chat template: those of current models add 10 to 40
# tokens.
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
    """The evidence of a whole run: its measured requests, their figures, the prompts of all."""
    manifest = run.manifest
    cache = cache_evidence(manifest)

    # With --hand-over others than the measured requests used the servers, too.
    beside = None
    used_servers = measured
    if manifest.hands_over:
        beside = run.records
        used_servers = run.records

    users: int | None = manifest.users
    if manifest.arrival is not None:
        users = manifest.max_in_flight

    # In stages each has its own end and its own latencies.
    load_cut_ns = None
    shown: Sequence[str] = ()
    if not manifest.stages:
        load_cut_ns = cut_ns(manifest, measured)
        shown = shown_latencies(manifest.percentile_metrics, figures)

    is_ramped = manifest.ramp is not None or manifest.ramp_s is not None
    has_end = manifest.end == "stopped" and manifest.run_time_s is not None

    return Evidence(
        records=measured,
        figures=figures,
        beside=beside,
        users=users,
        ramp_s=manifest.ramp_s,
        users_asked=[asked.users for asked in manifest.users_asked],
        gap_ms=_mean_gap_ms(measured),
        is_steady=not is_ramped and manifest.arrival != TRACE,
        cut_ns=load_cut_ns,
        planned=planned(manifest),
        unsent=_unsent(manifest, measured),
        dropped=manifest.dropped,
        interrupted=manifest.end in INTERRUPTED or has_end,
        # A run that was killed has no health of its workers.
        stopped_by_hand=manifest.end in BY_HAND and bool(manifest.workers),
        shared_machine=manifest.shared_machine,
        is_ci=manifest.is_ci,
        aborts_by_tokens=aborts_by_tokens(manifest),
        percentiles=manifest.percentiles,
        shown=shown,
        health=manifest.workers,
        lost=manifest.lost,
        master_lag_s=manifest.master_lag_s,
        damaged=manifest.damaged,
        changed=run.changed,
        hosts=[str(target["url"]) for target in manifest.targets],
        slots=slots_of_all(manifest),
        length_means_full=length_means_full(manifest),
        fixed_lengths=manifest.fixed_lengths,
        server_changes=manifest.server_changes,
        counters=manifest.counters,
        uptime_s=min(numbers_of_targets(manifest, "uptime_s"), default=None),
        unexplained=_unexplained(used_servers, parts, manifest.counters),
        unattributed_ms=_unattributed_ms(parts),
        server_endings=[server.ended for server in manifest.servers if server.ended],
        hang_ups=manifest.hang_ups,
        unused_rpc_workers=unused_rpc_workers(manifest),
        draft_models=servers_with_draft_model(manifest),
        wakes=sum(server.wakes for server in manifest.servers),
        prompt_saves_ms=sum(server.prompt_saves_ms for server in manifest.servers),
        failure_context=failure_context(manifest),
        prompts=PromptTable(run.records, cache),
        count_gaps=counted.gaps,
        tpot_bounds=counted.tpot_bounds,
        probes=probes,
        recorded_history=manifest.options.get("history") == "recorded",
        shortened_conversations=shortened_conversations(manifest),
        conversations=manifest.conversations,
        others=in_all(worker.others for worker in manifest.workers),
        cache=cache,
    )


def _unsent(manifest: Manifest, measured: Records) -> int | None:
    """Arrivals that were due by the end but not sent; None where no schedule ended by time."""
    if manifest.end != "time" or not manifest.due:
        return None
    return max(0, manifest.due - manifest.dropped - len(measured))


def evidence_of_stage(
    whole: Evidence,
    of_stage: Records,
    figures: Summary,
    *,
    number: int,
    record: StageRecord,
    parts: TimeParts | None,
) -> Evidence:
    """The evidence of a stage: its requests, including those that ended after it, and its figures.

    `whole`: that of the run.
    """
    users = record.users
    unsent = None
    if record.rate_rps is not None:
        users = whole.users
        unsent = record.unsent

    begun_ns = record.begun_mono_ns or 0
    ended_ns = record.ended_mono_ns
    health = []
    if ended_ns is not None:
        health = [within(worker, begun_ns, ended_ns) for worker in whole.health]

    return replace(
        whole,
        records=of_stage,
        figures=figures,
        beside=None,
        stage=record.name,
        stage_number=number,
        users=users,
        gap_ms=_mean_gap_ms(of_stage),
        is_steady=record.start is None,
        cut_ns=ended_ns if record.is_timed else None,
        unsent=unsent,
        health=health,
        counters=record.counters,
        unexplained=_unexplained(of_stage, parts, record.counters),
        unattributed_ms=_unattributed_ms(parts),
    )


def cache_evidence(manifest: Manifest) -> CacheEvidence:
    """The evidence about the prompt cache besides the records.

    Where only a template's total length is known, it counts as its head.
    """
    guess = GUESSED_HEAD_TOKENS if manifest.endpoint in WITH_TEMPLATE else 0
    heads = {}
    for target in manifest.targets:
        tokens = target.get("head_tokens")
        if tokens is None:
            tokens = target.get("template_tokens")
        if tokens is None:
            tokens = guess

        heads[str(target.get("url"))] = tokens

    return CacheEvidence(
        intended=manifest.cache_meant,
        is_off=manifest.cache_off,
        head_tokens=heads,
        prefix_tokens=manifest.prefix_tokens or 0,
        shared_tokens=manifest.shared_tokens,
        estimated=manifest.tokenizer == "estimate",
        template_known=is_template_known(manifest),
        sent_before=manifest.prompts_sent_before,
        common=manifest.common_beginnings,
    )


def probes_of(run: Run, window: Window) -> ProbeFigures | None:
    """The figures of the probes; None without --probe-rate.

    Where their file cannot be read, there are no probes in them.
    """
    manifest = run.manifest
    if manifest.probe_rate_rps is None:
        return None

    probes = run.probes
    if probes is None:
        probes = run.records.where(~run.records.has("request_id"))  # none

    lost = 0
    for gone in manifest.lost:
        lost += len(gone.possibly_sent) + len(gone.possibly_sent_warmup)

    stages = []
    for stage in manifest.stages:
        stages.append((stage.name, stage.begun_mono_ns, stage.ended_mono_ns))

    return probe_figures(
        probes,
        run.records,
        window,
        rate_rps=manifest.probe_rate_rps,
        stages=stages,
        missing=manifest.probes_unwritten,
        skipped=manifest.probes_skipped,
        lost_neighbours=lost,
    )


def cut_ns(manifest: Manifest, measured: Records) -> int | None:
    """When the load was ended by time or by hand, with requests in flight.

    None where every request ended normally.
    """
    cancelled = measured.cancelled()
    if manifest.end == "complete" and not len(cancelled):
        return None
    if manifest.cut_mono_ns is not None:
        return manifest.cut_mono_ns
    if not len(cancelled):
        return None

    return int(cancelled.instants("ended_mono_ns").min())


def _mean_gap_ms(records: Records) -> float | None:
    """Mean time between the scheduled instants of these requests, ms; None in a closed loop."""
    scheduled_ns = records.instants("scheduled_mono_ns")
    if len(scheduled_ns) < 2:
        return None
    whole_ms = ns_to_ms(int(scheduled_ns.max() - scheduled_ns.min()))
    return whole_ms / (len(scheduled_ns) - 1)


def _unexplained(
    records: Records, parts: TimeParts | None, counters: ServerCounters | None
) -> tuple[float, float] | None:
    """Mean E2EL that nothing explains, and mean E2EL, ms.

    From the parts of the requests, else from the server's histograms.
    """
    if (
        parts is not None
        and parts.unexplained_ms is not None
        and parts.explained_of_ms is not None
    ):
        return parts.unexplained_ms, parts.explained_of_ms
    for pair in side_by_side(records, counters):
        if (
            pair.name == E2EL
            and pair.client is not None
            and pair.difference is not None
        ):
            return max(0.0, pair.difference), pair.client
    return None


def _unattributed_ms(parts: TimeParts | None) -> float:
    """Mean time of a request that belongs to no part; 0 where the parts are not known."""
    if parts is None:
        return 0.0
    rest = parts.parts["unattributed"]
    if rest is None:
        return 0.0
    return rest.mean_ms
