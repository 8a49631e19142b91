"""Figures by conversation: how long one takes, with and without its waits, how many ended, and how many are alive at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.observed.record import CANCELLED
from llama_load.observed.records import Records
from llama_load.units import NS_PER_S

PERCENTILES = (50.0, 90.0, 99.0)


@dataclass(frozen=True, slots=True)
class ConversationFigures:
    """`ended` of `count` conversations were sent to their last turn. `duration_s` and `without_waits_s` are percentiles (see
    `survival_percentile`) of the time from the first start to the last end, and of that time less the planned waits. `peak` is the
    number of conversations alive at once, waits included. Turns and tokens are means of a conversation; None: not reported."""

    count: int
    ended: int
    peak: int
    turns: float
    prompt_tokens: float | None
    output_tokens: float | None
    cached_ratio: float | None
    duration_s: dict[str, float | None]
    without_waits_s: dict[str, float | None]


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


def conversation_figures(measured: Records) -> ConversationFigures | None:
    """The figures of the conversations of several turns; None without any."""
    rows: dict[tuple[str, int], list[int]] = defaultdict(list)
    planned = measured.numbers("turns")
    names = zip(measured.strings("workload"), measured.strings("conversation_start"), strict=True)
    for row, (workload, start) in enumerate(names):
        if start is not None and planned[row] > 1:
            rows[workload, start].append(row)
    if not rows:
        return None
    started_ns, ended_ns = measured.instants("started_mono_ns"), measured.instants("ended_mono_ns")
    is_cut, delays_ms = measured.equals("status", CANCELLED), measured.numbers("delay_ms")
    own = np.array([agent is None for agent in measured.strings("agent")], dtype=np.bool_)
    waits_ms = np.where(own, np.nan_to_num(delays_ms), 0.0)
    chats = [np.array(places) for places in rows.values()]
    begun = np.array([started_ns[places].min() for places in chats], dtype=np.int64)
    over = np.array([ended_ns[places].max() for places in chats], dtype=np.int64)
    ended = np.array([(~is_cut[places]).sum() >= planned[places[0]] for places in chats], dtype=np.bool_)
    lengths = (over - begun) / NS_PER_S
    working = np.maximum(0.0, lengths - np.array([waits_ms[places].sum() / 1000 for places in chats]))
    every = np.concatenate(chats)
    prompt, cached = _mean(measured.numbers("prompt_tokens")[every], len(chats)), measured.numbers("cached_tokens")[every].sum()
    return ConversationFigures(
        count=len(chats),
        ended=int(ended.sum()),
        peak=_peak(begun, over),
        turns=len(every) / len(chats),
        prompt_tokens=prompt,
        output_tokens=_mean(measured.numbers("output_tokens")[every], len(chats)),
        cached_ratio=None if not prompt or np.isnan(cached) else float(cached / (prompt * len(chats))),
        duration_s={f"p{p:g}": survival_percentile(lengths, ended, p) for p in PERCENTILES},
        without_waits_s={f"p{p:g}": survival_percentile(working, ended, p) for p in PERCENTILES},
    )


def _mean(values: NDArray[np.float64], count: int) -> float | None:
    return None if np.isnan(values).any() else float(values.sum() / count)


def _peak(begun: Sequence[int] | NDArray[np.int64], over: Sequence[int] | NDArray[np.int64]) -> int:
    """The most intervals that overlap; one that ends at the instant of another's start does not overlap it."""
    instants = np.concatenate([begun, over])
    steps = np.concatenate([np.ones(len(begun)), -np.ones(len(over))])
    return int(np.cumsum(steps[np.lexsort((steps, instants))]).max())
