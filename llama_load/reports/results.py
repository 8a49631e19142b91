"""A run and everything worked out from its records: what every report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_load.metrics.replicas import imbalance
from llama_load.metrics.slo import parse_slo
from llama_load.metrics.summary import Totals, shown_latencies, totals
from llama_load.metrics.thresholds import ThresholdResult, evaluate, parse_threshold
from llama_load.metrics.verdict import INCOMPLETE, Verdict, judge
from llama_load.runs import Run


@dataclass(frozen=True, slots=True)
class Results:
    """The figures of one run."""

    run: Run
    total: Totals
    by_workload: dict[str, Totals]
    by_host: dict[str, Totals]
    by_model: dict[str, Totals]
    by_turn: dict[int, Totals]
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

    verdict = judge(
        measured,
        total,
        None if manifest.end == "time" else manifest.num_prompts,
        manifest.workers,
        lost=manifest.lost,
        interrupted=manifest.end in ("interrupted", "running"),
        cache_meant=manifest.cache_meant,
        head_tokens=min((target.get("head_tokens") or 0 for target in manifest.targets), default=0),
        length_means_full=all(target.get("backend") == "llama-server" for target in manifest.targets) and bool(manifest.targets),
        shown=shown_latencies(manifest.percentile_metrics, total),
    )
    hosts = [str(target["url"]) for target in manifest.targets]  # also one that never got a request
    values: dict[str, Any] = flat_result(manifest, total)
    thresholds = [evaluate(parse_threshold(text), values) for text in manifest.fail_if]
    turns = dict(sorted(grouped("turn").items()))
    return Results(run, total, grouped("workload"), grouped("host", hosts), grouped("model"), turns, verdict, thresholds)
