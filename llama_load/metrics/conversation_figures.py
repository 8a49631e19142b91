"""Figures by conversation: how long one takes, how many ended or had failures, and how many are alive at once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.observed.record import CANCELLED
from llama_load.observed.records import Records
from llama_load.units import NS_PER_S

PERCENTILES = (50.0, 90.0, 99.0)
Instants = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ConversationFigures:
    """`ended` of `count` conversations were sent to their last turn, `failed` had a failed request. A conversation is alive from
    its first start to its last end, waits included: `peak` at once, `mean_alive` on average over the time of all of them, with
    `mean_in_flight` requests; `waiting_ratio` is the share of this time in which a conversation has no request in flight.

    `duration_s` and `without_waits_s` are percentiles (see `survival_percentile`) of the time alive, and of the part of it with a
    request in flight. Turns, tokens and the cached share are of the conversations that ended; None: none did, or not reported."""

    count: int
    ended: int
    failed: int
    peak: int
    mean_alive: float | None
    mean_in_flight: float | None
    waiting_ratio: float | None
    turns: float | None
    prompt_tokens: float | None
    output_tokens: float | None
    cached_ratio: float | None
    duration_s: dict[str, float | None]
    without_waits_s: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class AliveFigures:
    """How many conversations are alive, see `ConversationFigures`."""

    peak: int
    mean: float | None
    mean_in_flight: float | None
    waiting_ratio: float | None


def alive_figures(begun_ns: Instants, over_ns: Instants, busy_ns: Instants, request_ns: int) -> AliveFigures:
    """How many conversations are alive, from when each begins and is over, how long it has a request in flight, and the time of
    all requests together.

    mean = sum(over - begun) / (last over - first begun), requests likewise; waiting = 1 - sum(busy) / sum(over - begun).
    Two conversations from 0 to 10 s and from 5 to 10 s, with a request in flight for 3 s each, one at a time: mean 1.5, peak 2,
    0.6 requests in flight, waiting 0.6.
    """
    span_ns, alive_ns = int(over_ns.max() - begun_ns.min()), int((over_ns - begun_ns).sum())
    return AliveFigures(
        peak=peak_alive(begun_ns, over_ns),
        mean=alive_ns / span_ns if span_ns else None,
        mean_in_flight=request_ns / span_ns if span_ns else None,
        waiting_ratio=1 - int(busy_ns.sum()) / alive_ns if alive_ns else None,
    )


def peak_alive(begun_ns: Instants, over_ns: Instants) -> int:
    """The most intervals that overlap; one that ends at the instant of another's start does not overlap it."""
    instants = np.concatenate([begun_ns, over_ns])
    steps = np.concatenate([np.ones(len(begun_ns)), -np.ones(len(over_ns))])
    return int(np.cumsum(steps[np.lexsort((steps, instants))]).max())


def peak_begun(measured: Records) -> int:
    """The most conversations alive at once, a single request counting as one: how many users of a closed loop had work."""
    started_ns, ended_ns = measured.instants("started_mono_ns"), measured.instants("ended_mono_ns")
    if not len(measured):
        return 0
    of_several = _conversations(measured)
    alone = np.ones(len(measured), dtype=np.bool_)
    for places in of_several:
        alone[places] = False
    begun = [started_ns[alone], np.array([started_ns[places].min() for places in of_several], dtype=np.int64)]
    over = [ended_ns[alone], np.array([ended_ns[places].max() for places in of_several], dtype=np.int64)]
    return peak_alive(np.concatenate(begun), np.concatenate(over))


def survival_percentile(lengths: NDArray[np.float64], ended: NDArray[np.bool_], p: float) -> float | None:
    """A percentile of lengths of which some are cut off, by Kaplan and Meier; None where it lies beyond what was observed.

    1, 2, 3, 4 s, the third one cut off: a quarter ends at 1 s, half at 2 s, all at 4 s. Without those cut off, percentiles would be
    too small, because long conversations are cut off most often.
    """
    alive = 1.0
    order = np.lexsort((~ended, lengths))  # of equal lengths the ended ones first
    for place, index in enumerate(order):
        if ended[index]:
            alive *= 1 - 1 / (len(order) - place)
            if 1 - alive >= p / 100 - 1e-9:
                return float(lengths[index])
    return None


def conversation_figures(measured: Records, cut_ns: int | None = None) -> ConversationFigures | None:
    """The figures of the conversations of several turns; None without any. `cut_ns`: when the run was cut off; conversations with
    turns left are alive until then."""
    chats = _conversations(measured)
    if not chats:
        return None
    started_ns, ended_ns = measured.instants("started_mono_ns"), measured.instants("ended_mono_ns")
    planned, is_cut, is_failed = measured.numbers("turns"), measured.equals("status", CANCELLED), measured.is_failed()
    ended = np.array([(~is_cut[places]).sum() >= planned[places[0]] for places in chats], dtype=np.bool_)
    begun = np.array([started_ns[places].min() for places in chats], dtype=np.int64)
    last = np.array([ended_ns[places].max() for places in chats], dtype=np.int64)
    over = last if cut_ns is None else np.where(ended, last, np.maximum(last, cut_ns))
    busy = np.array([_union_ns(started_ns[places], ended_ns[places]) for places in chats], dtype=np.int64)
    every = np.concatenate(chats)
    alive = alive_figures(begun, over, busy, int((ended_ns - started_ns)[every].sum()))
    whole = [places for places, is_over in zip(chats, ended, strict=True) if is_over]
    turns, prompt, output, cached = (
        _mean(values, whole)
        for values in (
            np.ones(len(measured)),
            *(measured.numbers(name) for name in ("prompt_tokens", "output_tokens", "cached_tokens")),
        )
    )
    return ConversationFigures(
        count=len(chats),
        ended=int(ended.sum()),
        failed=sum(bool(is_failed[places].any()) for places in chats),
        peak=alive.peak,
        mean_alive=alive.mean,
        mean_in_flight=alive.mean_in_flight,
        waiting_ratio=alive.waiting_ratio,
        turns=turns,
        prompt_tokens=prompt,
        output_tokens=output,
        cached_ratio=None if not prompt or cached is None else cached / prompt,
        duration_s={f"p{p:g}": survival_percentile((over - begun) / NS_PER_S, ended, p) for p in PERCENTILES},
        without_waits_s={f"p{p:g}": survival_percentile(busy / NS_PER_S, ended, p) for p in PERCENTILES},
    )


def _conversations(measured: Records) -> list[NDArray[np.int64]]:
    """The rows of every conversation of several turns."""
    of_several = measured.numbers("turns") > 1
    places = np.flatnonzero(of_several)
    return [places[rows] for rows in rows_by_conversation(measured.where(of_several))]


def rows_by_conversation(records: Records) -> list[NDArray[np.int64]]:
    """The rows of every conversation, ascending; requests outside of conversations are in none."""
    rows: dict[tuple[str, int], list[int]] = defaultdict(list)
    names = zip(records.strings("workload"), records.strings("conversation_start"), strict=True)
    for row, (workload, start) in enumerate(names):
        if start is not None:
            rows[workload, start].append(row)
    return [np.array(places) for places in rows.values()]


def _union_ns(started_ns: Instants, ended_ns: Instants) -> int:
    """The time with at least one request in flight: 0 to 4 s and 3 to 5 s are 5 s."""
    order = np.argsort(started_ns, kind="stable")
    starts, ends = started_ns[order], np.maximum.accumulate(ended_ns[order])
    return int((ends - np.maximum(starts, np.concatenate([starts[:1], ends[:-1]]))).sum())


def _mean(values: NDArray[np.float64], conversations: list[NDArray[np.int64]]) -> float | None:
    """The mean sum of a conversation; None without any, or where a value is unknown."""
    if not conversations:
        return None
    total = float(values[np.concatenate(conversations)].sum())
    return None if np.isnan(total) else total / len(conversations)
