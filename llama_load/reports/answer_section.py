"""What the answers were like: forced into a form, or the same alone and under load."""

from __future__ import annotations

from collections.abc import Iterable

from llama_load.analysis.results import Results
from llama_load.metrics.answer_forms import FormFigures
from llama_load.metrics.same_answers import DifferingAnswer, SameAnswers
from llama_load.reports.layout import TEXT_WIDTH, headline, in_columns, whole, wrapped
from llama_load.units import quantity


def answer_lines(results: Results) -> Iterable[str]:
    """The sections; none where no flag asks for them."""
    if results.forms:
        yield headline("Forms of Answers", "-")
        yield from in_columns([_HEADS, *(_row(form, results.forms) for form in results.forms)], gap="  ")
        yield from wrapped(_FORM_NOTE, TEXT_WIDTH, indent="  ")
    if results.same_answers is not None:
        yield headline("Same Answers under Load", "-")
        yield from _same_lines(results.same_answers)


_HEADS = ("", "requests", "valid", "cut off", "tokens", "TTFT (ms)", "TPOT (ms)")
_FORM_NOTE = (
    "(tokens are means of an answer, TTFT and TPOT medians; forms are computed beside each other, so what a form costs all "
    "requests shows in a comparison of two runs)"
)


def _row(form: FormFigures, forms: Iterable[FormFigures]) -> tuple[str, ...]:
    free = next((other for other in forms if other.form == "free" and other is not form), None)
    return (
        form.form,
        str(form.requests),
        _share(form.valid_ratio),
        _share(form.cut_ratio),
        "n/a" if form.mean_output_tokens is None else f"{form.mean_output_tokens:.1f}",
        _against(form.median_ttft_ms, None if free is None else free.median_ttft_ms),
        _against(form.median_tpot_ms, None if free is None else free.median_tpot_ms),
    )


def _share(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1%}"


def _against(value: float | None, free: float | None) -> str:
    """A latency, and how many times that of free text it is."""
    if value is None:
        return "n/a"
    return f"{value:.2f} (x{value / free:.2f})" if free else f"{value:.2f}"


def _same_lines(same: SameAnswers) -> Iterable[str]:
    yield whole("Answers compared:", same.compared)
    yield whole(
        "Different from the answer alone:", same.differing if same.ratio is None else f"{same.differing} ({same.ratio:.1%})"
    )
    if same.unstable:
        text = f"{quantity(same.unstable, 'prompt')} got different answers alone, too: this server is not repeatable"
        yield from wrapped(text, TEXT_WIDTH, indent="  ")
    for example in same.examples:
        yield from wrapped(_example(example), TEXT_WIDTH, bullet="- ")


def _example(example: DifferingAnswer) -> str:
    chars = f"{example.alone_chars} and {example.loaded_chars} characters"
    ids = f"requests {example.alone_id[:8]} and {example.loaded_id[:8]}"
    if example.place is None:
        return f"{ids}: {chars} (--save-texts shows the texts)"
    return f"{ids}: from character {example.place}: {example.alone_text!r} alone, {example.loaded_text!r} under load"
