"""Where the time went, as lines of the block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llama_load.analysis.figures.client_server import SidePair
from llama_load.analysis.figures.time_sums import SharedDecode
from llama_load.analysis.reports.layout import TEXT_WIDTH, headline
from llama_load.analysis.results.time_part_sums import RunTimeParts
from llama_load.ground.languages import Translate
from llama_load.ground.units import quantity
from llama_load.tables import (
    LEFT,
    Cell,
    Column,
    Row,
    Table,
    columns,
    figure,
    text_lines,
)
from llama_load.tables.numbers import percent, whole_or_fixed
from llama_load.tables.text_width import wrapped

# Below this share of the gaps' time, decode while others are prefilled is not worth a sentence.
LEAST_SHARED = 0.01


def time_table(parts: RunTimeParts, t: Translate) -> Table | None:
    """A row per part that took time: mean per request and share of all time; None without any."""
    taken = parts.total.taken() if parts.total is not None else []
    if not taken:
        return None

    mean = Column(t("Mean (ms)"), lines=("mean (ms)",))
    heads = [Column("", LEFT), mean, Column(t("share"))]
    rows: list[Row] = []
    for part, times in taken:
        share = Cell(percent(times.share), times.share)
        rows.append([t(part.name), figure(times.mean_ms), share])

    return Table(t("Where the time went"), heads, rows)


def time_lines(parts: RunTimeParts) -> Iterable[str]:
    """The section of the block."""
    table = time_table(parts, str)
    if parts.total is None or table is None:
        return

    yield headline("Where the Time Went", "-")
    yield from text_lines(table)

    requests = quantity(parts.total.requests, "request")
    yield f"(mean of {requests}; docs/where-the-time-went.md has the formulas)"
    if sentence := shared_decode_text(parts.total.decode):
        yield from wrapped(sentence, TEXT_WIDTH, indent="  ")


def side_lines(pairs: Sequence[SidePair]) -> Iterable[str]:
    """A row per figure that client and server have, with the difference."""
    if not pairs:
        return

    yield headline("Client and Server", "-")

    rows = []
    for pair in pairs:
        name = f"{pair.name}*" if pair.coarse else pair.name
        client = whole_or_fixed(pair.client)
        server = whole_or_fixed(pair.server)
        rows.append((name, client, server, whole_or_fixed(pair.difference)))

    yield from text_lines(
        Table("", columns("", "client", "server", "difference"), rows)
    )

    if any(pair.coarse for pair in pairs):
        yield "(times are means; * from the server's counters, which include all clients)"


def shared_decode_text(decode: SharedDecode | None) -> str:
    """How much of the decode time was beside the prefill of other prompts.

    `56 of 1016 token gaps (5.5 %) fell into the prefill of other prompts and took 60.6 % of the
    decode time: …`; empty where it is too little to matter.
    """
    if decode is None or not decode.shared_gaps or decode.time_share < LEAST_SHARED:
        return ""

    while_what = "the wait or prefill" if decode.includes_queueing else "the prefill"
    gaps = f"{decode.shared_gaps} of {decode.gaps} token gaps"
    text = (
        f"{gaps} ({decode.gap_share:.1%}) "
        f"fell into {while_what} of other prompts and "
        f"took {decode.time_share:.1%} of the decode time: "
        f"mean gap {decode.mean_shared_gap_ms or 0:.1f} ms"
    )
    if decode.mean_other_gap_ms is not None:
        text += f", otherwise {decode.mean_other_gap_ms:.1f} ms"

    return text
