"""Where the time went, as bars of HTML: one for the whole run, and one per stage or workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_load.analysis.figures.time_sums import TimeParts
from llama_load.analysis.reports.html.charts import Key
from llama_load.analysis.reports.stage_table import stage_name
from llama_load.analysis.reports.time_table import shared_decode_text
from llama_load.analysis.results.results import Results
from llama_load.ground.languages import Translate
from llama_load.outside.foreign_text import printable
from llama_load.tables.numbers import brief

# Roles of colours by the key of a part.
COLOURS = {
    "client_queue": "grey",
    "earlier_tries": "red",
    "connect": "axis",
    "slot_wait": "orange",
    "batch_wait": "pink",
    "image_prefill": "purple",
    "prefill": "teal",
    "decode_alone": "blue",
    "decode_shared": "pale",
    "network": "green",
    "unattributed": "line",
}
MOST_BARS = 12


def time_bars(results: Results, t: Translate) -> dict[str, Any] | None:
    """What the template shows; None where no request has an E2EL.

    `bars`: of each its name, the mean total of a request, and its parts (role of colour, percent,
    text for the mouse); `legend`: the parts that occur, with their mean and share in the whole run;
    `note`: a sentence.
    """
    total = results.time_parts.total
    if total is None:
        return None

    bars = []
    for name, times in _times_of_bars(results, total, t).items():
        mean_ms = brief(times.total_ms / times.requests)
        bars.append((name, f"{mean_ms} ms", _parts_of_bar(times, t)))

    legend = []
    for part, taken in total.taken():
        key = Key(COLOURS[part.key], t(part.name))
        legend.append((key, f"{brief(taken.mean_ms)} ms", f"{taken.share:.1%}"))

    return {"bars": bars, "legend": legend, "note": shared_decode_text(total.decode)}


def _times_of_bars(
    results: Results, total: TimeParts, t: Translate
) -> dict[str, TimeParts]:
    """The whole run, and its stages or workloads if there are several."""
    parts = results.time_parts
    by_stage = {}
    for stage in results.stages:
        by_stage[stage_name(stage)] = parts.by_stage.get(stage.name)

    groups: Mapping[str, TimeParts | None] = parts.by_workload
    if len(by_stage) > 1:
        groups = by_stage

    named = {t("all requests"): total}
    if len(groups) > 1:
        for name, times in list(groups.items())[:MOST_BARS]:
            if times is not None:
                named[printable(str(name))] = times

    return named


def _parts_of_bar(times: TimeParts, t: Translate) -> list[tuple[str, float, str]]:
    parts = []
    for part, taken in times.taken():
        text = f"{t(part.name)}: {brief(taken.mean_ms)} ms, {taken.share:.1%}"
        parts.append((COLOURS[part.key], 100 * taken.share, text))
    return parts
