"""A run against the last one with the same label, in one line."""

from __future__ import annotations

from llama_load.analysis.results import Results
from llama_load.comparison.compare import ONE_RUN, Comparison, compare
from llama_load.comparison.compared_metrics import metric_of
from llama_load.comparison.run_folder import folder_run
from llama_load.comparison.side import Side
from llama_load.errors import LlamaLoadError
from llama_load.run_folder import last_with_label

HEADLINE = ("mean_ttft_ms", "mean_tpot_ms", "output_throughput")
MOST_NAMED = 3


def against_last(results: Results) -> str | None:
    """What differs from the last run with this run's label: set-up, then TTFT, TPOT and throughput. None if there is no such run,
    or one of the two cannot be read."""
    label, folder = results.run.manifest.label, results.run.path
    if label is None or results.run.unwritten is not None:
        return None
    try:
        last = last_with_label(folder.parent, label, (folder, results.run.manifest.date))
        if last is None:
            return None
        comparison = compare([Side("last", [folder_run(last[0])]), Side("this", [folder_run(folder)])])
    except (LlamaLoadError, OSError):
        return None
    text = f'against last "{label}" ({last[0].name}): {_setup(comparison)}, {_figures(comparison)}'
    return f"{text}; 'llama-load compare' says why they are not comparable" if comparison.reasons else text


def _setup(comparison: Comparison) -> str:
    names = [difference.name for difference in comparison.differences]
    if not names:
        return "set-up same"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"set-up differs in {', '.join(names[:MOST_NAMED])}{more}"


def _figures(comparison: Comparison) -> str:
    changes = [
        (metric.name, change)
        for key in HEADLINE
        if (change := comparison.changes.get((key, 1))) is not None and change.ratio and (metric := metric_of(key)) is not None
    ]
    if not changes:
        return "nothing to compare"
    text = ", ".join(f"{name} {100 * (change.ratio or 1) - 100:+.0f} %" for name, change in changes)
    return f"{text} (one run a side: not proven)" if any(change.outcome == ONE_RUN for _, change in changes) else text
