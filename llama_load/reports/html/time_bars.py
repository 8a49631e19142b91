"""Where the time went, as bars of HTML: one for the whole run, and one for each stage or workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llama_load.analysis.results import Results
from llama_load.foreign_text import printable
from llama_load.metrics.time_parts import PARTS
from llama_load.metrics.time_sums import TimeParts
from llama_load.reports.html.charts import Key
from llama_load.reports.stage_table import stage_name
from llama_load.reports.time_table import LEAST_SHARED, shared_decode_text
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


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: its name, mean total per request, and its parts as (role of colour, percent, text for the mouse)."""

    name: str
    total: str
    parts: list[tuple[str, float, str]]


@dataclass(frozen=True, slots=True)
class TimeBars:
    """All bars, the legend of the parts that occur with their mean and share in the whole run, and a sentence."""

    bars: list[Bar]
    keys: list[tuple[Key, str, str]]
    note: str


def time_bars(results: Results, t: Translate) -> TimeBars | None:
    """The bars of a run; None where no request has an E2EL."""
    parts = results.time_parts
    total = parts.total
    if total is None:
        return None
    by_stage = {stage_name(stage): parts.by_stage.get(stage.name) for stage in results.stages}
    groups: Mapping[str, TimeParts | None] = by_stage if len(by_stage) > 1 else parts.by_workload
    named = {t("all requests"): total}
    if len(groups) > 1:
        named |= {printable(str(name)): times for name, times in list(groups.items())[:MOST_BARS] if times is not None}
    bars = [Bar(name, f"{brief(times.total_ms / times.requests)} ms", _parts(times, t)) for name, times in named.items()]
    keys = [
        (Key(COLOURS[part.key], t(part.name)), f"{brief(part_times.mean_ms)} ms", f"{part_times.share:.1%}")
        for part in PARTS
        if (part_times := total.parts[part.key]) is not None and part_times.sum_ms > 0
    ]
    shared = total.decode
    note = shared_decode_text(shared) if shared is not None and shared.shared_gaps and shared.time_share >= LEAST_SHARED else ""
    return TimeBars(bars, keys, note)


def _parts(times: TimeParts, t: Translate) -> list[tuple[str, float, str]]:
    known = [(part, part_times) for part in PARTS if (part_times := times.parts[part.key]) is not None and part_times.sum_ms > 0]
    return [
        (COLOURS[part.key], 100 * part_times.share, f"{t(part.name)}: {brief(part_times.mean_ms)} ms, {part_times.share:.1%}")
        for part, part_times in known
    ]
