"""The summary block.

In the layout of `vllm bench serve` 0.33, followed by llama-load's sections in the same style.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.prompt_cache import cache_help
from llama_load.analysis.figures.spoiled import SPOILED_MARK, named, spoiled_keys
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.figures.summary import Summary
from llama_load.analysis.reports.check_lines import check_lines, where
from llama_load.analysis.reports.failure_lines import end_lines
from llama_load.analysis.reports.layout import (
    TEXT_WIDTH,
    WIDTH,
    headline,
    number,
    section,
    table_section,
    whole,
)
from llama_load.analysis.reports.other_request_lines import traffic_lines
from llama_load.analysis.reports.request_table import request_table
from llama_load.analysis.reports.server_section import server_lines
from llama_load.analysis.reports.stage_table import (
    describe_prompts,
    notes,
    speed_lines,
    stage_lines,
    stage_table,
)
from llama_load.analysis.reports.telemetry_section import telemetry_lines
from llama_load.analysis.reports.time_table import side_lines, time_lines
from llama_load.analysis.reports.vllm_block import (
    TOO_FEW,
    distribution_lines,
    vllm_block,
)
from llama_load.analysis.results.keys import spoiled
from llama_load.analysis.results.results import Results
from llama_load.ground.languages import IN_ENGLISH
from llama_load.ground.units import quantity
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import Manifest
from llama_load.run_folder.arithmetic.percentiles import least_count, percentile_word
from llama_load.run_folder.vocabulary.definitions import (
    ANSWER,
    CONNECTION,
    EVERY,
    SCHEDULED,
    SECTION_KEYS,
    SERVER,
    of_group,
)
from llama_load.tables import LEFT, Column, Row, Table, figure, text_lines
from llama_load.tables.numbers import NONE, count
from llama_load.tables.text_width import wrapped

MOST_ERRORS = 10


def block(results: Results) -> str:
    """The whole text: failures, vLLM's block, llama-load's sections. Ends with a newline."""
    manifest = results.run.manifest
    doubts = spoiled(manifest, results.verdict.checks, results.total)
    lines = error_lines(results.total)
    for stage in results.stages:
        lines += _stage_block(results, stage)

    if not results.stages:
        lines += vllm_block(manifest, results.total, spoiled=doubts)

    lines += own_sections(results)

    return "".join(f"{printable(line, None)}\n" for line in lines)


def error_lines(figures: Summary) -> list[str]:
    """vLLM's lines above the block when requests failed.

    Here each failure class is there once, with its count.
    """
    if not figures.failures:
        return []
    lines = ["Failed requests during benchmark run detected (capping to 10):"]
    for index, failure in enumerate(figures.failures[:MOST_ERRORS]):
        lines.append(
            f"Error {index}: {failure.count} x {failure.kind}: {failure.example}"
        )
    return lines


def _stage_block(results: Results, stage: StageFigures) -> list[str]:
    title = headline(f" Stage {stage.name} ", "=")
    if not stage.figures.completed + stage.figures.failed:
        return [title, "nothing was measured in this stage", "=" * WIDTH]

    manifest = results.run.manifest
    doubts = spoiled(manifest, results.verdict.checks, stage.figures, stage)

    return [title, *vllm_block(manifest, stage.figures, stage, doubts)]


def _notes(results: Results) -> Iterable[str]:
    """Notes that are needed to read the block correctly."""
    figures = results.total
    manifest = results.run.manifest
    checks = results.verdict.checks
    ended = figures.completed + figures.failed
    lacking = _lacking_percentiles(results)
    if lacking:
        needs = []
        for percentile in lacking:
            word = percentile_word(percentile)
            needs.append(f"{word} needs {least_count(percentile)}")
        yield (
            f"{TOO_FEW} {', '.join(needs)} values; with fewer it is close to their maximum"
        )

    for check in checks:
        names = named(check.spoils, figures.distributions)
        if not check.ok and names and spoiled_keys(check.spoils, manifest.percentiles):
            yield f"{SPOILED_MARK} {', '.join(names)} spoiled: {where(check)}{check.text}"

    if helped := cache_help(checks):
        yield helped
    if (figures.failure_ratio or 0) > LIMITS[
        "failure_ratio"
    ].limit and figures.completed:
        yield f"latencies are from the {figures.completed} of {ended} requests that did not fail"
    if any(check.name == "tokens_per_event" and not check.ok for check in checks):
        tokens = f"{figures.tokens_per_event.mean or 0:.2f} tokens"
        yield f"ITL is the time between events, which hold {tokens} each"

    if figures.aborted:
        requests = quantity(figures.aborted, "request")
        yield (
            f"{requests} given up by their users (--abort-rate): latencies and throughput are "
            f"those of the {figures.completed} answered ones; "
            f"{figures.wasted_tokens} tokens were wasted"
        )
    elif manifest.hang_ups:
        yield "no user hung up (--abort-rate): every request ended before its --abort-after"

    if figures.cancelled:
        requests = quantity(figures.cancelled, "request")
        yield f"{requests} cut at the end: their tokens count for throughput, not for latencies"


def _lacking_percentiles(results: Results) -> list[float]:
    """The percentiles that some part of the block has too few values for."""
    parts = [stage.figures for stage in results.stages] or [results.total]
    lacking: set[float] = set()
    for part in parts:
        for key in SECTION_KEYS:
            lacking.update(part.distributions[key].lacking)
    return sorted(lacking)


def own_sections(results: Results) -> list[str]:
    """The sections that vLLM's block does not have.

    Failures by class, the server's figures, each workload, the verdict.
    """
    figures = results.total
    manifest = results.run.manifest
    lines = section("Notes on the Above", _wrapped_notes(results))
    lines += end_lines(results)
    lines += _stages(results)
    lines += section("More from the Client", _more(figures))
    lines += _open_loop(manifest, figures)
    lines += _ends(manifest)
    lines += time_lines(results.time_parts)
    lines += section("Server's Own Figures", _server_side(figures))
    lines += side_lines(results.client_server)
    lines += section("Telemetry", telemetry_lines(results))
    lines += _workloads(results)
    for found in results.topics.values():
        lines += table_section(found.tables(IN_ENGLISH))

    lines += section("Replicas", _replicas(results))
    if len(results.by_model) > 1:
        lines += section("Models", _part_lines(results.by_model))
    if results.by_adapter:
        lines += section("LoRA Adapters", _part_lines(results.by_adapter))

    lines += section("Requests", _requests(results))
    lines += section("Besides LLM Requests", traffic_lines(results.others))
    lines += section("Prompts", _prompts(manifest))
    lines += server_lines(manifest.servers)
    lines += section("Verdict", verdict_lines(results))
    lines.append("=" * WIDTH)

    return lines


def _wrapped_notes(results: Results) -> Iterable[str]:
    for note in _notes(results):
        yield from wrapped(note, TEXT_WIDTH, indent="  ")


def _workloads(results: Results) -> Iterable[str]:
    """A section per workload, if there are several."""
    if len(results.by_workload) < 2:
        return
    for name, part in results.by_workload.items():
        yield from section(f"Workload {name}", _workload_lines(part))


def _workload_lines(figures: Summary) -> Iterable[str]:
    yield whole("Successful requests:", figures.completed)
    yield whole("Failed requests:", figures.failed)
    yield number("Output token throughput (tok/s):", figures.output_throughput)
    for latency in of_group(EVERY):
        yield number(
            f"Mean {latency.name} (ms):", figures.distributions[latency.key].mean
        )


def _requests(results: Results) -> Iterable[str]:
    """A row per request of a small run of several workloads."""
    if len(results.by_workload) < 2:
        return
    table = request_table(results.run.records.measured(), str)
    if table is not None:
        yield from text_lines(table)


def _prompts(manifest: Manifest) -> Iterable[str]:
    replaced = manifest.prompts.get("replaced")
    if replaced:
        yield whole("Too long for a slot, replaced:", replaced)


def _ends(manifest: Manifest) -> Iterable[str]:
    """What ended the run early, or what it waited for."""
    if manifest.ended_below is not None:
        yield from wrapped(
            f"--end-below: {manifest.ended_below}", TEXT_WIDTH, indent="  "
        )
    if manifest.until is not None:
        yield from wrapped(
            f"--until: {manifest.until.sentence}", TEXT_WIDTH, indent="  "
        )


def _more(figures: Summary) -> Iterable[str]:
    """Client figures that vLLM's block does not have."""
    if figures.total_output_tokens:
        yield number("Output characters per second:", figures.output_chars_per_s)
        yield number(
            "Peak output in any second (tok/s):", figures.peak_output_tok_per_s
        )

    yield whole("Peak requests in flight:", figures.peak_in_flight)
    yield from _details(figures, CONNECTION)
    if figures.total_images:
        yield whole("Images:", figures.total_images)
        yield number("Mean prompt tokens an image:", figures.tokens_per_image)

    yield from _details(figures, SERVER)
    events = figures.tokens_per_event
    if events.mean is not None and round(events.mean, 2) != 1:
        yield number("Mean tokens per event:", events.mean)

    yield from _details(figures, ANSWER)


def _details(figures: Summary, group: str) -> Iterable[str]:
    """The means of these latencies.

    Also the median of one that is compared with another latency.
    """
    for latency in of_group(group):
        sample = figures.distributions[latency.key]
        if latency.differs_from:
            if sample.mean != figures.distributions[latency.differs_from].mean:
                yield number(f"Mean {latency.name} (ms):", sample.mean)
                yield number(f"Median {latency.name} (ms):", sample.median)
        elif sample.count or latency.is_always_shown:
            yield number(f"Mean {latency.name} (ms):", sample.mean)


def _stages(results: Results) -> Iterable[str]:
    """A row per stage, and output tokens/s of all users and of one."""
    table = stage_table(results, str)
    if table is None:
        return

    manifest = results.run.manifest
    yield headline("Stages", "-")
    yield f"Model: {manifest.model or NONE}"
    yield from stage_lines(table)
    which = describe_prompts(results.repeated_prompts, same=manifest.same_prompts)
    yield f"(* best of its column; prompts: {which})"
    for note in notes(results.stages):
        yield from wrapped(note, TEXT_WIDTH, indent="  ")

    speeds = list(speed_lines(results.stages))
    if speeds:
        yield headline("Output Tokens per Second", "-")
        yield from speeds


def _open_loop(manifest: Manifest, figures: Summary) -> Iterable[str]:
    """Latencies from the scheduled instants, including any delay before sending."""
    if not figures.distributions["client_queue"].count:
        return

    yield headline("Open Loop: from the Scheduled Instant", "-")
    for latency in of_group(SCHEDULED):
        if latency.open_loop:
            yield from distribution_lines(latency.open_loop, latency.key, figures)

    if manifest.dropped:
        yield whole("Arrivals dropped at the limit:", manifest.dropped)


def _server_side(figures: Summary) -> Iterable[str]:
    """The server's own figures, if it reports any."""
    prompt_speed = figures.server_prompt_tok_per_s
    predict_speed = figures.server_predict_tok_per_s
    cached = figures.total_cached_tokens
    if prompt_speed is None and predict_speed is None and cached is None:
        return

    yield number("Prompt speed of a request (tok/s):", prompt_speed)
    yield number("Predict speed of a request (tok/s):", predict_speed)
    yield whole("Prompt tokens from cache:", count(cached))


def _replicas(results: Results) -> Iterable[str]:
    """A row per replica, and how unevenly the work was spread."""
    parts = results.by_host
    if len(parts) < 2:
        return
    yield from _part_lines(parts)
    yield number("Request imbalance (1 is even):", results.request_imbalance)
    yield number("Output token imbalance (1 is even):", results.token_imbalance)


def _part_lines(parts: Mapping[str, Summary]) -> Iterable[str]:
    """A row per replica, model or adapter."""
    heads = [
        Column("", LEFT),
        Column("req", width=6),
        Column("failed", width=6),
        Column("tok/s", width=9),
        Column("TTFT (ms)", width=9),
        Column("TPOT (ms)", width=9),
    ]
    rows: list[Row] = []
    for name, part in parts.items():
        row: Row = [
            name,
            str(part.completed),
            str(part.failed),
            figure(part.output_throughput),
            figure(part.distributions["ttft"].median),
            figure(part.distributions["tpot"].median),
        ]
        rows.append(row)

    yield from text_lines(Table("", heads, rows), gap=" ")
    yield "(output tokens/s over the run's time; TTFT and TPOT are medians)"


def verdict_lines(results: Results) -> list[str]:
    """The words, the checks by statement, a line per threshold; for 80 columns."""
    lines = [whole("Verdict:", results.verdict.shown[0])]
    if others := results.verdict.words[1:]:
        lines.append(whole("", f"also {', '.join(others)}"))

    lines += check_lines(results.verdict.checks, TEXT_WIDTH)
    for threshold in results.thresholds:
        text = (
            f"✗ {threshold.line}, FAILED" if threshold.failed else f"✓ {threshold.line}"
        )
        lines += wrapped(text, TEXT_WIDTH, indent="  ")

    return lines
