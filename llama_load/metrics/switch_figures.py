"""The price of switching between models or LoRA adapters.

llama-server computes requests of one adapter together, and those of another one after them; a slot that gets another adapter
drops its cached prompt. vLLM batches LoRA adapters, with a loss for those that it must load. What that costs is seen from the
client: each answered request is put into one of three classes by the others on the same server.

    same      every request in flight beside it had its adapter, and so had the last one that started before it
    switched  the last request that started before it had another adapter, and none of another was in flight beside it
    beside    a request with another adapter was in flight at the same time

The price is the difference of medians, to "same". Only alike requests are compared: of one adapter, with as many requests in
flight when they started, and both of them first turns or both of them later ones. The differences of these groups are averaged,
weighted by their requests. A group counts if it has `LEAST` requests in both classes; without one the price is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.statistics import median, ratio_of_sums
from llama_load.observed.record import OK
from llama_load.observed.records import Records

LEAST = 5
SAME, SWITCHED, BESIDE = CLASSES = ("same", "switched", "beside")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SwitchClass:
    """A class of requests. Prices are against "same". None: unknown, or too few."""

    name: str
    requests: int
    others_in_flight: float | None  # when one started, mean
    cached_ratio: float | None  # cached prompt tokens / prompt tokens
    median_ttft_ms: float | None
    median_tpot_ms: float | None
    ttft_price_ms: float | None
    ttft_compared: int  # the number of requests that the price is computed from
    tpot_price_ms: float | None
    tpot_compared: int


@dataclass(frozen=True, slots=True)
class SwitchFigures:
    """What the requests switch between ("model" or "adapter"), and the classes."""

    what: str
    classes: list[SwitchClass]


def switch_figures(records: Records, *, other_clients: bool = False) -> SwitchFigures | None:
    """The figures of a run, from all its records (warm-up requests are neighbours, too). None with one model and adapter, and where
    other clients used the server: what came before a request is not known then."""
    pairs = list(zip(records.strings("model"), records.strings("adapter"), strict=True))
    kinds = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    if len(kinds) < 2 or other_clients:
        return None
    kind = np.array([kinds[pair] for pair in pairs], dtype=np.int64)
    in_class, in_flight = _classes(records, kind)
    is_counted = records.equals("status", OK) & ~records.equals("warmup", True)
    group = np.stack([kind, in_flight, (records.numbers("turn") > 1).astype(np.int64)], axis=1)
    ttft_ms, tpot_ms = records.numbers("ttft_ms"), records.numbers("tpot_ms")
    prompt, cached = records.numbers("prompt_tokens"), records.numbers("cached_tokens")
    base = is_counted & (in_class == 0)
    figures = []
    for number, name in enumerate(CLASSES):
        chosen = is_counted & (in_class == number)
        ttft, tpot = (_price(values, group, base, chosen) if number else (None, 0) for values in (ttft_ms, tpot_ms))
        figures.append(
            SwitchClass(
                name,
                int(chosen.sum()),
                float(in_flight[chosen].mean()) if chosen.any() else None,
                ratio_of_sums(cached[chosen], prompt[chosen]),
                median(ttft_ms[chosen]),
                median(tpot_ms[chosen]),
                *ttft,
                *tpot,
            )
        )
    adapters = {adapter for _, adapter in kinds}
    return SwitchFigures("adapter" if len(adapters) > 1 else "model", figures)


def _classes(records: Records, kind: Ints) -> tuple[Ints, Ints]:
    """The number of each request's class (-1: none was sent before it), and how many others were in flight when it started."""
    started, ended = records.instants("started_mono_ns"), records.instants("ended_mono_ns")
    in_class, in_flight = np.full(len(kind), -1, dtype=np.int64), np.zeros(len(kind), dtype=np.int64)
    pairs = zip(records.strings("host"), records.strings("replica"), strict=True)
    numbers: dict[tuple[str, str | None], int] = {}
    server = np.array([numbers.setdefault(pair, len(numbers)) for pair in pairs], dtype=np.int64)
    for rows in _places(server):
        rows = rows[np.argsort(started[rows], kind="stable")]
        begins, ends = started[rows], ended[rows]
        in_flight[rows] = np.arange(len(rows)) - _count(np.sort(ends), begins)
        all_beside = _beside(begins, ends, begins, ends)
        same_beside = np.zeros(len(rows), dtype=np.int64)
        for own in _places(kind[rows]):
            same_beside[own] = _beside(begins[own], ends[own], begins[own], ends[own])
        switched = np.append(False, kind[rows][1:] != kind[rows][:-1])
        classes = np.where(all_beside > same_beside, 2, np.where(switched, 1, 0))
        classes[:1] = -1
        in_class[rows] = classes
    return in_class, in_flight


def _places(values: Ints) -> Iterator[Ints]:
    """The places of each value."""
    for value in np.unique(values):
        yield np.nonzero(values == value)[0]


def _beside(begins: Ints, ends: Ints, of_begins: Ints, of_ends: Ints) -> Ints:
    """How many of the intervals overlap each of these, itself included; one that ends at the other's start does not."""
    return _count(np.sort(begins), of_ends - 1) - _count(np.sort(ends), of_begins)


def _count(ascending: Ints, until: Ints) -> Ints:
    """How many of these are not after each of `until`."""
    return np.asarray(np.searchsorted(ascending, until, side="right"), dtype=np.int64)


def _price(values: Floats, group: Ints, base: Bools, chosen: Bools) -> tuple[float | None, int]:
    """The mean difference of the groups' medians, weighted by the chosen requests, and how many of these there are."""
    known = ~np.isnan(values)
    differences, weights = [], []
    for own in np.unique(group[chosen & known], axis=0):
        alike = known & (group == own).all(axis=1)
        before, after = values[alike & base], values[alike & chosen]
        if min(len(before), len(after)) >= LEAST:
            differences.append(np.median(after) - np.median(before))
            weights.append(len(after))
    return (float(np.average(differences, weights=weights)), sum(weights)) if weights else (None, 0)
