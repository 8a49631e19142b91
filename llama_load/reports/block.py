"""The summary block in the layout of `vllm bench serve` 0.33, followed by llama-load's sections in the same style."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llama_load.analysis.keys import percentile_word, spoiled
from llama_load.analysis.results import Results
from llama_load.foreign_text import printable
from llama_load.metrics.check_limits import LIMITS
from llama_load.metrics.definitions import ANSWER, CONNECTION, EVERY, SCHEDULED, SECTION_KEYS, SERVER, of_group
from llama_load.metrics.spoiled import SPOILED_MARK, named, spoiled_keys
from llama_load.metrics.stage_figures import StageFigures
from llama_load.metrics.statistics import least_count
from llama_load.metrics.summary import Summary
from llama_load.reports.answer_section import answer_tables, table_section
from llama_load.reports.check_lines import check_lines, where
from llama_load.reports.choice_section import choice_tables
from llama_load.reports.conversation_tables import conversation_tables
from llama_load.reports.failure_lines import end_lines
from llama_load.reports.layout import TEXT_WIDTH, WIDTH, headline, number, section, whole
from llama_load.reports.other_request_lines import traffic_lines
from llama_load.reports.over_time_table import soak_lines, steady_lines
from llama_load.reports.request_table import request_table
from llama_load.reports.server_section import server_lines
from llama_load.reports.stage_table import describe_prompts, notes, speed_lines, stage_lines, stage_table
from llama_load.reports.telemetry_section import telemetry_lines
from llama_load.reports.time_table import side_lines, time_lines
from llama_load.reports.vllm_block import TOO_FEW, distribution_lines, vllm_block
from llama_load.run_folder import Manifest
from llama_load.tables import LEFT, Cell, Column, Row, Table, figure, text_lines
from llama_load.tables.numbers import NONE, count
from llama_load.tables.text_width import wrapped
from llama_load.units import quantity

MOST_ERRORS = 10


def block(results: Results) -> str:
    """The whole text: failures, vLLM's block, llama-load's sections. Ends with a newline."""
    manifest = results.run.manifest
    doubts = spoiled(manifest, results.verdict.checks)
    blocks = [line for stage in results.stages for line in _stage_block(results, stage)]
    blocks = blocks or vllm_block(manifest, results.total, spoiled=doubts)
    lines = [*error_lines(results.total), *blocks, *own_sections(results)]
    return "".join(f"{printable(line, None)}\n" for line in lines)


def error_lines(figures: Summary) -> list[str]:
    """vLLM's lines above the block when requests failed; here each failure class once, with its count."""
    if not figures.failures:
        return []
    lines = ["Failed requests during benchmark run detected (capping to 10):"]
    for index, failure in enumerate(figures.failures[:MOST_ERRORS]):
        lines.append(f"Error {index}: {failure.count} x {failure.kind}: {failure.example}")
    return lines


def _stage_block(results: Results, stage: StageFigures) -> list[str]:
    manifest = results.run.manifest
    if not stage.figures.completed + stage.figures.failed:
        return [headline(f" Stage {stage.name} ", "="), "nothing was measured in this stage", "=" * WIDTH]
    return [
        headline(f" Stage {stage.name} ", "="),
        *vllm_block(manifest, stage.figures, stage, spoiled(manifest, results.verdict.checks, stage)),
    ]


def _notes(results: Results) -> Iterable[str]:
    """Notes that are needed to read the block correctly."""
    figures, manifest = results.total, results.run.manifest
    ended = figures.completed + figures.failed
    blocks = [stage.figures for stage in results.stages] or [figures]
    lacking = sorted({p for part in blocks for key in SECTION_KEYS for p in part.distributions[key].lacking})
    if lacking:
        needs = ", ".join(f"{percentile_word(p)} needs {least_count(p)}" for p in lacking)
        yield f"{TOO_FEW} {needs} values; with fewer it is close to their maximum"
    for check in results.verdict.checks:
        names = named(check.spoils, figures.distributions)
        if not check.ok and names and spoiled_keys(check.spoils, manifest.percentiles):
            yield f"{SPOILED_MARK} {', '.join(names)} spoiled: {where(check)}{check.text}"
    if (figures.failure_ratio or 0) > LIMITS["failure_ratio"].limit and figures.completed:
        yield f"latencies are from the {figures.completed} of {ended} requests that did not fail"
    if any(check.name == "tokens_per_event" and not check.ok for check in results.verdict.checks):
        yield f"ITL is the time between events, which hold {figures.tokens_per_event.mean or 0:.2f} tokens each"
    if figures.aborted:
        yield (
            f"{quantity(figures.aborted, 'request')} given up by their users (--abort-rate): latencies and throughput are those of "
            f"the {figures.completed} answered ones; {figures.wasted_tokens} tokens were wasted"
        )
    elif manifest.hang_ups:
        yield "no user hung up (--abort-rate): every request ended before its --abort-after"
    if figures.cancelled:
        yield f"{quantity(figures.cancelled, 'request')} cut at the end: their tokens count for throughput, not for latencies"


def own_sections(results: Results) -> list[str]:
    """The sections that vLLM's block does not have: failures by class, the server's figures, each workload, the verdict."""
    figures, manifest, by_workload = results.total, results.run.manifest, results.by_workload
    requests = request_table(results.run.records.measured(), str) if len(by_workload) > 1 else None
    replaced = manifest.prompts.get("replaced")
    return [
        *section("Notes on the Above", (line for note in _notes(results) for line in wrapped(note, TEXT_WIDTH, indent="  "))),
        *end_lines(results),
        *_stages(results),
        *section("More from the Client", _more(figures)),
        *_open_loop(manifest, figures),
        *_ends(manifest),
        *steady_lines(results),
        *soak_lines(results),
        *time_lines(results.time_parts),
        *section("Server's Own Figures", _server_side(figures)),
        *side_lines(results.client_server),
        *section("Telemetry", telemetry_lines(results)),
        *(line for name, part in by_workload.items() if len(by_workload) > 1 for line in section(f"Workload {name}", _part(part))),
        *table_section(answer_tables(results)),
        *section("Replicas", _replicas(results)),
        *section("Models", _rows(results.by_model) if len(results.by_model) > 1 else ()),
        *section("LoRA Adapters", _rows(results.by_adapter) if results.by_adapter else ()),
        *table_section(choice_tables(results)),
        *table_section(conversation_tables(results, str)),
        *section("Requests", text_lines(requests) if requests else ()),
        *section("Besides LLM Requests", traffic_lines(results.others)),
        *section("Prompts", [whole("Too long for a slot, replaced:", replaced)] if replaced else ()),
        *server_lines(manifest.servers),
        *section("Verdict", verdict_lines(results)),
        "=" * WIDTH,
    ]


def _ends(manifest: Manifest) -> Iterable[str]:
    """What ended the run early, or what it waited for."""
    if manifest.ended_below is not None:
        yield from wrapped(f"--end-below: {manifest.ended_below}", TEXT_WIDTH, indent="  ")
    if manifest.until is not None:
        yield from wrapped(f"--until: {manifest.until.sentence}", TEXT_WIDTH, indent="  ")


def _more(figures: Summary) -> Iterable[str]:
    """Client figures that vLLM's block does not have."""
    if figures.total_output_tokens:
        yield number("Output characters per second:", figures.output_chars_per_s)
        yield number("Peak output in any second (tok/s):", figures.peak_output_tok_per_s)
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
    """The means of these latencies; also the median of one that is compared with another latency."""
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
    yield headline("Stages", "-")
    yield f"Model: {results.run.manifest.model or NONE}"
    yield from stage_lines(table)
    which = describe_prompts(results.repeated_prompts, same=results.run.manifest.same_prompts)
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
    known = (figures.server_prompt_tok_per_s, figures.server_predict_tok_per_s, figures.total_cached_tokens)
    if known == (None, None, None):
        return
    yield number("Prompt speed of a request (tok/s):", figures.server_prompt_tok_per_s)
    yield number("Predict speed of a request (tok/s):", figures.server_predict_tok_per_s)
    yield whole("Prompt tokens from cache:", count(figures.total_cached_tokens))


def _replicas(results: Results) -> Iterable[str]:
    """A row per replica, and how unevenly the work was spread."""
    parts = results.by_host
    if len(parts) < 2:
        return
    yield from _rows(parts)
    yield number("Request imbalance (1 is even):", results.request_imbalance)
    yield number("Output token imbalance (1 is even):", results.token_imbalance)


def _rows(parts: Mapping[str, Summary]) -> Iterable[str]:
    """A row per replica, model or adapter."""
    heads = [Column("", LEFT), *(Column(name, width=6) for name in ("req", "failed"))]
    heads += [Column(name, width=9) for name in ("tok/s", "TTFT (ms)", "TPOT (ms)")]
    rows: list[Row] = [
        [
            name,
            str(part.completed),
            str(part.failed),
            figure(part.output_throughput),
            *(_median(part, key) for key in ("ttft", "tpot")),
        ]
        for name, part in parts.items()
    ]
    yield from text_lines(Table("", heads, rows), gap=" ")
    yield "(output tokens/s over the run's time; TTFT and TPOT are medians)"


def _median(part: Summary, key: str) -> Cell:
    return figure(part.distributions[key].median)


def _part(figures: Summary) -> Iterable[str]:
    yield whole("Successful requests:", figures.completed)
    yield whole("Failed requests:", figures.failed)
    yield number("Output token throughput (tok/s):", figures.output_throughput)
    for latency in of_group(EVERY):
        yield number(f"Mean {latency.name} (ms):", figures.distributions[latency.key].mean)


def verdict_lines(results: Results) -> list[str]:
    """The words, the checks by statement, a line per threshold; wrapped for a terminal of 80 columns."""
    lines = [whole("Verdict:", results.verdict.shown[0])]
    if others := results.verdict.words[1:]:
        lines.append(whole("", f"also {', '.join(others)}"))
    lines += check_lines(results.verdict.checks, TEXT_WIDTH)
    for threshold in results.thresholds:
        lines += wrapped(f"✗ {threshold.line}, FAILED" if threshold.failed else f"✓ {threshold.line}", TEXT_WIDTH, indent="  ")
    return lines
