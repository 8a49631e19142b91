"""A run as the page shows it, from the files of its folder: its report.html, or the block where it
has none."""

from __future__ import annotations

from dataclasses import dataclass

from llama_load.analysis.results.run_summary import SUMMARY, RunSummary, summary_of
from llama_load.outside.foreign_text import printable
from llama_load.page.run_files import RunFiles
from llama_load.run_folder import MANIFEST
from llama_load.run_folder.vocabulary.verdict_words import (
    AS_FAR_AS_SEEN,
    FAILED,
    INCOMPLETE,
    VALID,
)

# A style for each kind of verdict.
GOOD = "good"
BAD = "bad"
DOUBTFUL = "doubtful"
NONE = "none"
HEADLINES = (
    *(
        "completed",
        "failed",
        "tok_per_s_per_user",
        "request_throughput",
        "output_throughput",
        "median_ttft_ms",
        "p99_ttft_ms",
    ),
    *("median_tpot_ms", "median_itl_ms", "p99_itl_ms", "median_e2el_ms"),
)


@dataclass(slots=True)
class RunView:
    """A run's page. `error` says why there are no results."""

    name: str
    title: str
    words: list[str]
    style: str
    headline: str
    error: str
    block: str
    files: list[str]


def style_of(words: list[str]) -> str:
    """The style of a verdict's words, the gravest first. A run that is valid as far as seen has
    none."""
    if (
        not words
        or words[0] in ("n/a", "", AS_FAR_AS_SEEN)
        or words[0].startswith(("broken", "still"))
    ):
        return NONE

    return (
        GOOD
        if words[0] == VALID
        else BAD
        if words[0] in (INCOMPLETE, FAILED)
        else DOUBTFUL
    )


def summary_in(files: RunFiles, name: str) -> RunSummary | None:
    """The summary of a run; None if it has none."""
    summary = files.json(name, SUMMARY)
    return None if summary is None else summary_of(summary)


def headline_figures(files: RunFiles, name: str) -> dict[str, float]:
    """The headline figures of a run by their keys in summary.json, without those that are
    uncertain."""
    summary = summary_in(files, name)
    return {} if summary is None else summary.numbers(*HEADLINES)


def run_view(files: RunFiles, name: str) -> RunView:
    """The page of a run."""
    manifest = files.json(name, MANIFEST) or {}
    summary = summary_in(files, name)
    words = [] if summary is None else summary.shown.split(", ")
    error = (
        "There are no results: "
        "it is still running, or it was killed (llama-load report finishes it)."
    )

    return RunView(
        name=printable(name),
        title=printable(str(manifest.get("label") or manifest.get("workload") or name)),
        words=words,
        style=style_of(words),
        headline="" if summary is None else summary.headline,
        error=error if summary is None else "",
        block=files.text(name, "summary.txt"),
        files=files.present(name),
    )
