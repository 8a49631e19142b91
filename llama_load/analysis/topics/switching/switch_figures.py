"""The price of switching between models or LoRA adapters.

llama-server computes requests of one adapter together, and those of another one after them; a slot
that gets another adapter drops its cached prompt. vLLM batches LoRA adapters, with a loss for those
that it must load. What that costs is seen from the client: each answered request is put into one of
three classes by the others on the same server.

    same      every request in flight beside it had its adapter, and so had the last one that
              started before it
    switched  the last request that started before it had another adapter, and none of another was
              in flight beside it
    beside    a request with another adapter was in flight at the same time

The price is the difference of medians, to "same". Only alike requests are compared: of one adapter,
with as many requests in flight when they started, and both of them first turns or both of them
later ones. The differences of these groups are averaged, weighted by their requests. A group counts
if it has `LEAST` requests in both classes; without one the price is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.statistics import median, ratio_of_sums
from llama_load.analysis.topics.topic import TopicInput
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.observed.records import Records

LEAST = 5
# A price that is not known, from no requests.
NO_PRICE: tuple[float | None, int] = (None, 0)
SAME = "same"
SWITCHED = "switched"
BESIDE = "beside"
CLASSES = (SAME, SWITCHED, BESIDE)

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


def switching(given: TopicInput) -> SwitchFigures | None:
    """The figures of a run whose verdict knows of no other client."""
    has_others = any(
        check.name == "other_client_ratio" and not check.ok
        for check in given.verdict.checks
    )
    return switch_figures(given.run.records, other_clients=has_others)


def switch_figures(
    records: Records, *, other_clients: bool = False
) -> SwitchFigures | None:
    """The figures of a run, from all its records (warm-up requests are neighbours, too). None with
    one model and adapter, and where other clients used the server: what came before a request is
    not known then."""
    models = records.strings("model")
    adapters = records.strings("adapter")
    pairs = list(zip(models, adapters, strict=True))
    different = dict.fromkeys(pairs)
    if len(different) < 2 or other_clients:
        return None

    numbers = {pair: number for number, pair in enumerate(different)}
    kind = np.array([numbers[pair] for pair in pairs], dtype=np.int64)
    requests = _classified(records, kind)
    classes = [
        _class_figures(records, requests, number, name)
        for number, name in enumerate(CLASSES)
    ]

    what = "model"
    if len(set(adapters)) > 1:
        what = "adapter"
    return SwitchFigures(what, classes)


@dataclass(frozen=True, slots=True)
class _Classified:
    """Of each request: its class, the others in flight when it started, the group of requests that
    are alike, and whether it is counted."""

    in_class: Ints
    in_flight: Ints
    group: Ints
    is_counted: Bools


def _classified(records: Records, kind: Ints) -> _Classified:
    in_class, in_flight = _classes(records, kind)
    is_later = records.numbers("turn") > 1
    group = np.stack([kind, in_flight, is_later.astype(np.int64)], axis=1)
    is_counted = records.equals("status", OK) & ~records.equals("warmup", True)
    return _Classified(in_class, in_flight, group, is_counted)


def _class_figures(
    records: Records, requests: _Classified, number: int, name: str
) -> SwitchClass:
    ttft_ms = records.numbers("ttft_ms")
    tpot_ms = records.numbers("tpot_ms")
    prompt = records.numbers("prompt_tokens")
    cached = records.numbers("cached_tokens")

    base = requests.is_counted & (requests.in_class == 0)
    chosen = requests.is_counted & (requests.in_class == number)
    others_in_flight = None
    if chosen.any():
        others_in_flight = float(requests.in_flight[chosen].mean())

    ttft_price, ttft_compared = NO_PRICE
    tpot_price, tpot_compared = NO_PRICE
    if number:
        ttft_price, ttft_compared = _price(ttft_ms, requests.group, base, chosen)
        tpot_price, tpot_compared = _price(tpot_ms, requests.group, base, chosen)

    return SwitchClass(
        name=name,
        requests=int(chosen.sum()),
        others_in_flight=others_in_flight,
        cached_ratio=ratio_of_sums(cached[chosen], prompt[chosen]),
        median_ttft_ms=median(ttft_ms[chosen]),
        median_tpot_ms=median(tpot_ms[chosen]),
        ttft_price_ms=ttft_price,
        ttft_compared=ttft_compared,
        tpot_price_ms=tpot_price,
        tpot_compared=tpot_compared,
    )


def _classes(records: Records, kind: Ints) -> tuple[Ints, Ints]:
    """The number of each request's class (-1: none was sent before it), and how many others were in
    flight when it started."""
    started = records.instants("started_mono_ns")
    ended = records.instants("ended_mono_ns")
    in_class = np.full(len(kind), -1, dtype=np.int64)
    in_flight = np.zeros(len(kind), dtype=np.int64)
    pairs = zip(records.strings("host"), records.strings("replica"), strict=True)
    numbers: dict[tuple[str, str | None], int] = {}
    server = np.array(
        [numbers.setdefault(pair, len(numbers)) for pair in pairs], dtype=np.int64
    )

    for rows in _places(server):
        rows = rows[np.argsort(started[rows], kind="stable")]
        begins = started[rows]
        ends = ended[rows]
        begun_before = np.arange(len(rows))
        ended_before = _count_until(np.sort(ends), begins)
        in_flight[rows] = begun_before - ended_before
        all_beside = _beside(begins, ends, begins, ends)
        same_beside = np.zeros(len(rows), dtype=np.int64)
        for own in _places(kind[rows]):
            own_begins = begins[own]
            own_ends = ends[own]
            same_beside[own] = _beside(own_begins, own_ends, own_begins, own_ends)

        kinds = kind[rows]
        switched = np.append(False, kinds[1:] != kinds[:-1])
        classes = np.where(switched, 1, 0)
        classes[all_beside > same_beside] = 2
        classes[:1] = -1
        in_class[rows] = classes

    return in_class, in_flight


def _places(values: Ints) -> Iterator[Ints]:
    """The places of each value."""
    for value in np.unique(values):
        yield np.nonzero(values == value)[0]


def _beside(begins: Ints, ends: Ints, of_begins: Ints, of_ends: Ints) -> Ints:
    """How many of the intervals overlap each of these, itself included; one that ends at the
    other's start does not."""
    begun = _count_until(np.sort(begins), of_ends - 1)
    ended = _count_until(np.sort(ends), of_begins)
    return begun - ended


def _count_until(ascending: Ints, until: Ints) -> Ints:
    """How many of these are not after each of `until`."""
    return np.asarray(np.searchsorted(ascending, until, side="right"), dtype=np.int64)


def _price(
    values: Floats, group: Ints, base: Bools, chosen: Bools
) -> tuple[float | None, int]:
    """The mean difference of the groups' medians, weighted by the chosen requests, and how many of
    these there are."""
    known = ~np.isnan(values)
    differences = []
    weights = []
    for own in np.unique(group[chosen & known], axis=0):
        alike = known & (group == own).all(axis=1)
        before = values[alike & base]
        after = values[alike & chosen]
        if min(len(before), len(after)) >= LEAST:
            differences.append(np.median(after) - np.median(before))
            weights.append(len(after))

    if not weights:
        return NO_PRICE
    return float(np.average(differences, weights=weights)), sum(weights)
