"""A run and everything worked out from its records: what every report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_load.metrics.rates import peak_in_flight
from llama_load.metrics.replicas import imbalance
from llama_load.metrics.slo import parse_slo
from llama_load.metrics.stages import StageFigures, in_its_time, inside, repeated_prompts
from llama_load.metrics.summary import Totals, shown_latencies, totals
from llama_load.metrics.thresholds import ThresholdResult, evaluate, parse_threshold
from llama_load.metrics.verdict import INCOMPLETE, Verdict, judge
from llama_load.runs import Run, StageTold


@dataclass(frozen=True, slots=True)
class Results:
    """The figures of one run."""

    run: Run
    total: Totals
    by_workload: dict[str, Totals]
    by_host: dict[str, Totals]
    by_model: dict[str, Totals]
    by_turn: dict[int, Totals]
    stages: list[StageFigures]
    repeated_prompts: int  # in a stage after that in which they were sent first
    verdict: Verdict
    thresholds: list[ThresholdResult]

    @property
    def request_imbalance(self) -> float | None:
        """How unevenly successful requests were spread over the replicas (see `metrics.replicas.imbalance`)."""
        return imbalance([part.completed for part in self.by_host.values()])

    @property
    def token_imbalance(self) -> float | None:
        """The same for output tokens, which is the work that was done."""
        return imbalance([part.total_output_tokens for part in self.by_host.values()])

    @property
    def exit_code(self) -> int:
        """0 good, 1 a threshold came true, 3 the run is incomplete."""
        if self.verdict.word == INCOMPLETE:
            return 3
        return 1 if any(threshold.failed for threshold in self.thresholds) else 0


def work_out(run: Run) -> Results:
    """Compute everything from the run's records and manifest."""
    from llama_load.reports.result_json import flat_result

    manifest = run.manifest
    measured = run.records.measured()
    slos = tuple(parse_slo(text) for text in manifest.goodput)
    total = totals(measured, manifest.percentiles, slos)

    def grouped(column: str, known: Sequence[Any] = ()) -> dict[Any, Totals]:
        values = list(dict.fromkeys([*known, *measured.values_of(column)]))
        if len(values) == 1 and bool(measured.equals(column, values[0]).all()):
            return {values[0]: total}
        return {value: totals(measured.where(measured.equals(column, value)), manifest.percentiles, slos) for value in values}

    def in_stage(number: int, told: StageTold) -> StageFigures:
        own, crossing = inside(measured, number, told.ended_mono_ns)
        figures = totals(own, manifest.percentiles, slos)
        if told.is_timed and told.begun_mono_ns is not None and told.ended_mono_ns is not None:
            figures = in_its_time(figures, measured, told.begun_mono_ns, told.ended_mono_ns, slos)
        is_whole = told.ended_mono_ns is not None
        peak = peak_in_flight(measured.where(measured.equals("stage", number)))
        load = told.name, told.users, told.rate_rps
        return StageFigures(*load, figures, crossing, told.dropped, is_whole, peak, told.lost, told.counters)

    stages = [in_stage(number, told) for number, told in enumerate(manifest.stages)]
    again = repeated_prompts(measured, len(stages))
    verdict = judge(
        measured,
        total,
        None if manifest.end == "time" or manifest.num_prompts is None else manifest.num_prompts - manifest.cut,
        manifest.workers,
        lost=manifest.lost,
        dropped=manifest.dropped,
        unsent=max(0, manifest.due - manifest.dropped - len(measured)) if manifest.end == "time" and manifest.due else None,
        repeated_prompts=0 if manifest.same_prompts else again,
        missed_levels=[stage.name for stage in stages if not stage.is_reached],
        crossing={stage.name: stage.crossing_ratio for stage in stages},
        missing_stages=[stage.name for stage in stages if not stage.is_whole],
        interrupted=manifest.end in ("interrupted", "running") or (manifest.end == "stopped" and manifest.run_time_s is not None),
        cache_meant=manifest.cache_meant or bool(manifest.shared_tokens) or bool((measured.numbers("turn") >= 2).any()),
        head_tokens=min((target.get("head_tokens") or 0 for target in manifest.targets), default=0),
        length_means_full=all(target.get("backend") == "llama-server" for target in manifest.targets) and bool(manifest.targets),
        shown=() if stages else shown_latencies(manifest.percentile_metrics, total),
    )
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
    return Results(run, total, workloads, by_host, models, turns, stages, again, verdict, thresholds)
