"""Where the time of a set of requests went: sums of `analysis.figures.time_parts`, and the gaps of streams
while others are prefilled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llama_load.analysis.figures.time_parts import KEYS, PARTS, Part, RequestParts


@dataclass(frozen=True, slots=True)
class PartSum:
    """A part over a set of requests. Where it is not known, its time is in `unattributed`."""

    sum_ms: float
    share: float  # of all their time, 0 to 1
    mean_ms: float  # over all requests
    requests: int  # for which it is known


@dataclass(frozen=True, slots=True)
class SharedDecode:
    """Gaps between tokens, and those during which other requests of the same server were prefilled.

    56 of 1016 gaps with a mean of 1158 ms, the others with 44 ms: `gap_share` 0.055, `time_share`
    0.61.
    """

    gaps: int
    shared_gaps: int
    gap_share: float
    time_share: float
    mean_shared_gap_ms: float | None  # None without such a gap, as the next
    mean_other_gap_ms: float | None
    # the server does not show when a prompt begins: others count as prefilled from sending on
    includes_queueing: bool


@dataclass(frozen=True, slots=True)
class TimeParts:
    """The parts of a set of requests."""

    requests: int
    total_ms: float
    # by key of `PARTS`, which add up to `total_ms`; None: known for no request
    parts: dict[str, PartSum | None]
    decode: SharedDecode | None  # None where nothing was streamed
    # mean `network` and `unattributed` of a request whose other parts are all known, and of its wait
    # for a slot what the server's own times do not explain
    unexplained_ms: float | None = None
    # mean total of these requests; None without any
    explained_of_ms: float | None = None

    def taken(self) -> list[tuple[Part, PartSum]]:
        """The parts that took time, in the order of `PARTS`."""
        known = ((part, self.parts[part.key]) for part in PARTS)
        return [
            (part, times)
            for part, times in known
            if times is not None and times.sum_ms > 0
        ]


def sum_up(parts: RequestParts) -> TimeParts | None:
    """The sums over all these requests that have an E2EL; None if none has."""
    counted = parts.where(~np.isnan(parts["total_ms"]))
    count = len(counted)
    total_ms = float(counted["total_ms"].sum())
    if not count:
        return None
    sums: dict[str, PartSum | None] = {}
    for key in KEYS:
        known = ~np.isnan(counted[key])
        sum_ms = float(counted[key][known].sum())
        share = sum_ms / total_ms if total_ms > 0 else 0.0
        sums[key] = (
            PartSum(sum_ms, share, sum_ms / count, int(known.sum()))
            if known.any()
            else None
        )
    known = (
        ~np.isnan(counted["network"])
        & ~np.isnan(counted["slot_wait"])
        & ~np.isnan(counted["prefill"])
    )
    if not known.any():
        return TimeParts(count, total_ms, sums, _shared_decode(counted))
    rest = float((counted["network"] + counted["unattributed"])[known].mean())
    rest += max(0.0, float(counted["queue_excess"][known].mean()))
    return TimeParts(
        count,
        total_ms,
        sums,
        _shared_decode(counted),
        rest,
        float(counted["total_ms"][known].mean()),
    )


def _shared_decode(counted: RequestParts) -> SharedDecode | None:
    gaps = int(counted["gaps"].sum())
    shared = int(counted["shared_gaps"].sum())
    gap_ms = float(counted["gap_ms"].sum())
    shared_ms = float(counted["shared_gap_ms"].sum())
    if not gaps:
        return None
    return SharedDecode(
        gaps=gaps,
        shared_gaps=shared,
        gap_share=shared / gaps,
        time_share=shared_ms / gap_ms if gap_ms > 0 else 0.0,
        mean_shared_gap_ms=shared_ms / shared if shared else None,
        mean_other_gap_ms=(gap_ms - shared_ms) / (gaps - shared)
        if gaps > shared
        else None,
        includes_queueing=bool(counted["from_sent"].any()),
    )
