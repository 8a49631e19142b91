"""The figures of a set of requests under the keys of `vllm bench serve`'s result file.

For summary.json and for thresholds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.check_limits import CHANGED
from llama_load.analysis.figures.goodput_doubt import goodput_doubt
from llama_load.analysis.figures.spoiled import OF_SPEED, failed_in, spoiled_keys
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.figures.summary import Summary
from llama_load.analysis.statistics.statistics import Distribution
from llama_load.ground.units import quantity
from llama_load.run_folder import Manifest
from llama_load.run_folder.arithmetic.percentiles import least_count, percentile_word
from llama_load.run_folder.observed.speculation import Speculation
from llama_load.run_folder.vocabulary.bound import Bound
from llama_load.run_folder.vocabulary.definitions import (
    EVERY,
    FIGURES,
    RATES,
    SCHEDULED,
    of_group,
)
from llama_load.servers.apis import APIS

GOODPUT = "request_goodput"


def _statistics(key: str, sample: Distribution) -> dict[str, Any]:
    """Statistics of a latency under vLLM's keys: mean_tpot_ms, p99_tpot_ms, count_tpot."""
    named: dict[str, Any] = {
        f"mean_{key}_ms": sample.mean,
        f"median_{key}_ms": sample.median,
        f"std_{key}_ms": sample.std,
    }
    for p, value in sample.percentiles.items():
        named[f"{percentile_word(p)}_{key}_ms"] = value

    named[f"count_{key}"] = sample.count

    return named


def flat_result(
    manifest: Manifest,
    figures: Summary,
    stage: StageFigures | None = None,
    *,
    is_part: bool = False,
) -> dict[str, Any]:
    """vLLM's keys for these figures, and some more.

    Also `failure_ratio`, `dropped`, the count of each latency, and in an open loop the latencies
    from the scheduled instants. Every key but those of TTFT, TPOT and E2EL (see `by_vllm`) has the
    number that vLLM's formula gives, None where nothing was measured; `uncertain` names those that
    do not mean what they seem to.

    `is_part`: the figures are of one workload, host, model or turn; dropped arrivals were never
    sent and belong to none.
    """
    most, rate = configured_load(manifest, stage)
    is_unlimited = rate is None and manifest.arrival is None
    flat: dict[str, Any] = {
        "date": manifest.date,
        "endpoint_type": _endpoint_type(manifest, figures),
        "backend": manifest.backend,
        "label": manifest.label,
        "model_id": manifest.model,
        "tokenizer_id": manifest.tokenizer,
        "num_prompts": manifest.num_prompts,
        "request_rate": "inf" if is_unlimited else rate,
        "burstiness": manifest.burstiness,
        "max_concurrency": most,
    }
    for figure in FIGURES:
        flat[figure.key] = figure.of(figures)

    for latency in of_group(EVERY):
        flat |= _statistics(latency.key, figures.distributions[latency.key])

    for latency in of_group(SCHEDULED):
        sample = figures.distributions[latency.key]
        if sample.count:
            flat |= _statistics(latency.key, sample)

    dropped: int | None = manifest.dropped
    if stage is not None:
        dropped = stage.dropped
    if is_part and dropped:
        dropped = None

    flat["dropped"] = dropped
    drafts = speculation_of(manifest, figures, stage, is_part=is_part)
    if drafts is not None:
        flat |= _speculation(drafts)

    return flat


def _speculation(drafts: Speculation) -> dict[str, Any]:
    """Speculative decoding under vLLM's keys."""
    acceptance_percent = drafts.acceptance_rate
    if acceptance_percent is not None:
        acceptance_percent *= 100

    return {
        "spec_decode_acceptance_rate": acceptance_percent,
        "spec_decode_acceptance_length": drafts.acceptance_length,
        "spec_decode_num_drafts": drafts.drafts,
        "spec_decode_draft_tokens": drafts.draft_tokens,
        "spec_decode_accepted_tokens": drafts.accepted_tokens,
        "spec_decode_per_position_acceptance_rates": drafts.per_position_rates,
    }


def by_vllm(figures: Summary, *latencies: str) -> dict[str, Any]:
    """TTFT, TPOT and E2EL, or these of them, by vLLM's formulas, under its keys.

    Its TTFT and E2EL begin when the client begins to send, with its own delay; its TPOT is (E2EL -
    TTFT) / (output tokens - 1). The figures' own TTFT and E2EL are without that delay, and their
    TPOT leaves out tokens that did not come in that time (see `run_folder.arithmetic.token_span`).
    """
    keys: dict[str, Any] = {}
    for latency in latencies or figures.by_vllm:
        keys |= _statistics(latency, figures.by_vllm[latency])
    return keys


def by_own(figures: Summary) -> dict[str, Any]:
    """TTFT, TPOT and E2EL by our formulas, under the same keys."""
    keys: dict[str, Any] = {}
    for latency in figures.by_vllm:
        keys |= _statistics(latency, figures.distributions[latency])
    return keys


def uncertain(
    manifest: Manifest,
    figures: Summary,
    stage: StageFigures | None = None,
    *,
    is_part: bool = False,
    checks: Iterable[Check] = (),
) -> dict[str, str]:
    """Keys of `flat_result` whose number does not mean what it seems to, and why.

    Figures that failed ones of these `checks` spoil; rates over the whole of a run in stages;
    percentiles of too few values.
    """
    reasons = spoiled(manifest, checks, figures, stage)
    if manifest.stages and stage is None:
        why = "the pauses and warm-ups between the stages are in it"
        if is_part:
            why = "the time of all stages is in it"

        reasons |= dict.fromkeys(RATES, why)

    for latency in of_group(EVERY, SCHEDULED):
        sample = figures.distributions[latency.key]
        values = quantity(sample.count, "value")
        for p in sample.lacking:
            key = f"{percentile_word(p)}_{latency.key}_ms"
            reasons[key] = f"{values}, {least_count(p)} needed"

    return reasons


def spoiled(
    manifest: Manifest,
    checks: Iterable[Check],
    figures: Summary,
    stage: StageFigures | None = None,
) -> dict[str, str]:
    """The keys whose figures failed checks spoil, and why. `figures`: those of the run, or of the
    stage."""
    reasons: dict[str, str] = {}
    failed = failed_checks(checks, stage)
    for check in failed:
        for key in spoiled_keys(check.spoils, manifest.percentiles):
            reasons.setdefault(key, check.text)

    objectives = {term.partition(":")[0] for term in manifest.goodput}
    doubt = goodput_doubt(failed, objectives, figures)
    if doubt is not None:
        reasons.setdefault(GOODPUT, doubt.text)
    return reasons


def bounds(
    manifest: Manifest, checks: Iterable[Check], stage: StageFigures | None = None
) -> dict[str, Bound]:
    """By how much the spoiled figures are off at most, by their keys; only those of which every
    check that spoils them knows it."""
    found: dict[str, Bound] = {}
    unbounded: set[str] = set()
    for check in failed_checks(checks, stage):
        keys = spoiled_keys(check.spoils, manifest.percentiles)
        for key in keys:
            if check.bound is None:
                unbounded.add(key)
            else:
                found[key] = found.get(key, Bound()) + check.bound
    return {key: bound for key, bound in found.items() if key not in unbounded}


def failed_checks(checks: Iterable[Check], stage: StageFigures | None) -> list[Check]:
    """Those that spoil figures.

    Of the run all that failed; of a stage those about it (see `failed_in`). So may be a change of
    the server in another stage, where this one cannot show that it had ended.
    """
    if stage is None:
        return [check for check in checks if not check.ok]
    checks = list(checks)
    failed = failed_in(checks, stage.name)
    for check in checks:
        is_of_another = check.stage not in (None, stage.name)
        is_change = check.name == CHANGED and not check.ok
        if is_of_another and is_change and not _was_the_same(stage):
            failed.append(_may_have_lasted(check))

    return failed


def with_checks_of_run(
    stages: Iterable[StageFigures], checks: Sequence[Check]
) -> list[StageFigures]:
    """The stages with all failed checks about them: what spoils the whole run spoils each of them,
    wherever it is shown."""
    judged = []
    for stage in stages:
        failed = failed_checks(checks, stage)
        judged.append(replace(stage, bad=failed))
    return judged


def _was_the_same(stage: StageFigures) -> bool:
    """Whether a stage shows that the server was the same in all of it."""
    return all(check.passed for check in stage.main if check.name == CHANGED)


def _may_have_lasted(check: Check) -> Check:
    """What a change of the server in one stage means for another."""
    text = f"in stage {check.stage} {check.text}; whether here as well, too few requests show"
    return replace(check, text=text, spoils=OF_SPEED)


def certain(flat: Mapping[str, Any], doubts: Mapping[str, str]) -> dict[str, Any]:
    """The figures without those that are uncertain, which are None."""
    return {**flat, **dict.fromkeys(doubts)}


def configured_load(
    manifest: Manifest, stage: StageFigures | None = None
) -> tuple[int | None, float | None]:
    """How many requests could be in flight, and the request rate.

    None: no limit; a closed loop, or a trace.
    """
    if stage is not None and stage.rate_rps is None:
        return stage.users, None
    if stage is not None:
        return manifest.max_in_flight, stage.rate_rps
    if manifest.arrival is None:
        # Fewer requests than users are never in flight together.
        most = manifest.num_prompts or manifest.users
        return min(manifest.users, most), manifest.request_rate

    return manifest.max_in_flight, manifest.request_rate


def _endpoint_type(manifest: Manifest, figures: Summary) -> str:
    """vLLM's name of the endpoint of most requests."""
    most = next(iter(figures.endpoints), manifest.endpoint)
    if most not in APIS:
        return "openai"
    return APIS[most].bench_name


def speculation_of(
    manifest: Manifest,
    figures: Summary,
    stage: StageFigures | None = None,
    *,
    is_part: bool = False,
) -> Speculation | None:
    """Speculative decoding: the servers' counters, else what each answer reports.

    Over this stage or the whole run. The counters cannot be split by part (workload, host, model,
    turn).
    """
    counters = manifest.counters
    if stage is not None:
        counters = stage.counters

    if counters is None or is_part:
        return figures.speculation

    counted = counters.speculation
    if counted is None or not counted.draft_tokens:
        return figures.speculation

    return counted
