"""The figures of a set of requests under the keys of `vllm bench serve`'s result file: for summary.json and for thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_load.metrics.check import Check
from llama_load.metrics.definitions import EVERY, FIGURES, RATES, SCHEDULED, of_group
from llama_load.metrics.spoiled import spoiled_keys
from llama_load.metrics.stage_figures import StageFigures
from llama_load.metrics.statistics import Distribution, least_count
from llama_load.metrics.summary import Summary
from llama_load.observed.speculation import Speculation
from llama_load.run_folder import Manifest
from llama_load.targets.apis import APIS
from llama_load.units import quantity


def percentile_word(p: float) -> str:
    """The name of a percentile: 99.0 -> "p99", 99.9 -> "p99.9"."""
    return f"p{p:g}"


def threshold_keys(percentiles: Sequence[float]) -> list[str]:
    """The keys of `flat_result` that hold numbers when these percentiles are reported, the most usual ones first."""
    latencies = [latency.key for latency in of_group(EVERY, SCHEDULED)]
    words = [*map(percentile_word, percentiles), "median", "mean", "std"]
    keys = [f"{word}_{key}_ms" for key in latencies for word in words] + [figure.key for figure in FIGURES]
    return [*keys, "dropped", *(f"count_{key}" for key in latencies)]


def _statistics(key: str, sample: Distribution) -> dict[str, Any]:
    """Statistics of a latency under vLLM's keys: mean_tpot_ms, p99_tpot_ms, count_tpot."""
    named: dict[str, Any] = {f"mean_{key}_ms": sample.mean, f"median_{key}_ms": sample.median, f"std_{key}_ms": sample.std}
    for p, value in sample.percentiles.items():
        named[f"{percentile_word(p)}_{key}_ms"] = value
    named[f"count_{key}"] = sample.count
    return named


def flat_result(
    manifest: Manifest, figures: Summary, stage: StageFigures | None = None, *, is_part: bool = False
) -> dict[str, Any]:
    """vLLM's keys for these figures, plus `failure_ratio`, `dropped`, the count of each latency, and in an open loop the latencies
    from the scheduled instants. Every key but those of TPOT (see `vllm_tpot`) has the number that vLLM's formula gives, None where
    nothing was measured; `uncertain` names those that do not mean what they seem to.

    `is_part`: the figures are of one workload, host, model or turn; dropped arrivals were never sent and belong to none."""
    most, rate = configured_load(manifest, stage)
    flat: dict[str, Any] = {
        "date": manifest.date,
        "endpoint_type": _endpoint_type(manifest, figures),
        "backend": manifest.backend,
        "label": manifest.label,
        "model_id": manifest.model,
        "tokenizer_id": manifest.tokenizer,
        "num_prompts": manifest.num_prompts,
        "request_rate": "inf" if rate is None and manifest.arrival is None else rate,
        "burstiness": manifest.burstiness,
        "max_concurrency": most,
        **{figure.key: figure.of(figures) for figure in FIGURES},
    }
    scheduled = [latency for latency in of_group(SCHEDULED) if figures.distributions[latency.key].count]
    for key in (latency.key for latency in (*of_group(EVERY), *scheduled)):
        flat |= _statistics(key, figures.distributions[key])
    dropped = manifest.dropped if stage is None else stage.dropped
    flat["dropped"] = None if is_part and dropped else dropped
    if (drafts := speculation_of(manifest, figures, stage, is_part=is_part)) is not None:
        flat |= {
            "spec_decode_acceptance_rate": None if drafts.acceptance_rate is None else drafts.acceptance_rate * 100,
            "spec_decode_acceptance_length": drafts.acceptance_length,
            "spec_decode_num_drafts": drafts.drafts,
            "spec_decode_draft_tokens": drafts.draft_tokens,
            "spec_decode_accepted_tokens": drafts.accepted_tokens,
            "spec_decode_per_position_acceptance_rates": drafts.per_position_rates,
        }
    return flat


def vllm_tpot(figures: Summary) -> dict[str, Any]:
    """TPOT by vLLM's formula, under its keys: (E2EL - TTFT) / (output tokens - 1). The figures' own TPOT leaves out tokens that did
    not come in that time (see `metrics.token_span`)."""
    return _statistics("tpot", figures.vllm_tpot)


def own_tpot(figures: Summary) -> dict[str, Any]:
    """TPOT by the tokens between the first and the last event, under the same keys."""
    return _statistics("tpot", figures.distributions["tpot"])


def uncertain(
    manifest: Manifest,
    figures: Summary,
    stage: StageFigures | None = None,
    *,
    is_part: bool = False,
    checks: Iterable[Check] = (),
) -> dict[str, str]:
    """Keys of `flat_result` whose number does not mean what it seems to, and why: figures that failed ones of these `checks` spoil;
    rates over the whole of a run in stages; percentiles of too few values."""
    reasons = spoiled(manifest, checks, stage)
    if manifest.stages and stage is None:
        why = "the pauses and warm-ups between the stages are in it" if not is_part else "the time of all stages is in it"
        reasons |= dict.fromkeys(RATES, why)
    for latency in of_group(EVERY, SCHEDULED):
        sample = figures.distributions[latency.key]
        for p in sample.lacking:
            reasons[f"{percentile_word(p)}_{latency.key}_ms"] = f"{quantity(sample.count, 'value')}, {least_count(p)} needed"
    return reasons


def spoiled(manifest: Manifest, checks: Iterable[Check], stage: StageFigures | None = None) -> dict[str, str]:
    """The keys whose figures failed checks spoil, and why."""
    reasons: dict[str, str] = {}
    for check in failed_checks(checks, stage):
        for key in spoiled_keys(check.spoils, manifest.percentiles):
            reasons.setdefault(key, check.text)
    return reasons


def failed_checks(checks: Iterable[Check], stage: StageFigures | None) -> list[Check]:
    """Those that spoil figures: of the run all that failed; of a stage its own and those of the whole run."""
    failed = [check for check in checks if not check.ok]
    return failed if stage is None else [check for check in failed if check.stage in (None, stage.name)]


def certain(flat: Mapping[str, Any], doubts: Mapping[str, str]) -> dict[str, Any]:
    """The figures without those that are uncertain, which are None."""
    return {**flat, **dict.fromkeys(doubts)}


def configured_load(manifest: Manifest, stage: StageFigures | None = None) -> tuple[int | None, float | None]:
    """How many requests could be in flight (None: no limit) and the request rate (None: a closed loop, or a trace)."""
    if stage is not None:
        return (stage.users, None) if stage.rate_rps is None else (manifest.max_in_flight, stage.rate_rps)
    return manifest.users if manifest.arrival is None else manifest.max_in_flight, manifest.request_rate


def _endpoint_type(manifest: Manifest, figures: Summary) -> str:
    """vLLM's name of the endpoint of most requests."""
    most = next(iter(figures.endpoints), manifest.endpoint)
    return APIS[most].bench_name if most in APIS else "openai"


def speculation_of(
    manifest: Manifest, figures: Summary, stage: StageFigures | None = None, *, is_part: bool = False
) -> Speculation | None:
    """Speculative decoding: the servers' counters over this stage or the whole run, else what each answer reports. The
    counters cannot be split by part (workload, host, model, turn)."""
    counters = manifest.counters if stage is None else stage.counters
    counted = None if counters is None or is_part else counters.speculation
    return counted if counted is not None and counted.draft_tokens else figures.speculation
