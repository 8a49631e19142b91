"""Figures by conversation: how long one takes, how many ended or had failures, and how many are
alive at once."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.figures.rates import most_at_once
from llama_load.analysis.statistics.censoring import ProductLimit
from llama_load.analysis.statistics.statistics import total
from llama_load.ground.units import NS_PER_S
from llama_load.run_folder.observed.record import CANCELLED
from llama_load.run_folder.observed.records import ConversationKey, Records

PERCENTILES = (50.0, 90.0, 99.0)
Instants = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ConversationFigures:
    """Figures of conversations, alive from their first start to their last end, waits included.
    None: unknown, or none ended.

    Two conversations from 0 to 10 s and from 5 to 10 s, with a request in flight for 3 s each, one
    at a time: mean 1.5, peak 2, 0.6 requests in flight, waiting 0.6.
    """

    count: int
    ended: int  # sent to their last turn
    failed: int  # with a failed request
    peak: int  # alive at once
    mean_alive: float | None  # over the time of all of them
    mean_in_flight: float | None  # requests
    # share of this time in which a conversation has no request in flight
    waiting_ratio: float | None
    turns: float | None  # of a conversation that ended, as tokens and cached share
    prompt_tokens: float | None
    output_tokens: float | None
    cached_ratio: float | None
    duration_s: dict[
        str, float | None
    ]  # percentiles of the time alive, see `_percentiles`
    without_waits_s: dict[
        str, float | None
    ]  # of the part of it with a request in flight


def peak_begun(measured: Records) -> int:
    """The most conversations alive at once, a single request counting as one: how many users of a
    closed loop had work."""
    started_ns = measured.instants("started_mono_ns")
    ended_ns = measured.instants("ended_mono_ns")
    if not len(measured):
        return 0
    of_several = _conversations(measured)
    alone = np.ones(len(measured), dtype=np.bool_)
    for places in of_several:
        alone[places] = False
    begun = [
        started_ns[alone],
        np.array([started_ns[places].min() for places in of_several], dtype=np.int64),
    ]
    over = [
        ended_ns[alone],
        np.array([ended_ns[places].max() for places in of_several], dtype=np.int64),
    ]
    return most_at_once(np.concatenate(begun), np.concatenate(over))


def conversation_figures(
    measured: Records, cut_ns: int | None = None
) -> ConversationFigures | None:
    """The figures of the conversations of several turns; None without any. `cut_ns`: when the run
    was cut off; conversations with turns left are alive until then."""
    chats = _conversations(measured)
    if not chats:
        return None
    started_ns = measured.instants("started_mono_ns")
    ended_ns = measured.instants("ended_mono_ns")
    planned = measured.numbers("turns")
    is_cut = measured.equals("status", CANCELLED)
    is_failed = measured.is_failed()
    ended = np.array(
        [(~is_cut[places]).sum() >= planned[places[0]] for places in chats],
        dtype=np.bool_,
    )
    begun = np.array([started_ns[places].min() for places in chats], dtype=np.int64)
    last = np.array([ended_ns[places].max() for places in chats], dtype=np.int64)
    over = last if cut_ns is None else np.where(ended, last, np.maximum(last, cut_ns))
    busy = np.array(
        [_union_ns(started_ns[places], ended_ns[places]) for places in chats],
        dtype=np.int64,
    )
    request_ns = int((ended_ns - started_ns)[np.concatenate(chats)].sum())
    span_ns = int(over.max() - begun.min())
    alive_ns = int((over - begun).sum())
    whole = [places for places, is_over in zip(chats, ended, strict=True) if is_over]
    turns = _mean_sum(np.ones(len(measured)), whole)
    prompt = _mean_sum(measured.numbers("prompt_tokens"), whole)
    output = _mean_sum(measured.numbers("output_tokens"), whole)
    cached = _mean_sum(measured.numbers("cached_tokens"), whole)
    return ConversationFigures(
        count=len(chats),
        ended=int(ended.sum()),
        failed=sum(bool(is_failed[places].any()) for places in chats),
        peak=most_at_once(begun, over),
        mean_alive=alive_ns / span_ns if span_ns else None,
        mean_in_flight=request_ns / span_ns if span_ns else None,
        waiting_ratio=1 - int(busy.sum()) / alive_ns if alive_ns else None,
        turns=turns,
        prompt_tokens=prompt,
        output_tokens=output,
        cached_ratio=None if not prompt or cached is None else cached / prompt,
        duration_s=_percentiles((over - begun) / NS_PER_S, ended),
        without_waits_s=_percentiles(busy / NS_PER_S, ended),
    )


def _percentiles(
    lengths: NDArray[np.float64], ended: NDArray[np.bool_]
) -> dict[str, float | None]:
    """Percentiles of lengths of which some are cut off, by Kaplan and Meier; None where one lies
    beyond what was observed. Without those cut off they would be too small, because long
    conversations are cut off most often."""
    estimate = ProductLimit(lengths[ended], lengths[~ended])
    return {
        f"p{p:g}": value if math.isfinite(value := estimate.percentile(p)) else None
        for p in PERCENTILES
    }


def _conversations(measured: Records) -> list[NDArray[np.int64]]:
    """The rows of every conversation of several turns."""
    of_several = measured.numbers("turns") > 1
    places = np.flatnonzero(of_several)
    return [places[rows] for rows in rows_by_conversation(measured.where(of_several))]


def rows_by_conversation(records: Records) -> list[NDArray[np.int64]]:
    """The rows of every conversation, ascending; requests outside of conversations are in none."""
    rows: dict[ConversationKey, list[int]] = defaultdict(list)
    for row, conversation in enumerate(records.conversations()):
        if conversation is not None:
            rows[conversation].append(row)
    return [np.array(places) for places in rows.values()]


def _union_ns(started_ns: Instants, ended_ns: Instants) -> int:
    """The time with at least one request in flight: 0 to 4 s and 3 to 5 s are 5 s."""
    order = np.argsort(started_ns, kind="stable")
    starts = started_ns[order]
    ends = np.maximum.accumulate(ended_ns[order])
    earlier_ends = np.concatenate([starts[:1], ends[:-1]])
    return int((ends - np.maximum(starts, earlier_ends)).sum())


def _mean_sum(
    values: NDArray[np.float64], conversations: list[NDArray[np.int64]]
) -> float | None:
    """The mean sum of a conversation; None without any, or where a value is unknown."""
    whole = total(values[np.concatenate(conversations)]) if conversations else None
    return None if whole is None else whole / len(conversations)
