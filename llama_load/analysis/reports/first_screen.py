"""The first screen after a run: verdict, causes, headline figures, the next command.

80 columns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from llama_load.analysis.checks.verdict import Verdict
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.prompt_cache import cache_help
from llama_load.analysis.figures.spoiled import SPOILED_MARK
from llama_load.analysis.figures.summary import Summary, shown_latencies
from llama_load.analysis.reports.about_run import server_parts
from llama_load.analysis.reports.check_lines import where
from llama_load.analysis.reports.layout import TEXT_WIDTH
from llama_load.analysis.reports.next_step import next_step
from llama_load.analysis.reports.sentences import carries, unseen
from llama_load.analysis.reports.stage_table import notes, stage_lines, stage_table
from llama_load.analysis.results.keys import GOODPUT, configured_load, spoiled
from llama_load.analysis.results.results import Results
from llama_load.analysis.statistics.statistics import Distribution
from llama_load.ground.units import quantity
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import Manifest
from llama_load.run_folder.arithmetic.percentiles import percentile_word
from llama_load.run_folder.vocabulary.definitions import BY_KEY
from llama_load.run_folder.vocabulary.thresholds import DEFAULT
from llama_load.run_folder.vocabulary.verdict_words import FAILED, INCOMPLETE, VALID
from llama_load.tables import Table, columns, text_lines
from llama_load.tables.numbers import NONE, percent, percent_of, short

SEPARATOR = " · "
NO_BREAK = "\u00a0"
MOST_CAUSES = 3
MOST_PERCENTILES = 3
# Parts of a request's time, as briefly as one line wants them.
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
# Where the server reports no times, others count from their sending (docs/where-the-time-went.md).
_SHARED_WITH_QUEUE = "decode beside others' wait or prefill"
LEAST_SHARE = 0.005  # of the time; smaller parts are left out
# Each rate with its unit, and the key whose doubts are its own.
_RATES = (
    ("output_throughput", "tok/s all", "output_throughput"),
    ("tok_per_s_per_user", "tok/s one user", "mean_tpot_ms"),
    ("output_chars_per_s", "chars/s", "output_chars_per_s"),
    ("request_throughput", "req/s", "request_throughput"),
)
FULL_REPORT = "Full block, tables"  # as its line begins
# Styles of rich.
GOOD = "bold green"
BAD = "bold red"
DOUBTFUL = "bold yellow"
DIM = "dim"
STRONG = "bold"
PLAIN = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line and its style on a terminal with colours.

    `is_detail`: a terminal that shows no block leaves it out; the block's Verdict has it.
    """

    text: str
    style: str = PLAIN
    is_detail: bool = False


def first_screen(results: Results, *, has_page: bool = True) -> list[Line]:
    """The lines, at most 80 columns wide except commands and paths, which must not be broken.

    `has_page`: report.html is written, too.
    """
    lines = list(_verdict(results))
    lines += _packed(_what_ran(results))
    if results.stages:
        lines += _stages(results)
    elif len(results.by_workload) > 1:
        lines += _workloads(results)
    else:
        lines += _figure_lines(results)

    lines += _packed(_time_went(results), head="Time went  ")
    lines += _topics(results)
    lines += _packed(_hardware(results))

    lines += _against_last(results)
    if results.run.unwritten is None:
        what = f"{FULL_REPORT}, charts" if has_page else FULL_REPORT
        name = "report.html" if has_page else "report.md"
        report = printable(str(results.run.path / name), None)
        lines.append(Line(f"{what}: {report}", DIM))

    step = next_step(results)
    if step is not None:
        purpose, command = step
        lines.append(Line(purpose, DIM))
        lines.append(Line(f"  {command}"))

    return lines


def _against_last(results: Results) -> Iterator[Line]:
    """Of a run with a label; others do not import the comparison."""
    if results.run.manifest.label is None or results.run.unwritten is not None:
        return

    from llama_load.analysis.comparison.last_run import against_last

    against = against_last(results)
    if against is not None:
        yield from _wrapped(against)


# ---------------------------------------------------------------------- the verdict, what was run


def _verdict(results: Results) -> Iterator[Line]:
    """The verdict's headline, for a valid run what it could not have seen in small print, the next
    checks that are not ok, the failed thresholds."""
    verdict = results.verdict
    headline = verdict.headline
    if verdict.word == VALID:
        headline = headline.partition(": ")[0]

    yield from _wrapped(headline, _style_of(verdict))
    for text in unseen(results, str):
        yield from _wrapped(text, DIM, indent="  ")

    # The headline has the first one.
    bad = [check for check in verdict.checks if not check.ok][1:]
    for check in bad[:MOST_CAUSES]:
        for line in _wrapped(where(check) + check.sentence, indent="  "):
            yield replace(line, is_detail=True)

    if len(bad) > MOST_CAUSES:
        more = f"  and {len(bad) - MOST_CAUSES} more, see Verdict below"
        yield Line(more, is_detail=True)

    for threshold in results.thresholds:
        is_in_headline = FAILED in verdict.words and threshold.text == DEFAULT
        if threshold.failed and not is_in_headline:
            yield from _wrapped(f"{threshold.line}, FAILED", BAD, indent="  ")


def _style_of(verdict: Verdict) -> str:
    """Green only if the run itself gave evidence of every main check."""
    if verdict.word in (INCOMPLETE, FAILED):
        return BAD
    if verdict.word != VALID:
        return DOUBTFUL
    return GOOD if verdict.shown == [VALID] else STRONG


def _what_ran(results: Results) -> list[str]:
    """Parts of a line: how many were answered, the load, the time, the server."""
    figures = results.total
    manifest = results.run.manifest
    ended = figures.completed + figures.failed
    share = percent_of(figures.completed, ended)
    parts = [f"{figures.completed} of {ended} answered ({share})"]
    if figures.aborted:
        parts.append(f"{figures.aborted} given up")
    if figures.cancelled:
        parts.append(f"{figures.cancelled} cut at the end")

    parts.append(_load(manifest))
    parts.append(f"{figures.duration_s:.1f} s")

    return parts + server_parts(manifest.targets)


def _load(manifest: Manifest) -> str:
    if manifest.stages:
        return f"{len(manifest.stages)} stages"
    if manifest.arrival is None and manifest.conversations is None:
        most, _ = configured_load(manifest)
        return f"c={most}"
    if manifest.arrival is None:
        return f"{manifest.users} conversations"
    if manifest.conversation_rate is not None:
        return f"{manifest.conversation_rate:g} conversations/min {manifest.arrival}"
    if manifest.request_rate is not None:
        return f"{manifest.request_rate:g} req/s {manifest.arrival}"

    return "a trace"


# ---------------------------------------------------------------------- figures


def _figure_lines(results: Results) -> Iterator[Line]:
    """A row per latency, then the rates."""
    figures = results.total
    manifest = results.run.manifest
    if not figures.completed:
        return

    heading, *rows = text_lines(_latency_table(results), gap="   ")
    yield Line(heading, STRONG)
    survivors = (figures.failure_ratio or 0) > LIMITS["failure_ratio"].limit
    for row in rows:
        yield Line(f"{row}   of the survivors only" if survivors else row)

    if helped := cache_help(results.verdict.checks):
        yield Line(f"({helped})")
    head = "Output     " if figures.total_output_tokens else "Requests   "
    doubts = spoiled(manifest, results.verdict.checks, figures)
    yield from _packed(_rates(figures, doubts), head=head)
    if manifest.goodput:
        mark = f" {SPOILED_MARK}" if GOODPUT in doubts else ""
        yield Line(_goodput(results) + mark)


def _latency_table(results: Results) -> Table:
    manifest = results.run.manifest
    percentiles = manifest.percentiles[:MOST_PERCENTILES]
    heads = columns("", "mean", "median", *map(percentile_word, percentiles))
    doubts = spoiled(manifest, results.verdict.checks, results.total)

    rows = []
    for key in shown_latencies(manifest.percentile_metrics, results.total):
        sample = results.total.distributions[key]
        if sample.count:
            rows.append(
                [_latency_name(key, doubts), *_latency_cells(sample, percentiles)]
            )

    return Table("", heads, rows)


def _latency_name(key: str, doubts: Collection[str]) -> str:
    """`E2EL (ms)`, marked where a failed check spoils its figures."""
    name = f"{BY_KEY[key].name} (ms)"
    return f"{name} {SPOILED_MARK}" if f"mean_{key}_ms" in doubts else name


def _latency_cells(sample: Distribution, percentiles: Sequence[float]) -> Iterator[str]:
    yield short(sample.mean)
    yield short(sample.median)
    for percentile in percentiles:
        value = sample.percentile(percentile)
        low, high = sample.intervals[percentile]
        if value is None:
            yield f"n/a ({quantity(sample.count, 'value')})"
        elif low is None or high is None:
            yield short(value)
        else:
            interval = f"{short(low)} to {short(high)}"
            yield f"{short(value)} ({interval})"


def _rates(figures: Summary, doubts: Collection[str]) -> list[str]:
    """Those that are known, marked where a failed check spoils them."""
    parts = []
    for key, unit, spoiled_key in _RATES:
        value = getattr(figures, key)
        if value:
            mark = f" {SPOILED_MARK}" if spoiled_key in doubts else ""
            parts.append(f"{short(value)} {unit}{mark}")

    return parts


def _goodput(results: Results) -> str:
    figures = results.total
    objectives = ", ".join(map(printable, results.run.manifest.goodput))
    if figures.request_goodput is None or figures.good_requests is None:
        return f"Goodput    n/a ({objectives} was not measured for every request)"
    met = f"{figures.good_requests} of {figures.completed} met {objectives}"
    return f"Goodput    {met}{SEPARATOR}{short(figures.request_goodput)} req/s"


def _time_went(results: Results) -> list[str]:
    """The shares of the parts of all requests' time, small ones left out."""
    total = results.time_parts.total
    if total is None:
        return []

    includes_queueing = total.decode is not None and total.decode.includes_queueing
    shares = []
    for key, name in TIME_PARTS.items():
        part = total.parts[key]
        if part is None or part.share < LEAST_SHARE:
            continue

        if key == "decode_shared" and includes_queueing:
            name = _SHARED_WITH_QUEUE

        shares.append(f"{name} {100 * part.share:.0f} %")

    return shares


def _topics(results: Results) -> Iterator[Line]:
    """What topics have to say that costs much."""
    for found in results.topics.values():
        sentence = found.headline()
        if sentence is not None:
            yield from _wrapped(sentence)


def _hardware(results: Results) -> list[str]:
    """Memory of the GPUs, power, energy per token."""
    telemetry = results.telemetry
    values = telemetry.values
    parts = []
    memory = values.get("vram_peak_mib")
    if memory is not None:
        # Without a GPU that was seen it is what the server's log says of its buffers, which may be
        # an RPC worker's main memory.
        where_it_is = "VRAM" if telemetry.gpus else "buffers"
        parts.append(f"{where_it_is} {short(memory)} MiB")

    watts = values.get("watts")
    if watts is not None:
        parts.append(f"{short(watts)} W")

    joules = values.get("joules_per_output_token")
    if joules is not None:
        parts.append(f"{short(joules)} J/token")

    return parts


def _stages(results: Results) -> Iterator[Line]:
    """A row per stage."""
    table = stage_table(results, str)
    if table is not None:
        for number, line in enumerate(stage_lines(table)):
            is_heading = number < 2
            yield Line(line, STRONG if is_heading else PLAIN)

    for note in notes(results.stages):
        yield from _wrapped(note)

    capacity = carries(results, str)
    if capacity:
        yield from _wrapped(capacity)


_WORKLOAD_HEADS = (
    "",
    "answered",
    "failed",
    "prompt",
    "output",
    "TTFT (ms)",
    "TPOT (ms)",
    "E2EL (ms)",
    "tok/s",
    "accepted",
    "tok/step",
)


def _workloads(results: Results) -> Iterator[Line]:
    """A row per workload."""
    rows = []
    for name, part in results.by_workload.items():
        rows.append([name, *_workload_cells(part)])

    # Columns in which nothing is known are left out.
    unknown = []
    for place in range(len(_WORKLOAD_HEADS)):
        if all(row[place] == NONE for row in rows):
            unknown.append(place)

    table = Table("", columns(*_WORKLOAD_HEADS), rows).without(*unknown)

    heading, *lines = text_lines(table, gap=" ")
    yield Line(heading, STRONG)
    for line in lines:
        yield Line(line)

    yield Line(
        "(means; prompt and output in tokens; output tok/s over the run's time)", DIM
    )


def _workload_cells(part: Summary) -> Iterator[str]:
    count = part.completed or 1
    yield str(part.completed)
    yield str(part.failed)
    yield (
        NONE
        if part.total_input_tokens is None
        else short(part.total_input_tokens / count)
    )
    yield short(part.total_output_tokens / count) if part.total_output_tokens else NONE
    for key in ("ttft", "tpot", "e2el"):
        yield short(part.distributions[key].mean)

    yield short(part.output_throughput or None)

    drafts = part.speculation
    if drafts is None:
        yield NONE
        yield NONE
    else:
        yield percent(drafts.acceptance_rate, 0)
        yield short(drafts.acceptance_length)


# ---------------------------------------------------------------------- text


def _wrapped(text: str, style: str = PLAIN, indent: str = "") -> Iterator[Line]:
    """A sentence, wrapped for 80 columns between words, but not before a %."""
    unbroken = printable(text, None).replace(" %", NO_BREAK + "%")
    lines = textwrap.wrap(
        unbroken,
        TEXT_WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines:
        yield Line(line.replace(NO_BREAK, " "), style)


def _packed(parts: Iterable[str], head: str = "") -> Iterator[Line]:
    """The parts with separators between them, on as few lines as fit.

    Lines are broken only between parts. `head`: what the first line begins with.
    """
    line = head
    for part in parts:
        longer = f"{line}{SEPARATOR}{part}"
        if line.strip() and line != head and cell_len(longer) > TEXT_WIDTH:
            yield Line(line)
            line = " " * len(head) or "  "
            head = line

        line += part if line == head else f"{SEPARATOR}{part}"

    if line.strip():
        yield Line(line)
