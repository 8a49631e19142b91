"""A run and everything worked out from its records: what every report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_load.metrics.check import INCOMPLETE
from llama_load.metrics.evidence import Evidence
from llama_load.metrics.other_requests import OtherTraffic, in_all
from llama_load.metrics.rates import peak_in_flight
from llama_load.metrics.records import Records
from llama_load.metrics.replicas import imbalance
from llama_load.metrics.slo import Slo, parse_slo
from llama_load.metrics.stage_figures import StageFigures, completed_within, repeated_prompts, with_window_rates
from llama_load.metrics.summary import Summary, shown_latencies, summarize
from llama_load.metrics.thresholds import ThresholdResult, evaluate, parse_threshold
from llama_load.metrics.verdict import Verdict, judge, stage_checks
from llama_load.metrics.window import Window, window_of
from llama_load.reports.cache_evidence import cache_evidence
from llama_load.runs import Manifest, Run, StageRecord
from llama_load.units import ns_to_ms

TRACE = "trace"


@dataclass(frozen=True, slots=True)
class Results:
    """The figures of one run."""

    run: Run
    total: Summary
    by_workload: dict[str, Summary]
    by_host: dict[str, Summary]
    by_model: dict[str, Summary]
    by_turn: dict[int, Summary]
    stages: list[StageFigures]
    repeated_prompts: int  # in a stage after that in which they were sent first
    verdict: Verdict
    thresholds: list[ThresholdResult]
    others: OtherTraffic

    @property
    def request_imbalance(self) -> float | None:
        """How unevenly successful requests were spread over the replicas (see `metrics.replicas.imbalance`)."""
        return imbalance([part.completed for part in self.by_host.values()])

    @property
    def token_imbalance(self) -> float | None:
        """The same for output tokens, which is the work that was done."""
        return imbalance([part.known_output_tokens for part in self.by_host.values()])

    @property
    def exit_code(self) -> int:
        """3 the run is incomplete, 1 a threshold came true, Locust's --exit-code-on-error where other requests failed or tasks
        raised exceptions, else 0."""
        if self.verdict.word == INCOMPLETE:
            return 3
        if any(threshold.failed for threshold in self.thresholds):
            return 1
        return self.run.manifest.exit_code_on_error if self.others.failures or self.others.raised else 0


def analyze(run: Run) -> Results:
    """Compute everything from the run's records and manifest."""
    from llama_load.reports.result_json import flat_result

    manifest = run.manifest
    measured = run.records.measured()
    slos = tuple(parse_slo(text) for text in manifest.goodput)
    cut_ns = None if manifest.stages else _cut_ns(manifest, measured)
    window = window_of(measured, cut_ns)
    total = summarize(measured, manifest.percentiles, slos, window)

    def grouped(column: str, known: Sequence[Any] = ()) -> dict[Any, Summary]:
        """The figures of each value of a column; all rates are of the run's time."""
        values = list(dict.fromkeys([*known, *measured.values_of(column)]))
        if len(values) == 1 and bool(measured.equals(column, values[0]).all()):
            return {values[0]: total}
        return {
            value: summarize(measured.where(measured.equals(column, value)), manifest.percentiles, slos, window) for value in values
        }

    stages = [_stage(run, measured, slos, number, record) for number, record in enumerate(manifest.stages)]
    again = repeated_prompts(measured, len(stages))
    others = in_all(worker.others for worker in manifest.workers)
    evidence = Evidence(
        records=measured,
        figures=total,
        users=manifest.users if manifest.arrival is None else manifest.max_in_flight,
        ramp_s=manifest.ramp_s,
        users_asked=[asked.users for asked in manifest.users_asked],
        gap_ms=_mean_gap_ms(measured),
        is_steady=manifest.ramp is None and manifest.ramp_s is None and manifest.arrival != TRACE,
        cut_ns=cut_ns,
        planned=None if manifest.end == "time" or manifest.num_prompts is None else manifest.num_prompts - manifest.cut,
        unsent=max(0, manifest.due - manifest.dropped - len(measured)) if manifest.end == "time" and manifest.due else None,
        dropped=manifest.dropped,
        interrupted=manifest.end in ("interrupted", "running") or (manifest.end == "stopped" and manifest.run_time_s is not None),
        percentiles=manifest.percentiles,
        shown=() if stages else shown_latencies(manifest.percentile_metrics, total),
        health=manifest.workers,
        lost=manifest.lost,
        hosts=[str(target["url"]) for target in manifest.targets],
        slots=_slots(manifest),
        length_means_full=_length_means_full(manifest),
        fixed_lengths=manifest.fixed_lengths,
        server_changes=manifest.server_changes,
        all_records=run.records,
        cache=cache_evidence(manifest),
        others=others,
    )
    verdict = judge(evidence, stages)
    hosts = [str(target["url"]) for target in manifest.targets]  # also one that never got a request
    turns = dict(sorted(grouped("turn").items()))
    workloads, by_host, models = grouped("workload"), grouped("host", hosts), grouped("model")
    groups = {"workload": workloads, "host": by_host, "model": models, "turn": turns}
    flat = {
        group: {str(name): flat_result(manifest, part, is_part=part is not total) for name, part in parts.items()}
        for group, parts in groups.items()
    }
    flat["stage"] = {stage.name: flat_result(manifest, stage.figures, stage) for stage in stages}
    values = flat_result(manifest, total)
    thresholds = [evaluate(parse_threshold(text), values, flat) for text in manifest.fail_if]
    return Results(run, total, workloads, by_host, models, turns, stages, again, verdict, thresholds, others)


def _stage(run: Run, measured: Records, slos: tuple[Slo, ...], number: int, record: StageRecord) -> StageFigures:
    """The figures of a stage, and the checks of it that are not ok."""
    manifest = run.manifest
    own, crossing = completed_within(measured, number, record.ended_mono_ns)
    figures = summarize(own, manifest.percentiles, slos)
    cut_ns = record.ended_mono_ns if record.is_timed else None
    if cut_ns is not None and record.begun_mono_ns is not None:
        figures = with_window_rates(figures, measured, Window(record.begun_mono_ns, cut_ns, is_cut=True), slos)
    of_stage = measured.where(measured.equals("stage", number))
    is_open = record.rate_rps is not None
    evidence = Evidence(
        records=of_stage,
        figures=figures,
        stage=record.name,
        users=manifest.max_in_flight if is_open else record.users,
        gap_ms=_mean_gap_ms(of_stage),
        is_steady=record.start is None,
        cut_ns=cut_ns,
        unsent=record.unsent if is_open else None,
        percentiles=manifest.percentiles,
        slots=_slots(manifest),
        length_means_full=_length_means_full(manifest),
        fixed_lengths=manifest.fixed_lengths,
        all_records=run.records,
        cache=cache_evidence(manifest),
        stage_number=number,
    )
    return StageFigures(
        record.name,
        record.users,
        record.rate_rps,
        figures,
        crossing,
        record.dropped,
        is_whole=record.ended_mono_ns is not None,
        peak=peak_in_flight(of_stage),
        lost=record.lost,
        unsent=record.unsent,
        bad=stage_checks(evidence),
        counters=record.counters,
    )


def _cut_ns(manifest: Manifest, measured: Records) -> int | None:
    """When a time or a person ended the load, with requests in flight; None where everything ended that had begun."""
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
    """The slots of all replicas; None where one does not say how many it has."""
    slots = [each for target in manifest.targets if isinstance(each := target.get("slots"), int)]
    return sum(slots) if slots and len(slots) == len(manifest.targets) else None


def _length_means_full(manifest: Manifest) -> bool:
    """llama-server goes on to the end of its context where no length is asked for."""
    return bool(manifest.targets) and all(target.get("backend") == "llama-server" for target in manifest.targets)
