"""A run against the last one with the same label, in one line."""

from __future__ import annotations

import re

from llama_load.analysis.comparison.compare import ONE_RUN, Comparison, compare
from llama_load.analysis.comparison.compared_metrics import metric_of
from llama_load.analysis.comparison.run_folder import folder_run
from llama_load.analysis.comparison.side import Side
from llama_load.analysis.results.results import Results
from llama_load.ground.errors import LlamaLoadError
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import last_with_label

HEADLINE = ("mean_ttft_ms", "mean_tpot_ms", "output_throughput")
MOST_NAMED = 3
# How the sentence begins, before the label.
AGAINST = "against last "
_NAMES = "|".join(metric.name for metric in map(metric_of, HEADLINE) if metric)
_CHANGE = rf"(?:{_NAMES}) [+-]\d{{1,9}} %"
# What it says behind the label.
_REST = re.compile(
    r" \([^<>()/]{1,255}\): set-up (?:same|differs in [\w ,./()-]{1,400}), "
    rf"(?:nothing to compare|{_CHANGE}(?:, {_CHANGE}){{0,2}}"
    r"(?: \(one run a side: not proven\))?)"
    r"(?:; 'llama-load compare' says why they are not comparable)?"
)


def against_last(results: Results) -> str | None:
    """What differs from the last run with this run's label: set-up, TTFT, TPOT and throughput.

    None if there is no such run, or one of the two cannot be read.
    """
    label = results.run.manifest.label
    folder = results.run.path
    if label is None:
        return None

    try:
        last = last_with_label(
            folder.parent, label, (folder, results.run.manifest.date)
        )
        if last is None:
            return None

        before = Side("last", [folder_run(last[0])])
        comparison = compare([before, Side("this", [folder_run(folder)])])
    except (LlamaLoadError, OSError):
        return None

    name = last[0].name
    setup = _setup(comparison)
    changes = _changes(comparison)
    text = f'{AGAINST}"{label}" ({name}): {setup}, {changes}'
    if comparison.reasons:
        text += "; 'llama-load compare' says why they are not comparable"

    return text


def is_against_last(text: str, label: str) -> bool:
    """Whether this is such a sentence about runs with this label, and nothing else."""
    beginning = printable(f'{AGAINST}"{label}"', None)
    if not text.startswith(beginning):
        return False
    return _REST.fullmatch(text.removeprefix(beginning)) is not None


def _setup(comparison: Comparison) -> str:
    names = [difference.name for difference in comparison.differences]
    if not names:
        return "set-up same"

    text = f"set-up differs in {', '.join(names[:MOST_NAMED])}"
    if len(names) > MOST_NAMED:
        text += f" and {len(names) - MOST_NAMED} more"

    return text


def _changes(comparison: Comparison) -> str:
    """How far the figures of `HEADLINE` changed."""
    texts = []
    is_single_run = False
    for key in HEADLINE:
        change = comparison.changes.get((key, 1))
        metric = metric_of(key)
        if change is None or not change.ratio or metric is None:
            continue

        texts.append(f"{metric.name} {100 * change.ratio - 100:+.0f} %")
        is_single_run = is_single_run or change.outcome == ONE_RUN

    if not texts:
        return "nothing to compare"

    text = ", ".join(texts)
    if is_single_run:
        text += " (one run a side: not proven)"

    return text
