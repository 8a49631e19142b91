"""Checks of interruptions: single requests that make a mean, and a server that stood still."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from llama_load.analysis.figures.check import Check, limited
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.interruption import (
    Moved,
    moved_by,
    moved_without,
    upper_shift,
)
from llama_load.analysis.figures.known_prompts import with_known_prompt
from llama_load.analysis.figures.spoiled import E2EL, ITL, RATES, TPOT, TTFT, UPPER
from llama_load.analysis.statistics.outliers import LATEST_START, Outliers, outliers
from llama_load.analysis.statistics.second_group import Looked
from llama_load.analysis.statistics.standstill import Standstill, standstill
from llama_load.ground.units import NS_PER_MS, ns_to_s, quantity
from llama_load.run_folder.observed.records import Records

NAME = "outlier_shift"
# A pause of the client of this part of a standstill explains it (`client_pause_ms`).
CLIENTS_PART = 0.5
# Connections that take so many times as long as usual, and so much longer, met something else: a
# first packet was dropped (1 s, 3 s), a name was looked up again (5 s).
LATE_CONNECTION = 6.0
LEAST_LATE_MS = 100.0
# Of the limit: figures that move by so much are marked, where another one moves beyond it.
MARKED_PART = 0.5
# A single slow request among these met a server that was not ready.
FIRST_PART = 0.1


def stood_still(evidence: Evidence) -> Iterator[Check]:
    """Whether the server sent nothing for a time that is much longer than any other.

    Evidence: the gaps of all streams (see `analysis.statistics.standstill`, which has the rate of false
    alarms)."""
    records = evidence.sent
    found = standstill(records, with_known_prompt(records, evidence.cache.intended))
    if found is None or _was_the_client(evidence, found):
        return
    moved = moved_by(
        evidence.records,
        found.begin_ns,
        found.end_ns,
        percentiles=evidence.percentiles,
        stops_streams=True,
        is_open=evidence.gap_ms is not None,
    )
    since_s = ns_to_s(found.begin_ns - int(records.instants("started_mono_ns").min()))

    text = (
        f"the server stood still for {found.lasted_ms:.0f} ms from {since_s:.0f} s on: "
    )
    text += f"none of {quantity(found.streams, 'answer')} got a token, "
    text += f"{found.factor:.0f} x as long as ever else"
    yield _check_of_moved(
        moved, text, "look for what stopped the server then, and run again"
    )


def alone(evidence: Evidence, looked: Looked, name: str) -> Iterator[Check]:
    """Requests whose TTFT or TPOT (`name`) at equal work stand alone and make a part of a figure.

    Evidence: quotients at equal work (see `analysis.statistics.outliers`, which has the rate of false
    alarms)."""
    if looked.groups is not None:
        return
    records = evidence.sent
    is_first_token = name == TTFT
    since = "started_mono_ns"
    until = "first_token_mono_ns"
    if not is_first_token:
        since = until
        until = "last_token_mono_ns"
    begun_ns = records.optional_instants(since)[looked.rows]
    until_ns = records.optional_instants(until)[looked.rows]
    own_ms = records.numbers("ttft_ms" if is_first_token else "tpot_ms")[looked.rows]
    known = ~np.isnan(own_ms)
    found = outliers(
        own_ms[known],
        looked.quotients[known],
        begun_ns[known],
        until_ns[known],
        are_alike=is_first_token,
    )
    if found is None:
        return
    text = _sentence(found, own_ms[known], name)
    first_part = FIRST_PART if len(found.places) == 1 else LATEST_START
    is_first = bool((found.places < max(1, first_part * len(own_ms))).all())
    advice = "raise --warmup: the first requests met a server that was not ready"
    if is_first_token:
        rows = looked.rows[known][found.places]
        quotients = looked.quotients[known][found.places]
        moved = _moved_by_waits(evidence, records, rows, quotients)
        with_them = own_ms[known]
        without = np.delete(with_them, found.places)
        of_upper = upper_shift(with_them, without, evidence.percentiles)
        moved = moved.with_shifts(
            {TTFT: found.shift, UPPER: max(found.shift, of_upper)}
        )
        moved = moved.with_shifts(_shifts_by(records, rows))
    else:
        moved = Moved({TPOT: found.shift, UPPER: found.shift})
    yield _check_of_moved(moved, text, advice if is_first else None)


def _shifts_by(records: Records, rows: np.ndarray) -> dict[str, float]:
    """What these requests, whose first tokens were late, move beside TTFT: the server was slow for
    all that they were, or had nothing else to do at the end.

    TPOT of 20 ms with them, 15 without: 0.25. Four requests a second with them, five without: 0.2.
    """
    is_other = np.ones(len(records), dtype=bool)
    is_other[rows] = False
    slower = _mean_shift(records.numbers("tpot_ms"), is_other)
    shifts = {TPOT: slower, ITL: slower}
    if slower > MARKED_PART * LIMITS[NAME].limit:
        shifts[E2EL] = _mean_shift(records.numbers("e2el_ms"), is_other)

    with_them = _requests_per_s(records)
    without = _requests_per_s(records.where(is_other))
    shifts[RATES] = 1 - with_them / without
    return shifts


def _mean_shift(values: np.ndarray, is_other: np.ndarray) -> float:
    """How much lower the mean is without these requests: 0.2 is 20 %."""
    known = ~np.isnan(values)
    if not (known & is_other).any():
        return 0.0
    mean = float(values[known].mean())
    without = float(values[known & is_other].mean())
    return 1 - without / mean if mean > 0 else 0.0


def _requests_per_s(records: Records) -> float:
    """From the first start to the last end."""
    begin_ns = int(records.instants("started_mono_ns").min())
    end_ns = int(records.instants("ended_mono_ns").max())
    return len(records) / max(1e-9, ns_to_s(end_ns - begin_ns))


def connected_late(evidence: Evidence) -> Iterator[Check]:
    """Whether connections that took much longer than usual make a part of a figure.

    Evidence: the time until each connection was there, without the client's own delay. Counts: no
    error."""
    ok = evidence.records.ok()
    own_ms = np.nan_to_num(ok.numbers("own_delay_ms"))
    own_ms[ok.has("asked_mono_ns")] = 0.0
    connect_ms = ok.numbers("connect_ms") - own_ms
    known = connect_ms[connect_ms >= 0]
    if not len(known):
        return
    usual_ms = float(np.median(known))
    least_ms = max(LATE_CONNECTION * usual_ms, usual_ms + LEAST_LATE_MS)
    is_late = connect_ms > least_ms
    count = int(is_late.sum())
    if not count:
        return
    more_ms = np.where(is_late, connect_ms - usual_ms, 0.0)
    moved = moved_without(
        ok,
        more_ms,
        percentiles=evidence.percentiles,
        is_open=evidence.gap_ms is not None,
    )
    late_ms = float(np.median(connect_ms[is_late]))
    text = f"{count} of {quantity(len(known), 'connection')} took {late_ms:.0f} ms (median), "
    text += f"the others {usual_ms:.1f} ms: a packet was lost, or a name was looked up again"
    advice = "look for a full queue, a firewall or a name server on the way"
    yield _check_of_moved(moved, text, advice)


def _moved_by_waits(
    evidence: Evidence, records: Records, rows: np.ndarray, quotients: np.ndarray
) -> Moved:
    """What the slowest of these first tokens moves: its own wait, and those of the requests that
    waited beside it."""
    slowest = int(rows[np.argmax(quotients)])
    first_ns = int(records.optional_instants("first_token_mono_ns")[slowest])
    took_ms = float(records.numbers("ttft_ms")[slowest])
    more_ns = round((1 - 1 / float(quotients.max())) * took_ms * NS_PER_MS)
    return moved_by(
        evidence.records,
        first_ns - more_ns,
        first_ns,
        percentiles=evidence.percentiles,
        stops_streams=False,
        is_open=evidence.gap_ms is not None,
    )


def _check_of_moved(moved: Moved, text: str, advice: str | None) -> Check:
    """The check. Where a figure moves by more than its limit, it spoils all that move by a part of
    it: what others waited behind them is not in these shifts."""
    limit = LIMITS[NAME].limit
    spoils = moved.beyond(MARKED_PART * limit) if moved.largest > limit else ()
    if moved.shifts.get(E2EL, 0.0) > LIMITS[NAME].limit:
        text += f"; mean {E2EL} moves by {moved.shifts[E2EL]:.0%}"
    return limited(NAME, moved.largest, text, advice=advice, spoils=spoils)


def _sentence(found: Outliers, own_ms: np.ndarray, name: str) -> str:
    slowest_ms = float(own_ms[found.places].min())
    count = len(found.places)
    them = "it" if count == 1 else "them"

    text = f"{quantity(count, 'request')} of {len(own_ms)} "
    text += f"had a {name} of {slowest_ms:.0f} ms or more, "
    text += f"{found.factor:.2g} x as long as any other at equal work: "
    text += f"mean {name} is {found.mean:.1f} ms with {them}, "
    return text + f"{found.mean_without:.1f} ms without"


def _was_the_client(evidence: Evidence, found: Standstill) -> bool:
    """Whether the client itself paused for most of that time."""
    pauses_ms = [worker.longest_pause_ms or 0.0 for worker in evidence.health]
    return max(pauses_ms, default=0.0) >= CLIENTS_PART * found.lasted_ms
