"""What the answers were like: forced into a form, or the same alone and under load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from llama_load.analysis.results import Results
from llama_load.metrics.answer_forms import FormFigures
from llama_load.metrics.hang_up_figures import NEAR_MS, HangUpFigures
from llama_load.metrics.same_answers import DifferingAnswer, SameAnswers
from llama_load.observed.hang_up_check import HangUpCheck
from llama_load.reports.layout import TEXT_WIDTH, headline
from llama_load.reports.probe_section import probe_tables
from llama_load.tables import Cell, Row, Table, columns, figure, text_lines
from llama_load.tables.numbers import percent
from llama_load.tables.text_width import wrapped
from llama_load.targets.answer_form import FREE
from llama_load.units import quantity

_NOTE = (
    "tokens are means of an answer, TTFT and TPOT medians; both forms are computed beside each other, so what a form costs all "
    "requests shows in a comparison of two runs"
)


def answer_tables(results: Results) -> Iterator[Table]:
    """A table for each flag that asks for one."""
    if results.forms:
        yield _forms(results.forms)
    if results.hang_ups is not None:
        yield _hang_ups(results.hang_ups, results.run.manifest.hang_ups)
    if results.same_answers is not None:
        yield _same(results.same_answers)
    if results.probes is not None:
        yield from probe_tables(results.probes)


def table_section(tables: Iterable[Table]) -> Iterator[str]:
    """The tables as sections of the block."""
    for table in tables:
        yield headline(table.title, "-")
        yield from text_lines(table, TEXT_WIDTH)
        for note in table.notes:
            yield from wrapped(f"({note})", TEXT_WIDTH, indent="  ")


def _forms(forms: list[FormFigures]) -> Table:
    heads = columns("form", "requests", "valid", "cut off", "tokens", "TTFT (ms)", "TPOT (ms)")
    free = next((form for form in forms if form.form == FREE), None)
    rows: list[Row] = [
        [
            form.form,
            str(form.requests),
            _share(form.valid_ratio),
            _share(form.cut_ratio),
            figure(form.mean_output_tokens, 1),
            _against(form.median_ttft_ms, None if free is None or free is form else free.median_ttft_ms),
            _against(form.median_tpot_ms, None if free is None or free is form else free.median_tpot_ms),
        ]
        for form in forms
    ]
    return Table("Forms of Answers", heads, rows, [_NOTE] if len(forms) > 1 else [])


def _share(value: float | None) -> Cell:
    return Cell(percent(value), value)


def _against(value: float | None, free: float | None) -> Cell:
    """A latency, and how many times that of free text it is."""
    shown = figure(value)
    return shown if value is None or not free else Cell(f"{shown.text} (x{value / free:.2f})", value)


def _same(same: SameAnswers) -> Table:
    rows: list[Row] = [
        ["compared with the answer alone", str(same.compared)],
        ["different", Cell(str(same.differing) if same.ratio is None else f"{same.differing} ({same.ratio:.1%})", same.differing)],
    ]
    notes = [_example(example) for example in same.examples]
    if same.unstable:
        unstable = f"{quantity(same.unstable, 'prompt')} got different answers alone, too: this server is not repeatable"
        notes.insert(0, unstable)
    return Table("Same Answers under Load", columns("answers", ""), rows, notes)


def _hang_ups(figures: HangUpFigures, checks: Sequence[HangUpCheck]) -> Table:
    rows: list[Row] = [
        ["requests given up", str(figures.aborted)],
        ["before their first token", str(figures.before_first_token)],
        ["wasted tokens", str(figures.wasted_tokens)],
        ["median TTFT of these (ms)", figure(figures.median_ttft_ms)],
        ["median time until given up (ms)", figure(figures.median_waited_ms)],
        [f"others' median gap, {NEAR_MS / 1e3:g} s after (ms)", figure(figures.near_median_ms)],
        ["others' median gap, else (ms)", figure(figures.other_median_ms)],
        [f"others' longest gap, {NEAR_MS / 1e3:g} s after (ms)", figure(figures.near_longest_ms)],
        ["others' longest gap, else (ms)", figure(figures.other_longest_ms)],
    ]
    notes: list[str] = []
    for check in checks:
        where = f", {check.host}" if len(checks) > 1 else ""
        rows += [[name + where, value] for name, value in _of_server(check)]
        if (freeing := check.freeing) is not None and freeing.looks:
            asked = f"the server was asked {quantity(freeing.looks, 'time')}, {freeing.look_ms or 0:.1f} ms each{where}"
            earlier = freeing.resolution_ms
            notes.append(asked + ("" if earlier is None else f"; slots may have been free up to {earlier:.0f} ms (median) earlier"))
    return Table("Users Who Hung Up", columns("", "value"), rows, notes)


def _of_server(check: HangUpCheck) -> Iterator[tuple[str, Cell]]:
    """How soon a server stopped working for users who had gone."""
    if (freeing := check.freeing) is not None:
        yield "slot free after, median (ms)", figure(freeing.median_ms)
        yield "slot free after, P99 (ms)", figure(freeing.p99_ms)
        yield "slot free after, longest (ms)", figure(freeing.longest_ms)
        yield "not known when free", Cell(str(freeing.unknown), freeing.unknown)
        yield "never freed", Cell(str(freeing.stuck), freeing.stuck)
        yield "most at work for users who had gone", Cell(str(freeing.most_at_work), freeing.most_at_work)
    yield "idle after the last request (ms)", figure(check.idle_after_ms)


def _example(example: DifferingAnswer) -> str:
    ids = f"requests {example.alone_id[:8]} and {example.loaded_id[:8]}"
    if example.place is None:
        chars = f"{example.alone_chars} and {example.loaded_chars} characters"
        return f"{ids}: {chars}; --save-texts shows the texts"
    return f"{ids}: from character {example.place} {example.alone_text!r} alone, {example.loaded_text!r} under load"
