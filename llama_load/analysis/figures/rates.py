"""Metrics over time: token times, peak throughput, peak requests in flight, and their spread over
replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.gap_times import COLUMNS, gap_times
from llama_load.ground.units import NS_PER_MS, NS_PER_S
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.window import Window

# The peak second is searched in steps of 10 ms.
BINS_PER_S = 100
# Of longer windows the empty steps are not kept: a step takes 24 bytes. Instants of others may span
# a century.
MOST_DENSE_S = 2 * 86_400


def token_times_ns(
    ok: Records,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """When the tokens of these answers arrived, ns, and how many at each instant: one entry per
    token event, or one at the end of an answer that was not streamed; in no order. In batches of
    requests, because an event takes 40 bytes here.

    `event_tokens` gives the tokens of each event. Where it is unknown, a request's tokens are
    spread evenly over its token events. vLLM's own bench counts events, which under load may hold
    several tokens.
    """
    for batch in ok.batches(*COLUMNS, "event_tokens", "output_tokens", "ended_mono_ns"):
        is_streamed = batch.has("first_token_mono_ns")
        if is_streamed.any():
            yield _event_times_ns(batch.where(is_streamed))
        if not is_streamed.all():
            whole = batch.where(~is_streamed)
            yield (
                whole.instants("ended_mono_ns"),
                np.nan_to_num(whole.numbers("output_tokens")),
            )


def _event_times_ns(streamed: Records) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The first event of each request, then the events after them."""
    counts, _, ended_ns = gap_times(streamed)
    tokens = streamed.numbers("output_tokens")
    per_event = np.where(np.isnan(tokens), counts + 1, tokens) / (counts + 1)
    weights = np.concatenate(
        (
            per_event,
            np.ones(len(ended_ns))
            if (per_event == 1).all()
            else np.repeat(per_event, counts),
        )
    )
    sizes, reported = streamed.lists("event_tokens")
    placed = sizes == counts + 1
    if placed.any():
        of_placed = reported[np.repeat(placed, sizes)]
        is_first = np.zeros(len(of_placed), dtype=np.bool_)
        is_first[np.cumsum(sizes[placed]) - sizes[placed]] = True
        weights[: len(counts)][placed] = of_placed[is_first]
        weights[len(counts) :][np.repeat(placed, counts)] = of_placed[~is_first]
    return np.concatenate((streamed.instants("first_token_mono_ns"), ended_ns)), weights


def peak_output_tok_per_s(answered: Records, window: Window) -> float | None:
    """Most output tokens within any second of the window, which may begin anywhere (in steps of 10
    ms). None for a window shorter than a second, or where no answer was streamed.

    Ten tokens between 0.9 and 1.0 s and ten between 1.0 and 1.1 s: 20.
    """
    streamed = answered.where(answered.has("first_token_mono_ns"))
    if window.seconds < 1 or not len(streamed):
        return None
    if window.seconds > MOST_DENSE_S:
        return _peak_of_few(streamed, window)
    tokens = np.zeros(int(window.seconds * BINS_PER_S) + 1)
    for events_ns, weights in token_times_ns(streamed):
        if events_ns.min() < window.begun_ns or events_ns.max() > window.ended_ns:
            inside = (events_ns >= window.begun_ns) & (events_ns <= window.ended_ns)
            events_ns = events_ns[inside]
            weights = weights[inside]
        _add(tokens, (events_ns - window.begun_ns) * (BINS_PER_S / NS_PER_S), weights)
    summed = np.concatenate(([0.0], np.cumsum(tokens)))
    return float((summed[BINS_PER_S:] - summed[:-BINS_PER_S]).max())


def _peak_of_few(streamed: Records, window: Window) -> float:
    """The same of a window in which most steps are empty, such as a year: only those with tokens
    are kept."""
    steps = [np.zeros(0, np.int64)]
    weights = [np.zeros(0)]
    for events_ns, of_each in token_times_ns(streamed):
        inside = (events_ns >= window.begun_ns) & (events_ns <= window.ended_ns)
        since_ns = events_ns[inside] - window.begun_ns
        steps.append((since_ns * (BINS_PER_S / NS_PER_S)).astype(np.int64))
        weights.append(of_each[inside])

    present, place = np.unique(np.concatenate(steps), return_inverse=True)
    sums = np.bincount(place, np.concatenate(weights), len(present))
    before = np.concatenate(([0.0], np.cumsum(sums)))
    ends = np.searchsorted(present, present + BINS_PER_S)
    within_a_second = before[ends] - before[:-1]
    return float(within_a_second.max(initial=0.0))


def vllm_peak_output(ok: Records) -> float | None:
    """Most output tokens within a second, as `vllm bench serve` counts: whole seconds from the
    first start. Of tokens, where it counts events. None without a streamed answer.

    Ten tokens between 0.9 and 1.0 s and ten between 1.0 and 1.1 s: 10.
    """
    streamed = ok.where(ok.has("first_token_mono_ns"))
    if not len(streamed):
        return None
    begun_ns = int(ok.instants("started_mono_ns").min())
    per_second: dict[int, float] = {}
    for events_ns, weights in token_times_ns(streamed):
        # exact for 48 days, in half the time of //
        seconds = ((events_ns - begun_ns) / NS_PER_S).astype(np.int64)
        first = int(seconds.min())
        if int(seconds.max()) - first > len(seconds):
            present, seconds = np.unique(seconds, return_inverse=True)
        else:
            present = np.arange(first, int(seconds.max()) + 1)
            seconds = seconds - first
        for second, tokens in zip(
            present.tolist(),
            np.bincount(seconds, weights=weights).tolist(),
            strict=True,
        ):
            per_second[second] = per_second.get(second, 0.0) + tokens
    return max(per_second.values())


def _add(
    sums: NDArray[np.float64],
    places: NDArray[np.floating[Any]],
    weights: NDArray[np.float64],
) -> None:
    """Add each weight at its place, rounded down; to the part of `sums` alone that has some."""
    if not len(places):
        return
    whole = places.astype(np.int64)
    first = int(whole.min())
    counts = np.bincount(whole - first, weights=weights)[: len(sums) - first]
    sums[first : first + len(counts)] += counts


def vllm_peak_in_flight(ok: Records) -> int:
    """Most requests that touch the same second, as `vllm bench serve` counts: whole seconds from
    the first start, each request from its start to its last token.

    0.1-0.2 s, 0.3-0.4 s, 0.5-1.2 s: 3, although never two were in flight at once.
    """
    if not len(ok):
        return 0
    starts = ok.instants("started_mono_ns")
    lasted_ns = ok.numbers("e2el_ms") * NS_PER_MS
    ends = np.where(
        np.isnan(lasted_ns),
        ok.instants("ended_mono_ns"),
        starts + np.nan_to_num(lasted_ns).astype(np.int64),
    )
    begun_ns = int(starts.min())
    return most_at_once(
        (starts - begun_ns) // NS_PER_S, (ends - begun_ns) // NS_PER_S + 1
    )


def peak_in_flight(records: Records, *, within_ns: int = 0) -> int:
    """Most requests in flight at one instant; the least that it can be, where instants are known
    within `within_ns` of each other.

    0-2 s, 1-3 s, 2.5-4 s: 2. A request that starts as another ends does not overlap it.
    """
    if not len(records):
        return 0
    starts = records.instants("started_mono_ns")
    ends = records.instants("ended_mono_ns")
    return most_at_once(starts, np.maximum(starts, ends - within_ns))


def most_at_once(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
    """The most intervals that overlap; one that ends at the instant of another's start does not
    overlap it."""
    _, steps, _ = _events(starts, ends)
    return int(np.cumsum(steps).max())


def _events(
    starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Ends and starts in order (at one instant, ends come first): their instants, -1 or +1, and
    whose they are."""
    instants = np.concatenate((ends, starts))
    steps = np.repeat((-1, 1), len(starts))
    order = np.lexsort((steps, instants))
    return instants[order], steps[order], order % len(starts)


def imbalance(shares: Sequence[float]) -> float | None:
    """The busiest replica's share / an even share: 1.0 is even, n is all on one of n. 30 and 10
    tokens: 1.5; None without work."""
    total = sum(shares)
    return max(shares) * len(shares) / total if total > 0 else None


def in_flight_imbalance(records: Records, hosts: Sequence[str]) -> float | None:
    """How unevenly requests in flight were spread over replicas: 0 as even as possible, 1 all on
    one at every instant.

    With n_h(t) requests in flight on replica h of H and N(t) on all: (∫ max n_h - ∫ ceil(N/H)) / (∫
    N - ∫ ceil(N/H)) dt. Eight requests in flight, first all on one of two replicas, then all on the
    other: (8 - 4) / (8 - 4) = 1, though the sums are equal. None with one replica, or where there
    was never more than one request in flight.
    """
    if len(hosts) < 2 or not len(records):
        return None
    starts = records.instants("started_mono_ns")
    ends = records.instants("ended_mono_ns")
    place = {host: number for number, host in enumerate(hosts)}
    replica = np.array([place.get(host, 0) for host in records.strings("host")])
    instants, steps, rows = _events(starts, ends)
    lasted = np.diff(instants, append=instants[-1]).astype(np.float64)
    in_flight = [
        np.cumsum(np.where(replica[rows] == number, steps, 0))
        for number in range(len(hosts))
    ]
    most = np.max(in_flight, axis=0)
    total = np.sum(in_flight, axis=0)
    even = np.ceil(total / len(hosts))
    possible = float(((total - even) * lasted).sum())
    return float(((most - even) * lasted).sum()) / possible if possible > 0 else None
