"""Answers that are forced into a form (--json-schema, --grammar, a prompt's `response_format`)
beside free text: how many are valid, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass

from llama_load.analysis.figures.summary import output_counts
from llama_load.analysis.statistics.statistics import mean, median
from llama_load.analysis.topics.topic import TopicInput
from llama_load.run_folder.observed.records import Records
from llama_load.servers.answer_form import FREE


@dataclass(frozen=True, slots=True)
class FormFigures:
    """The successful requests of one form. Ratios: 0 to 1. None: not measured."""

    form: str
    requests: int
    valid_ratio: float | None  # that follow the schema
    cut_ratio: float  # cut off by their length
    mean_output_tokens: float | None
    median_ttft_ms: float | None
    median_tpot_ms: float | None


def answer_forms(given: TopicInput) -> list[FormFigures] | None:
    """The figures of each form; None where no answers are forced into one."""
    ok = given.measured.ok()
    names = set(ok.values_of("answer_form"))
    if not names:
        return None
    is_free = ~ok.has("answer_form") | ok.equals("answer_form", FREE)
    if is_free.any():
        names.add(FREE)

    forms = []
    for form in sorted(names):
        has_form = is_free if form == FREE else ok.equals("answer_form", form)
        forms.append(_figures_of_form(form, ok.where(has_form)))
    return forms


def _figures_of_form(form: str, ok: Records) -> FormFigures:
    is_checked = ok.has("valid_answer")
    return FormFigures(
        form=form,
        requests=len(ok),
        valid_ratio=float(ok.equals("valid_answer", True)[is_checked].mean())
        if is_checked.any()
        else None,
        cut_ratio=float(ok.equals("finish_reason", "length").mean()),
        mean_output_tokens=mean(output_counts(ok)),
        median_ttft_ms=median(ok.numbers("ttft_ms")),
        median_tpot_ms=median(ok.numbers("tpot_ms")),
    )
