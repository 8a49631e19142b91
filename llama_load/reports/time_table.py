"""Where the time went, as lines of the block and in summary.json."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from llama_load.analysis.time_part_sums import RunTimeParts
from llama_load.metrics.client_server import SidePair
from llama_load.metrics.time_parts import PARTS
from llama_load.metrics.time_sums import SharedDecode, TimeParts
from llama_load.reports.layout import TEXT_WIDTH, headline, in_columns, wrapped
from llama_load.units import quantity

# Below this share of the gaps' time, decode while others are prefilled is not worth a sentence.
LEAST_SHARED = 0.01


def time_rows(parts: RunTimeParts) -> list[tuple[str, float, float]]:
    """The parts that took time: name, mean per request in ms, share of all time (0 to 1)."""
    found = {} if parts.total is None else parts.total.parts
    known = [(part.name, each) for part in PARTS if (each := found.get(part.key)) is not None and each.sum_ms > 0]
    return [(name, each.mean_ms, each.share) for name, each in known]


def time_lines(parts: RunTimeParts) -> Iterable[str]:
    """A row per part that took time: mean per request and share of all time."""
    if parts.total is None:
        return
    yield headline("Where the Time Went", "-")
    rows = [("", "mean (ms)", "share"), *((name, f"{mean_ms:.2f}", f"{share:.1%}") for name, mean_ms, share in time_rows(parts))]
    yield from in_columns(rows, gap="  ")
    yield f"(mean of {quantity(parts.total.requests, 'request')}; docs/where-the-time-went.md has the formulas)"
    if (decode := parts.total.decode) is not None and decode.shared_gaps and decode.time_share >= LEAST_SHARED:
        yield from wrapped(shared_decode_text(decode), TEXT_WIDTH, indent="  ")


def side_lines(pairs: Sequence[SidePair]) -> Iterable[str]:
    """A row per figure that client and server have, with the difference."""
    if not pairs:
        return
    yield headline("Client and Server", "-")
    rows: list[tuple[str, ...]] = [("", "client", "server", "difference")]
    rows += [
        (f"{pair.name}{'*' if pair.coarse else ''}", *(_cell(value) for value in (pair.client, pair.server, pair.difference)))
        for pair in pairs
    ]
    yield from in_columns(rows, gap="  ")
    if any(pair.coarse for pair in pairs):
        yield "(times are means; * from the server's counters, which include all clients)"


def _cell(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.0f}" if float(value).is_integer() else f"{value:z.2f}"


def shared_decode_text(decode: SharedDecode) -> str:
    """`56 of 1016 token gaps (5.5 %) fell into the prefill of other prompts and took 60.6 % of the decode time: …`."""
    while_what = "the wait or prefill" if decode.includes_queueing else "the prefill"
    text = f"{decode.shared_gaps} of {decode.gaps} token gaps ({decode.gap_share:.1%}) fell into {while_what} of other prompts and "
    text += f"took {decode.time_share:.1%} of the decode time: mean gap {decode.mean_shared_gap_ms or 0:.1f} ms"
    return text if decode.mean_other_gap_ms is None else f"{text}, otherwise {decode.mean_other_gap_ms:.1f} ms"


def time_parts_json(parts: RunTimeParts) -> dict[str, Any]:
    """The sums of the run, of each workload and of each stage."""

    def plain(found: TimeParts | None) -> dict[str, Any] | None:
        return None if found is None else asdict(found)

    return {
        "total": plain(parts.total),
        "by_workload": {name: plain(found) for name, found in parts.by_workload.items()},
        "by_stage": {name: plain(found) for name, found in parts.by_stage.items()},
    }
