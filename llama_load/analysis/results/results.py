"""A run and everything computed from its records: the input of every report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llama_load.analysis.checks.verdict import Verdict, judge, judge_stage
from llama_load.analysis.figures.answer_ends import AnswerEnds, answer_ends
from llama_load.analysis.figures.client_server import SidePair, side_by_side
from llama_load.analysis.figures.conversation_figures import (
    conversation_figures,
    peak_begun,
)
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.failures import FailureClass, failure_classes
from llama_load.analysis.figures.rates import imbalance
from llama_load.analysis.figures.stage_figures import (
    StageFigures,
    completed_within,
    repeated_prompts,
    window_at_own_load,
    with_window_rates,
)
from llama_load.analysis.figures.summary import Summary, summarize
from llama_load.analysis.figures.telemetry_figures import TelemetryFigures
from llama_load.analysis.figures.time_sums import TimeParts
from llama_load.analysis.figures.token_counts import as_seen, token_counts
from llama_load.analysis.results.counter_resets import without_resets
from llama_load.analysis.results.ended_servers import until_the_servers_end
from llama_load.analysis.results.gather_evidence import (
    cut_ns,
    evidence_of_run,
    evidence_of_stage,
    probes_of,
)
from llama_load.analysis.results.keys import (
    bounds,
    flat_result,
    spoiled,
    with_checks_of_run,
)
from llama_load.analysis.results.own_counters import without_probes
from llama_load.analysis.results.telemetry_analysis import run_telemetry
from llama_load.analysis.results.time_part_sums import RunTimeParts, time_parts
from llama_load.analysis.topics import Found, TopicInput, found_in
from llama_load.ground import exit_codes
from llama_load.ground.errors import RunError
from llama_load.run_folder import Manifest, Run, StageRecord
from llama_load.run_folder.observed.other_requests import OtherTraffic
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.telemetry_names import LOG
from llama_load.run_folder.observed.window import Window, window_of
from llama_load.run_folder.vocabulary.definitions import SECTION_KEYS
from llama_load.run_folder.vocabulary.slo import Slo, parse_slo
from llama_load.run_folder.vocabulary.thresholds import (
    VERDICT,
    Threshold,
    ThresholdResult,
    evaluate,
    parse_threshold,
)
from llama_load.run_folder.vocabulary.verdict_words import INCOMPLETE

# Stages, servers, models, adapters, workloads: of each the figures take 20 ms or more.
MOST_PARTS = 1000
# The first ones. Later turns of longer conversations count in all other figures.
MOST_TURNS = 300


@dataclass(frozen=True, slots=True)
class Results:
    """The figures of one run."""

    run: Run
    total: Summary
    by_workload: dict[str, Summary]
    by_host: dict[str, Summary]
    by_model: dict[str, Summary]
    by_adapter: dict[str, Summary]  # empty without --adapter
    by_turn: dict[int, Summary]  # without sub-agents
    by_agent_turn: dict[int, Summary]  # of sub-agents
    stages: list[StageFigures]
    repeated_prompts: int  # requests with a prompt of an earlier stage
    verdict: Verdict
    thresholds: list[ThresholdResult]
    others: OtherTraffic
    time_parts: RunTimeParts
    client_server: list[SidePair]
    failures: list[FailureClass]
    answers: AnswerEnds
    telemetry: TelemetryFigures
    telemetry_by_stage: list[TelemetryFigures]  # as many as `stages`
    topics: dict[str, Found[Any]]  # those that the run has something of

    @property
    def request_imbalance(self) -> float | None:
        """How unevenly requests were spread over the replicas (see
        `analysis.figures.rates.imbalance`).

        Only successful ones count.
        """
        return imbalance([part.completed for part in self.by_host.values()])

    @property
    def token_imbalance(self) -> float | None:
        """How unevenly output tokens were spread over the replicas."""
        return imbalance([part.known_output_tokens for part in self.by_host.values()])

    @property
    def exit_code(self) -> int:
        """The first that applies.

        1: the run was aborted by a threshold; 3: it is incomplete or could not be written; 1: a
        threshold failed; Locust's --exit-code-on-error: other requests failed or tasks raised
        exceptions; else 0.
        """
        if self.run.manifest.aborted_by is not None:
            return exit_codes.THRESHOLD_FAILED
        if self.verdict.word == INCOMPLETE or self.run.unwritten is not None:
            return exit_codes.INCOMPLETE
        if any(threshold.failed for threshold in self.thresholds):
            return exit_codes.THRESHOLD_FAILED
        if self.others.failures or self.others.raised:
            return self.run.manifest.exit_code_on_error

        return exit_codes.GOOD


def analyze(run: Run) -> Results:
    """Compute everything from the run's records and manifest.

    Raises RunError: the manifest asks for what there is not.
    """
    _check(run.manifest)
    recorded = len(run.records)
    run = until_the_servers_end(run)
    after_servers = recorded - len(run.records)
    run = without_probes(without_resets(run))
    manifest = run.manifest
    # With --hand-over the counters are about more requests than the measured ones, some of which
    # were cut.
    counters = manifest.counters
    if manifest.hands_over:
        counters = None

    counted = token_counts(run.records, counters)
    run = replace(run, records=as_seen(run.records, counted))
    measured = run.records.measured()
    for column in ("workload", "host", "model", "adapter"):
        parts_of_run = len(measured.values_of(column))
        _refuse_too_many(f"values of {column!r} in the records", parts_of_run)
    slos = tuple(map(parse_slo, manifest.goodput))

    # Each stage has its own end.
    ended_ns = None
    if not manifest.stages:
        ended_ns = cut_ns(manifest, measured)

    window = window_of(measured, ended_ns)
    full_load = _full_load(manifest, measured)

    def figures(of: Callable[[Records], Records] = lambda records: records) -> Summary:
        """The figures of the measured requests that are chosen; all rates are of the run's time."""
        summary = summarize(of(measured), manifest.percentiles, slos, window)
        if full_load is None:
            return summary
        return with_window_rates(summary, of(run.records), full_load, slos)

    total = figures()

    def grouped(column: str, known: Sequence[Any] = ()) -> dict[Any, Summary]:
        """The figures of each value of a column."""
        values = list(dict.fromkeys([*known, *measured.values_of(column)]))
        if column == "turn":
            values = sorted(values)[:MOST_TURNS]
        if len(values) == 1 and bool(measured.equals(column, values[0]).all()):
            return {values[0]: total}

        def of(value: Any) -> Callable[[Records], Records]:
            return lambda records: records.where(records.equals(column, value))

        by_value = {}
        for value in values:
            by_value[value] = figures(of(value))

        return by_value

    def turns(*, of_agents: bool) -> dict[int, Summary]:
        """The figures of each turn of sub-agents, or of all others."""

        def of(turn: int) -> Callable[[Records], Records]:
            return lambda records: records.where(
                records.equals("turn", turn) & (records.has("agent") == of_agents)
            )

        own = measured.where(measured.has("agent") == of_agents)
        by_turn = {}
        for turn in sorted(own.values_of("turn"))[:MOST_TURNS]:
            by_turn[turn] = figures(of(turn))

        return by_turn

    parts = time_parts(run)
    probes = probes_of(run, window)
    evidence = evidence_of_run(
        run, measured, total, parts=parts.total, counted=counted, probes=probes
    )
    evidence = replace(evidence, after_servers=after_servers)
    constant = replace(
        evidence, is_steady=evidence.is_steady and _is_constant(manifest)
    )
    stages = []
    for number, record in enumerate(manifest.stages):
        parts_of_stage = parts.by_stage.get(record.name)
        stages.append(_stage(evidence, slos, number, record, parts_of_stage))

    # Including those that got no request.
    hosts = [str(target["url"]) for target in manifest.targets]
    groups: dict[str, dict[Any, Summary]] = {
        "workload": grouped("workload"),
        "host": grouped("host", hosts),
        "model": grouped("model"),
        "adapter": grouped("adapter"),
    }
    if measured.has("agent").any():
        groups["turn"] = turns(of_agents=False)
    else:
        groups["turn"] = grouped("turn")

    telemetry, telemetry_by_stage = run_telemetry(run, measured, total, window, stages)
    sampled = [gpu.others for gpu in telemetry.gpus if gpu.source != LOG]
    verdict = judge(replace(evidence, gpu_others=sampled), stages)
    stages = with_checks_of_run(stages, verdict.checks)
    agent_turns = turns(of_agents=True)
    topics = found_in(
        TopicInput(
            run=run,
            measured=measured,
            total=total,
            by_turn=groups["turn"],
            by_agent_turn=agent_turns,
            stages=stages,
            constant=constant,
            slos=slos,
            hosts=hosts,
            probes=probes,
            verdict=verdict,
            cut_ns=evidence.cut_ns,
        )
    )

    return Results(
        run,
        total,
        by_workload=groups["workload"],
        by_host=groups["host"],
        by_model=groups["model"],
        by_adapter=groups["adapter"],
        by_turn=groups["turn"],
        by_agent_turn=agent_turns,
        stages=stages,
        repeated_prompts=repeated_prompts(measured, len(stages)),
        verdict=verdict,
        thresholds=_thresholds(manifest, total, groups, stages, verdict),
        others=evidence.others,
        time_parts=parts,
        client_server=side_by_side(evidence.sent, manifest.counters),
        failures=failure_classes(evidence),
        answers=answer_ends(measured, length_means_full=evidence.length_means_full),
        telemetry=telemetry,
        telemetry_by_stage=telemetry_by_stage,
        topics=topics,
    )


def _full_load(manifest: Manifest, measured: Records) -> Window | None:
    """With --hand-over: from the first to the last start of a measured request.

    Others were in flight beside them at both ends, so that the rates are those of all requests in
    this time.
    """
    if not manifest.hands_over or not len(measured):
        return None

    started_ns = measured.instants("started_mono_ns")
    first_ns = int(started_ns.min())
    last_ns = int(started_ns.max())

    return Window(first_ns, last_ns, is_cut=True)


def _is_constant(manifest: Manifest) -> bool:
    """Whether all stages, if any, have the same load: those of a soak."""
    loads = {(stage.users, stage.rate_rps, stage.start) for stage in manifest.stages}
    return not loads or (len(loads) == 1 and manifest.stages[0].start is None)


def _refuse_too_many(what: str, count: int) -> None:
    """RunError: files of others name so many parts that their figures would take hours."""
    if count > MOST_PARTS:
        raise RunError(f"there are {count} {what}, over the limit of {MOST_PARTS}")


def _check(manifest: Manifest) -> None:
    """Whether its texts name figures; else a RunError.

    A run checks its flags, but run.json may have been changed since.
    """
    try:
        for text in manifest.fail_if:
            parse_threshold(text)

        if manifest.aborted_by is not None:
            parse_threshold(manifest.aborted_by.text)
    except ValueError as error:
        raise RunError(
            f"run.json has a threshold that cannot be read: {error}"
        ) from None

    _refuse_too_many("stages in run.json", len(manifest.stages))
    _refuse_too_many("servers in run.json", len(manifest.targets))
    _refuse_too_many("changes of servers in run.json", len(manifest.server_changes))
    for name in manifest.percentile_metrics:
        if name not in SECTION_KEYS:
            known = ", ".join(SECTION_KEYS)
            raise RunError(
                f"run.json names the latency {name!r}; it must be one of {known}"
            )


def _thresholds(
    manifest: Manifest,
    total: Summary,
    groups: Mapping[str, Mapping[Any, Summary]],
    stages: Sequence[StageFigures],
    verdict: Verdict,
) -> list[ThresholdResult]:
    """Each --fail-if, evaluated, and the --abort-if that ended the run.

    Against the figures of the run, a part or a stage, or against the verdict.
    """
    by_group: dict[str, dict[str, dict[str, Any]]] = {}
    for group, parts in groups.items():
        by_name = {}
        for name, part in parts.items():
            is_part = part is not total
            by_name[str(name)] = flat_result(manifest, part, is_part=is_part)

        by_group[group] = by_name

    by_stage = {}
    for stage in stages:
        by_stage[stage.name] = flat_result(manifest, stage.figures, stage)

    by_group["stage"] = by_stage
    values = flat_result(manifest, total) | {VERDICT: verdict.words}

    results = []
    aborted = manifest.aborted_by
    if aborted is not None:
        threshold = parse_threshold(aborted.text)
        results.append(ThresholdResult(threshold, aborted.value, failed=True))

    for text in manifest.fail_if:
        threshold = parse_threshold(text)
        of_stage = _stage_of(threshold, stages)
        figures = total if of_stage is None else of_stage.figures
        doubts = spoiled(manifest, verdict.checks, figures, of_stage)
        known = bounds(manifest, verdict.checks, of_stage)
        results.append(evaluate(threshold, values, by_group, doubts, known))

    return results


def _stage_of(
    threshold: Threshold, stages: Sequence[StageFigures]
) -> StageFigures | None:
    """The stage that a threshold is about; None where it is about no stage."""
    if threshold.group != "stage":
        return None

    for stage in stages:
        if stage.name == threshold.member:
            return stage

    return None


def _stage(
    run: Evidence,
    slos: tuple[Slo, ...],
    number: int,
    record: StageRecord,
    parts: TimeParts | None,
) -> StageFigures:
    """The figures of a stage, and the checks of it that are not ok.

    `run`: the evidence of the whole run.
    """
    own, crossing = completed_within(run.records, number, record.ended_mono_ns)
    figures = summarize(own, run.percentiles, slos)
    unsettled_s = 0.0
    if (
        record.is_timed
        and record.ended_mono_ns is not None
        and record.begun_mono_ns is not None
    ):
        timed = Window(record.begun_mono_ns, record.ended_mono_ns, is_cut=True)
        window = window_at_own_load(run.records, number, timed, record.users)
        unsettled_s = timed.seconds - window.seconds
        figures = with_window_rates(figures, run.records, window, slos)

    of_stage = run.records.where(run.records.equals("stage", number))
    evidence = evidence_of_stage(
        run, of_stage, figures, number=number, record=record, parts=parts
    )
    checks = judge_stage(evidence)

    return StageFigures(
        record.name,
        record.users,
        record.rate_rps,
        figures,
        crossing,
        record.dropped,
        unsettled_s=unsettled_s,
        is_whole=record.ended_mono_ns is not None,
        peak=peak_begun(of_stage),
        lost=record.lost,
        unsent=record.unsent,
        bad=[check for check in checks if not check.ok],
        main=[check for check in checks if check.is_main],
        counters=record.counters,
        conversations=conversation_figures(of_stage),
    )
