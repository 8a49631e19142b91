"""Where the time went, as bars of HTML: one for the whole run, and one for each stage or workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_load.analysis.results import Results
from llama_load.foreign_text import printable
from llama_load.metrics.time_sums import TimeParts
from llama_load.reports.html.charts import Key
from llama_load.reports.stage_table import stage_name
from llama_load.reports.time_table import shared_decode_text
from llama_load.reports.translations import Translate
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
    """What the template shows; None where no request has an E2EL. `bars`: of each its name, the mean total of a request, and its
    parts (role of colour, percent, text for the mouse); `legend`: the parts that occur, with their mean and share in the whole run;
    `note`: a sentence."""
    parts = results.time_parts
    if (total := parts.total) is None:
        return None
    by_stage = {stage_name(stage): parts.by_stage.get(stage.name) for stage in results.stages}
    groups: Mapping[str, TimeParts | None] = by_stage if len(by_stage) > 1 else parts.by_workload
    named = {t("all requests"): total}
    if len(groups) > 1:
        named |= {printable(str(name)): times for name, times in list(groups.items())[:MOST_BARS] if times is not None}
    return {
        "bars": [(name, f"{brief(times.total_ms / times.requests)} ms", _parts(times, t)) for name, times in named.items()],
        "legend": [
            (Key(COLOURS[part.key], t(part.name)), f"{brief(of_part.mean_ms)} ms", f"{of_part.share:.1%}")
            for part, of_part in total.taken()
        ],
        "note": shared_decode_text(total.decode),
    }


def _parts(times: TimeParts, t: Translate) -> list[tuple[str, float, str]]:
    return [
        (COLOURS[part.key], 100 * of_part.share, f"{t(part.name)}: {brief(of_part.mean_ms)} ms, {of_part.share:.1%}")
        for part, of_part in times.taken()
    ]
