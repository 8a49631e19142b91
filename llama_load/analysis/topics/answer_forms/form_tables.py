"""Answers that are forced into a form beside free text: the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llama_load.analysis.topics.answer_forms.form_figures import FormFigures
from llama_load.ground.languages import Translate
from llama_load.servers.answer_form import FREE
from llama_load.tables import Cell, Row, Table, columns, figure
from llama_load.tables.numbers import percent

NOTE = (
    "tokens are means of an answer, TTFT and TPOT medians; both forms are computed beside each "
    "other, so what a form costs all requests shows in a comparison of two runs"
)


def form_tables(forms: Sequence[FormFigures], t: Translate) -> Iterator[Table]:
    """A row per form, held against free text where the run has both."""
    heads = columns(
        t("form"),
        t("requests"),
        t("valid"),
        t("cut off"),
        "tokens",
        "TTFT (ms)",
        "TPOT (ms)",
    )
    free = next((form for form in forms if form.form == FREE), None)
    rows = [_form_row(form, free) for form in forms]
    notes = [t(NOTE)] if len(forms) > 1 else []
    yield Table(t("Forms of Answers"), heads, rows, notes)


def _form_row(form: FormFigures, free: FormFigures | None) -> Row:
    """`free`: the figures of free text, which those of other forms are held against."""
    free_ttft_ms = None
    free_tpot_ms = None
    if free is not None and free is not form:
        free_ttft_ms = free.median_ttft_ms
        free_tpot_ms = free.median_tpot_ms

    return [
        form.form,
        str(form.requests),
        _share_cell(form.valid_ratio),
        _share_cell(form.cut_ratio),
        figure(form.mean_output_tokens, 1),
        _against(form.median_ttft_ms, free_ttft_ms),
        _against(form.median_tpot_ms, free_tpot_ms),
    ]


def _share_cell(value: float | None) -> Cell:
    return Cell(percent(value), value)


def _against(value: float | None, free: float | None) -> Cell:
    """A latency, and how many times that of free text it is."""
    shown = figure(value)
    if value is None or not free:
        return shown
    return Cell(f"{shown.text} (x{value / free:.2f})", value)
