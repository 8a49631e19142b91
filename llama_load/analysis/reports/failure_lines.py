"""How the requests ended, and why those failed that did, as lines of the block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llama_load.analysis.figures.failures import FailureClass
from llama_load.analysis.reports.layout import TEXT_WIDTH, headline, number, whole
from llama_load.analysis.results.results import Results
from llama_load.ground.languages import Translate
from llama_load.tables import LEFT, Column, Table
from llama_load.tables.text_width import wrapped


def end_lines(results: Results) -> Iterable[str]:
    """The lines under How Requests Ended, with a line and a hint per failure class."""
    figures = results.total
    answers = results.answers
    yield headline("How Requests Ended", "-")
    if figures.success_ratio is not None:
        yield number("Success rate (%):", 100 * figures.success_ratio)
        yield whole("Complete answers:", answers.complete)
    if answers.cut_by_context:
        yield whole("Answers cut by the context:", answers.cut_by_context)
    if answers.broken_off:
        yield whole("Failed after their first token:", answers.broken_off)
    if results.run.manifest.goodput and figures.good_requests is not None:
        yield whole(
            "Met every objective:", f"{figures.good_requests} of {figures.completed}"
        )
    if figures.retries:
        retried = f"{figures.retried_requests} requests, {figures.retries} times"
        yield whole("Sent again after 429 or 503:", retried)

    for failure in results.failures:
        yield whole(f"{failure.kind}:", failure.count)
        text = f"{failure_times(failure)}: {explanation(failure)}"
        yield from wrapped(text, TEXT_WIDTH, "  ")

    if figures.cancelled:
        yield whole("cancelled when the run was cut:", figures.cancelled)


def failure_table(failures: Sequence[FailureClass], t: Translate) -> Table | None:
    """A row per failure class, with what to change; None without failures."""
    if not failures:
        return None

    heads = [
        Column(t("Class"), LEFT),
        Column(t("Requests")),
        Column(t("When"), LEFT),
        Column(t("What to change"), LEFT, is_long=True),
        Column(t("Most frequent messages"), LEFT, is_long=True),
    ]
    rows = []
    for failure in failures:
        messages = "\n".join(failure.examples)
        when = failure_times(failure)
        rows.append(
            [failure.kind, str(failure.count), when, explanation(failure), messages]
        )

    return Table(t("Failures"), heads, rows)


def failure_times(failure: FailureClass) -> str:
    """`at 3.2 s`, `3.2 s to 17.9 s`: since the first request began."""
    first = f"{failure.first_s:.1f} s"
    last = f"{failure.last_s:.1f} s"
    if first == last:
        return f"at {first}"
    return f"{first} to {last}"


def explanation(failure: FailureClass) -> str:
    """Its meaning and its hint: `context exceeded; the longest needs …`."""
    if not failure.hint:
        return failure.meaning
    return f"{failure.meaning}; {failure.hint}"
