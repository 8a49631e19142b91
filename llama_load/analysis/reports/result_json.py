"""summary.json.

The keys of `vllm bench serve`'s result file at the top level, llama-load's own under "llama_load".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from llama_load.analysis.checks.verdict import Verdict
from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.client_server import SidePair
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.figures.summary import Summary
from llama_load.analysis.reports.check_lines import statements_json
from llama_load.analysis.reports.sentences import sentences
from llama_load.analysis.reports.telemetry_section import telemetry_json
from llama_load.analysis.results.keys import by_own, by_vllm, flat_result, uncertain
from llama_load.analysis.results.results import Results
from llama_load.analysis.statistics.statistics import Distribution
from llama_load.analysis.topics import topics
from llama_load.ground.units import plain_number
from llama_load.run_folder import result_schemas
from llama_load.run_folder.arithmetic.percentiles import percentile_word
from llama_load.run_folder.observed.other_requests import OtherRequests
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.result_schemas import VERSIONS
from llama_load.run_folder.vocabulary.definitions import DETAILS, of_group
from llama_load.run_folder.vocabulary.thresholds import ThresholdResult

# Requests whose times summary.json lists: half a megabyte. requests.parquet has those of all.
MOST_LISTED = 20_000


def result_json(results: Results) -> dict[str, Any]:
    """The whole of summary.json as plain values."""
    manifest = results.run.manifest
    of_vllm = flat_result(manifest, results.total) | by_vllm(results.total)
    of_vllm |= _own_times(results.run.records.measured())
    version = {result_schemas.KEY: VERSIONS[result_schemas.SUMMARY]}
    every = version | of_vllm | {"llama_load": _ours(results)}
    summary: dict[str, Any] = msgspec.to_builtins(every, enc_hook=_plain)
    return summary


def _own_times(measured: Records) -> dict[str, list[float | None]]:
    """vLLM's own times of each request, s, as `vllm bench serve` has them; no keys where the server
    reports none, or of too many requests."""
    if len(measured) > MOST_LISTED or not measured.has("server_queue_ms").any():
        return {}
    keys = {"server_queue_times": "server_queue_ms", "server_ttfts": "server_prompt_ms"}
    times = {}
    for key, column in keys.items():
        values_s = measured.numbers(column) / 1e3
        times[key] = [None if np.isnan(value) else value for value in values_s.tolist()]
    return times


def _plain(value: Any) -> Any:
    """What msgspec does not take: numpy's numbers as Python's."""
    if isinstance(value, np.generic):
        return plain_number(value)
    raise NotImplementedError(f"no JSON for {type(value)}")


def _ours(results: Results) -> dict[str, Any]:
    """What vLLM's result file has no key for.

    Figures may be dataclasses, whose fields become keys.
    """
    manifest = results.run.manifest
    others = results.others
    return {
        "version": manifest.version,
        "end": manifest.end,
        "recovered": results.run.recovered,
        "verdict": _verdict(results.verdict),
        "thresholds": [_threshold(result) for result in results.thresholds],
        "uncertain": uncertain(manifest, results.total, checks=results.verdict.checks),
        **_figures(results.total),
        **by_own(results.total),
        "failures": results.failures,
        "sentences": sentences(results, str),
        "answers": results.answers,
        **_topics(results),
        "hang_up_checks": manifest.hang_ups,
        "ended_below": manifest.ended_below,
        "until": manifest.until,
        "other_requests": [_other_request(row) for row in others.requests],
        "task_exceptions": others.exceptions,
        "telemetry": telemetry_json(results),
        "prompts": manifest.prompts,
        "servers": manifest.servers,
        "by_workload": _parts(results, results.by_workload),
        "by_model": _parts(results, results.by_model),
        "by_adapter": _parts(results, results.by_adapter),
        "by_stage": {stage.name: _stage(results, stage) for stage in results.stages},
        "same_prompts": manifest.same_prompts,
        "repeated_prompts": results.repeated_prompts,
        "by_turn": _parts(results, results.by_turn),
        "by_agent_turn": _parts(results, results.by_agent_turn),
        "client_server": [_side_pair(pair) for pair in results.client_server],
        "time_parts": {
            "total": results.time_parts.total,
            "by_workload": results.time_parts.by_workload,
            "by_stage": results.time_parts.by_stage,
        },
        "request_imbalance": results.request_imbalance,
        "token_imbalance": results.token_imbalance,
        "by_host": _parts(results, results.by_host),
    }


def _other_request(row: OtherRequests) -> dict[str, Any]:
    return {
        "method": row.method,
        "name": row.name,
        "requests": row.requests,
        "failures": row.failures,
        "mean_ms": row.mean_ms,
        "max_ms": row.longest_ms,
        "error": row.error,
    }


def _side_pair(pair: SidePair) -> dict[str, Any]:
    return asdict(pair) | {"difference": pair.difference}


def _topics(results: Results) -> dict[str, Any]:
    """Every topic by its key."""
    plain: dict[str, Any] = {}
    for topic in topics():
        found = results.topics.get(topic.key)
        plain[topic.key] = topic.empty if found is None else found.plain()
    return plain


def _verdict(verdict: Verdict) -> dict[str, Any]:
    """The verdict, its checks and its statements."""
    checks = [_check(check) for check in verdict.checks]
    return asdict(verdict) | {
        "checks": checks,
        "statements": statements_json(verdict.checks),
    }


def _check(check: Check) -> dict[str, Any]:
    """A check with what follows from its fields: mark, statement, remedy.

    And whether it is a main check of its statement.
    """
    fields = asdict(check)
    fields["mark"] = check.mark
    fields["statement"] = check.statement
    fields["is_main"] = check.is_main
    fields["remedy"] = check.remedy
    del fields["advice"]

    return fields


def _figures(figures: Summary) -> dict[str, Any]:
    plain = {
        "cancelled": figures.cancelled,
        "aborted": figures.aborted,
        "wasted_tokens": figures.wasted_tokens,
        "success_ratio": figures.success_ratio,
        "good_requests": figures.good_requests,
        "peak_output_tok_per_s": figures.peak_output_tok_per_s,
        "peak_in_flight": figures.peak_in_flight,
        "known_input_tokens": figures.known_input_tokens,
        "known_output_tokens": figures.known_output_tokens,
        "tokens_per_event": {
            "mean": figures.tokens_per_event.mean,
            **_percentiles(figures.tokens_per_event),
        },
        "failures": figures.failures,
        "output_chars_per_s": figures.output_chars_per_s,
        "total_inputs": figures.total_inputs,
        "total_images": figures.total_images,
        "tokens_per_image": figures.tokens_per_image,
        "total_cached_tokens": figures.total_cached_tokens,
        "server_prompt_tok_per_s": figures.server_prompt_tok_per_s,
        "server_predict_tok_per_s": figures.server_predict_tok_per_s,
        "retried_requests": figures.retried_requests,
        "retries": figures.retries,
        "reused_connections": figures.reused_connections,
        "reopened_connections": figures.reopened_connections,
        "token_sources": figures.token_sources,
        "prompt_token_sources": figures.prompt_token_sources,
        "clock_sources": figures.clock_sources,
    }

    for latency in of_group(*DETAILS):
        sample = figures.distributions[latency.key]
        if sample.count:
            plain[latency.key] = {
                "mean": sample.mean,
                "median": sample.median,
                "std": sample.std,
                **_percentiles(sample),
            }

    return plain


def _threshold(result: ThresholdResult) -> dict[str, Any]:
    return {
        "text": result.text,
        "requirement": result.threshold.requirement,
        "line": result.line,
        "value": result.value,
        "failed": result.failed,
        "why": result.why,
    }


def _stage(results: Results, stage: StageFigures) -> dict[str, Any]:
    about: dict[str, Any] = {
        "users": stage.users,
        "rate_rps": stage.rate_rps,
        "crossing": stage.crossing,
        "is_whole": stage.is_whole,
        "conversations": stage.conversations,
    }
    figures = _part(results, stage.figures, stage)
    figures["tok_per_s_per_user"] = stage.figures.tok_per_s_per_user
    figures["vllm_tpot"] = by_vllm(stage.figures, "tpot")
    return about | figures


def _percentiles(sample: Distribution) -> dict[str, float | None]:
    return {percentile_word(p): sample.percentile(p) for p in sample.percentiles}


def _parts(results: Results, parts: Mapping[Any, Summary]) -> dict[str, Any]:
    plain = {}
    for name, part in parts.items():
        is_part = part is not results.total
        plain[str(name)] = _part(results, part, is_part=is_part)
    return plain


def _part(
    results: Results,
    figures: Summary,
    stage: StageFigures | None = None,
    *,
    is_part: bool = False,
) -> dict[str, Any]:
    """The figures of a stage, workload, model … as of the whole run, from the duration on."""
    manifest = results.run.manifest
    flat = flat_result(manifest, figures, stage, is_part=is_part)
    keys = list(flat)
    plain = {key: flat[key] for key in keys[keys.index("duration") :]}

    checks = results.verdict.checks
    plain["uncertain"] = uncertain(
        manifest, figures, stage, is_part=is_part, checks=checks
    )

    return plain | _figures(figures)
