"""The first screen after a run: the verdict with its causes, the headline figures, the next command. 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from llama_load.analysis.keys import percentile_word, spoiled
from llama_load.analysis.results import Results
from llama_load.foreign_text import printable
from llama_load.metrics.check_limits import LIMITS
from llama_load.metrics.definitions import BY_KEY
from llama_load.metrics.spoiled import SPOILED_MARK
from llama_load.metrics.statistics import Distribution
from llama_load.metrics.summary import Summary, shown_latencies
from llama_load.metrics.thresholds import DEFAULT
from llama_load.metrics.verdict import Verdict
from llama_load.metrics.verdict_words import FAILED, INCOMPLETE, VALID
from llama_load.reports.about_run import server_parts
from llama_load.reports.baseline import against_last
from llama_load.reports.layout import TEXT_WIDTH
from llama_load.reports.next_step import next_step
from llama_load.reports.sentences import carries
from llama_load.reports.stage_table import notes, stage_lines, stage_table
from llama_load.tables import Table, columns, text_lines
from llama_load.tables.numbers import NONE, percent, percent_of, short
from llama_load.units import quantity

SEPARATOR = " · "
NO_BREAK = "\u00a0"
MOST_CAUSES = 3
MOST_PERCENTILES = 3
# Parts of a request's time, as briefly as one line wants them; below this share they are left out.
TIME_PARTS = {
    "client_queue": "client queue",
    "earlier_tries": "refused tries",
    "connect": "connect",
    "slot_wait": "slot",
    "batch_wait": "batch",
    "image_prefill": "image",
    "prefill": "prefill",
    "decode_alone": "decode",
    "decode_shared": "decode beside others' prefill",
    "network": "network",
    "unattributed": "not known",
}
LEAST_SHARE = 0.005
FULL_REPORT = "Full block, tables, charts: "
# Styles of rich.
GOOD, BAD, DOUBTFUL, DIM, STRONG, PLAIN = "bold green", "bold red", "bold yellow", "dim", "bold", ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line and its style on a terminal with colours."""

    text: str
    style: str = PLAIN


def first_screen(results: Results) -> list[Line]:
    """The lines, at most 80 columns wide except commands and paths, which must not be broken."""
    lines = [*_verdict(results), *_packed(_what_ran(results))]
    lines += _stages(results) if results.stages else _workloads(results) if len(results.by_workload) > 1 else _figures(results)
    lines += [*_packed(_time_went(results), head="Time went  "), *_packed(_hardware(results))]
    if (against := against_last(results)) is not None:
        lines += _wrapped(against)
    if results.run.unwritten is None:
        lines.append(Line(f"{FULL_REPORT}{printable(str(results.run.path / 'report.html'), None)}", DIM))
    if (step := next_step(results)) is not None:
        lines += [Line(step[0], DIM), Line(f"  {step[1]}")]
    return lines


# ---------------------------------------------------------------------- the verdict and what was run


def _verdict(results: Results) -> Iterator[Line]:
    """The verdict's headline and the next checks that are not ok."""
    verdict = results.verdict
    yield from _wrapped(verdict.headline, _style_of(verdict))
    bad = [check for check in verdict.checks if not check.ok][1:]
    for check in bad[:MOST_CAUSES]:
        where = "" if check.stage is None else f"stage {check.stage}: "
        yield from _wrapped(where + check.sentence, indent="  ")
    if len(bad) > MOST_CAUSES:
        yield Line(f"  and {len(bad) - MOST_CAUSES} more, see Verdict below")
    for threshold in results.thresholds:
        if threshold.failed and not (FAILED in verdict.words and threshold.text == DEFAULT):
            yield Line(f"  {printable(threshold.line)}, FAILED", BAD)


def _style_of(verdict: Verdict) -> str:
    """Green is for runs in which every statement holds, and not for those in which a main check is unknown."""
    if verdict.word == VALID:
        return GOOD if verdict.headline == VALID else STRONG
    return BAD if verdict.word in (INCOMPLETE, FAILED) else DOUBTFUL


def _what_ran(results: Results) -> list[str]:
    """Parts of a line: how many were answered, the load, the time, the server."""
    figures, manifest = results.total, results.run.manifest
    ended = figures.completed + figures.failed
    parts = [f"{figures.completed} of {ended} answered ({percent_of(figures.completed, ended)})"]
    if figures.aborted:
        parts.append(f"{figures.aborted} given up")
    if figures.cancelled:
        parts.append(f"{figures.cancelled} cut at the end")
    if manifest.stages:
        parts.append(f"{len(manifest.stages)} stages")
    elif manifest.arrival is None:
        parts.append(f"c={manifest.users}" if manifest.conversations is None else f"{manifest.users} conversations")
    elif manifest.conversation_rate is not None:
        parts.append(f"{manifest.conversation_rate:g} conversations/min {manifest.arrival}")
    else:
        parts.append("a trace" if manifest.request_rate is None else f"{manifest.request_rate:g} req/s {manifest.arrival}")
    parts.append(f"{figures.duration_s:.1f} s")
    return parts + server_parts(manifest.targets)


# ---------------------------------------------------------------------- figures


def _figures(results: Results) -> Iterator[Line]:
    """A row per latency, then the rates."""
    figures, manifest = results.total, results.run.manifest
    if not figures.completed:
        return
    survivors = (figures.failure_ratio or 0) > LIMITS["failure_ratio"].limit
    percentiles = manifest.percentiles[:MOST_PERCENTILES]
    heads = ["", "mean", "median", *map(percentile_word, percentiles)]
    doubts = spoiled(manifest, results.verdict.checks)
    rows = [
        [_latency_name(key, doubts), *_cells(figures.distributions[key], percentiles)]
        for key in shown_latencies(manifest.percentile_metrics, figures)
        if figures.distributions[key].count
    ]
    for number, line in enumerate(text_lines(Table("", columns(*heads), rows), gap="   ")):
        yield Line(f"{line}   of the survivors only" if survivors and number else line, STRONG if number == 0 else PLAIN)
    yield from _packed(_rates(figures), head="Output     " if figures.total_output_tokens else "Requests   ")
    if manifest.goodput:
        yield Line(_goodput(results))


def _latency_name(key: str, doubts: Collection[str]) -> str:
    """`E2EL (ms)`, marked where a failed check spoils its figures."""
    mark = f" {SPOILED_MARK}" if f"mean_{key}_ms" in doubts else ""
    return f"{BY_KEY[key].name} (ms){mark}"


def _cells(sample: Distribution, percentiles: Sequence[float]) -> Iterator[str]:
    yield short(sample.mean)
    yield short(sample.median)
    for p in percentiles:
        value, (low, high) = sample.percentile(p), sample.intervals[p]
        if value is None:
            yield f"n/a ({quantity(sample.count, 'value')})"
        else:
            yield short(value) + ("" if low is None or high is None else f" ({short(low)} to {short(high)})")


def _rates(figures: Summary) -> list[str]:
    parts = []
    if figures.output_throughput:
        parts.append(f"{short(figures.output_throughput)} tok/s all")
    if (one_user := figures.tok_per_s_per_user) is not None:
        parts.append(f"{short(one_user)} tok/s one user")
    if figures.output_chars_per_s:
        parts.append(f"{short(figures.output_chars_per_s)} chars/s")
    if figures.request_throughput:
        parts.append(f"{short(figures.request_throughput)} req/s")
    return parts


def _goodput(results: Results) -> str:
    figures = results.total
    objectives = ", ".join(map(printable, results.run.manifest.goodput))
    if figures.request_goodput is None or figures.good_requests is None:
        return f"Goodput    n/a ({objectives} was not measured for every request)"
    met = f"{figures.good_requests} of {figures.completed} met {objectives}"
    return f"Goodput    {met}{SEPARATOR}{short(figures.request_goodput)} req/s"


def _time_went(results: Results) -> list[str]:
    """The shares of the parts of all requests' time (docs/where-the-time-went.md), small ones left out."""
    total = results.time_parts.total
    if total is None:
        return []
    # Where the server reports no times, others count from their sending (docs/where-the-time-went.md).
    names = {"decode_shared": "decode beside others' wait or prefill"} if total.decode and total.decode.includes_queueing else {}
    known = ((names.get(key, name), total.parts[key]) for key, name in TIME_PARTS.items())
    return [f"{name} {100 * part.share:.0f} %" for name, part in known if part is not None and part.share >= LEAST_SHARE]


def _hardware(results: Results) -> list[str]:
    """Memory of the GPUs, power, energy per token."""
    values = results.telemetry.values
    # Without a GPU that was seen it is what the server's log says of its buffers, which may be an RPC worker's main memory.
    memory = "VRAM {} MiB" if results.telemetry.gpus else "buffers {} MiB"
    shown = (("vram_peak_mib", memory), ("watts", "{} W"), ("joules_per_output_token", "{} J/token"))
    return [form.format(short(value)) for key, form in shown if (value := values.get(key)) is not None]


def _stages(results: Results) -> Iterator[Line]:
    """A row per stage."""
    if (table := stage_table(results, str)) is not None:
        yield from (Line(line, STRONG if number < 2 else PLAIN) for number, line in enumerate(stage_lines(table)))
    for note in [*notes(results.stages), *filter(None, [carries(results, str)])]:
        yield from _wrapped(note)


def _workloads(results: Results) -> Iterator[Line]:
    """A row per workload."""
    heads = ["", "answered", "failed", "prompt", "output", "TTFT (ms)", "TPOT (ms)", "E2EL (ms)", "tok/s", "accepted", "tok/step"]
    rows = [[name, *_workload(part)] for name, part in results.by_workload.items()]
    unknown = [place for place in range(len(heads)) if {NONE}.issuperset(row[place] for row in rows)]
    for number, line in enumerate(text_lines(Table("", columns(*heads), rows).without(*unknown), gap=" ")):
        yield Line(line, STRONG if number == 0 else PLAIN)
    yield Line("(means; prompt and output in tokens; output tok/s over the run's time)", DIM)


def _workload(part: Summary) -> Iterator[str]:
    count = part.completed or 1
    yield str(part.completed)
    yield str(part.failed)
    yield short(None if part.total_input_tokens is None else part.total_input_tokens / count)
    yield short(part.total_output_tokens / count if part.total_output_tokens else None)
    for key in ("ttft", "tpot", "e2el"):
        yield short(part.distributions[key].mean)
    yield short(part.output_throughput or None)
    drafts = part.speculation
    yield percent(None if drafts is None else drafts.acceptance_rate, 0)
    yield short(None if drafts is None else drafts.acceptance_length)


# ---------------------------------------------------------------------- text


def _wrapped(text: str, style: str = PLAIN, indent: str = "") -> Iterator[Line]:
    """A sentence, wrapped for 80 columns between words."""
    lines = textwrap.wrap(
        printable(text, None).replace(" %", NO_BREAK + "%"),
        TEXT_WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return (Line(line.replace(NO_BREAK, " "), style) for line in lines)


def _packed(parts: Iterable[str], head: str = "") -> Iterator[Line]:
    """The parts with separators between them, on as few lines as fit, broken only between parts."""
    line = head
    for part in parts:
        if line.strip() and line != head and cell_len(f"{line}{SEPARATOR}{part}") > TEXT_WIDTH:
            yield Line(line)
            line = " " * len(head) or "  "
            head = line
        line += part if line == head else f"{SEPARATOR}{part}"
    if line.strip():
        yield Line(line)
