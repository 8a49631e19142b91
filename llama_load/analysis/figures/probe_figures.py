"""What a bystander feels: the latencies of probes (--probe-rate), beside the load and alone.
docs/probes.md has the definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.censoring import cut_shift
from llama_load.analysis.statistics.neighbours import ANSWERS, IDLE, neighbour_classes
from llama_load.analysis.statistics.statistics import (
    Distribution,
    describe,
    known,
    ratio_of_sums,
)
from llama_load.ground.units import NS_PER_MS, ns_to_s
from llama_load.run_folder.observed.probe_names import ALONE, BESIDE
from llama_load.run_folder.observed.record import CANCELLED, OK
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.window import Window

PERCENTILES = (50.0, 90.0, 99.0)
# The median of fewer probes alone is no denominator: one slow one of two would halve every ratio.
LEAST_ALONE = 3
# Rows over time: at most so many, each of at least so many probes on average.
MOST_SLICES = 10
LEAST_IN_SLICE = 5


@dataclass(frozen=True, slots=True)
class ProbeSample:
    """Some probes, and their latencies in ms. Ratios: how many times the median alone (see
    `ratio_to_alone`)."""

    sent: int
    failed: int  # in no latency
    cut: int  # in no latency
    ttft: Distribution
    e2el: Distribution
    ttft_ratio: float | None
    e2el_ratio: float | None


@dataclass(frozen=True, slots=True)
class ProbeSlice:
    """The probes that were sent in a part of the measured time, s from its begin."""

    begin_s: float
    end_s: float
    sample: ProbeSample


@dataclass(frozen=True, slots=True)
class ProbeFigures:
    """All figures of the probes of a run. Ratios: 0 to 1."""

    rate_rps: float
    alone: ProbeSample  # sent before the load
    alone_range_ms: tuple[float, float] | None
    total: ProbeSample  # sent while requests were measured; the following are of these
    by_class: dict[
        str, ProbeSample
    ]  # by what else was in flight (see `neighbour_classes`)
    by_stage: dict[str, ProbeSample]
    over_time: list[ProbeSlice]
    failures: dict[str, int]  # how many failed, by kind
    prompt_tokens: int | None
    output_tokens: int | None
    request_ratio: float | None  # their share of all requests of the measured time
    token_ratio: float | None  # their share of all tokens of that time
    # the share of prompt tokens that came from the prompt cache, of those alone
    alone_cached_ratio: float | None
    cached_ratio: float | None  # the same beside the load
    cut_shift: float  # see `analysis.statistics.censoring`
    missing: int  # records that should be there and are not
    skipped: int  # scheduled while the client stood still
    lost_neighbours: int


def probe_figures(
    probes: Records,
    requests: Records,
    window: Window,
    *,
    rate_rps: float,
    stages: Sequence[tuple[str, int | None, int | None]] = (),
    missing: int = 0,
    skipped: int = 0,
    lost_neighbours: int = 0,
) -> ProbeFigures:
    """The figures of the probes of a run, from their records, all requests of the load, the window
    of those that were measured, and its stages (name, begin and end in ns; None: it did not begin
    or end). For the others see `ProbeFigures`."""
    measured = requests.measured()
    alone = probes.where(probes.equals("name", ALONE))
    beside = probes.where(probes.equals("name", BESIDE))
    beside = beside.where(window.holds(beside.instants("started_mono_ns")))
    basis = _Basis(
        _medians_alone(alone, "ttft_ms"),
        _medians_alone(alone, "e2el_ms"),
        window.ended_ns,
    )
    started = beside.instants("started_mono_ns")
    answered = beside.where(basis.is_answered(beside))
    alone_ok = alone.ok()
    beside_ok = beside.ok()
    ttft_alone = alone_ok.numbers("ttft_ms")
    return ProbeFigures(
        rate_rps=rate_rps,
        alone=basis.sample(alone, may_be_cut=False),
        alone_range_ms=(float(ttft_alone.min()), float(ttft_alone.max()))
        if len(ttft_alone)
        else None,
        total=basis.sample(beside),
        by_class=_by_class(beside, requests, basis),
        by_stage={
            name: basis.sample(
                beside.where(
                    Window(
                        begun_ns, window.ended_ns if ended_ns is None else ended_ns
                    ).holds(started)
                )
            )
            for name, begun_ns, ended_ns in stages
            if begun_ns is not None
        },
        over_time=_over_time(beside, window, basis),
        failures=dict(Counter(beside.failed().strings("status")).most_common()),
        prompt_tokens=beside_ok.total("prompt_tokens"),
        output_tokens=beside_ok.total("output_tokens"),
        request_ratio=_share(len(beside), len(measured)),
        token_ratio=_share(_tokens(beside), _tokens(measured)),
        alone_cached_ratio=ratio_of_sums(
            alone_ok.numbers("cached_tokens"), alone_ok.numbers("prompt_tokens")
        ),
        cached_ratio=ratio_of_sums(
            beside_ok.numbers("cached_tokens"), beside_ok.numbers("prompt_tokens")
        ),
        cut_shift=cut_shift(
            answered.numbers("ttft_ms"),
            np.zeros(0),
            basis.cut_after_ms(beside),
            PERCENTILES,
        ),
        missing=missing,
        skipped=skipped,
        lost_neighbours=lost_neighbours,
    )


def ratio_to_alone(
    values_ms: NDArray[np.float64], hosts: Sequence[str], alone_ms: Mapping[str, float]
) -> float | None:
    """How many times its value alone a latency is: the median over the probes of latency / median
    alone at the same server.

    Of one server that is median / median. Alone 20 ms; beside the load 30, 40 and 200 ms: 2.0. None
    where a server has no median alone (see `LEAST_ALONE`), or without probes.
    """
    known = ~np.isnan(values_ms)
    basis = np.array([alone_ms.get(host, np.nan) for host in hosts], dtype=np.float64)
    ratios = values_ms[known] / basis[known]
    return (
        float(np.median(ratios)) if len(ratios) and not np.isnan(ratios).any() else None
    )


@dataclass(frozen=True, slots=True)
class _Basis:
    """What samples are compared with, ms by server, and when the load ended: a probe that got no
    token by then was cut, whatever became of it on the idle server."""

    ttft_ms: Mapping[str, float]
    e2el_ms: Mapping[str, float]
    ended_ns: int

    def is_cut(self, probes: Records) -> NDArray[np.bool_]:
        first = probes.optional_instants("first_token_mono_ns")
        started = probes.instants("started_mono_ns")
        late = (first >= self.ended_ns) & (started < self.ended_ns)
        return np.asarray(
            (probes.equals("status", OK) & late)
            | (probes.equals("status", CANCELLED) & ((first < 0) | late))
        )

    def is_answered(self, probes: Records) -> NDArray[np.bool_]:
        return np.asarray(probes.equals("status", OK) & ~self.is_cut(probes))

    def cut_after_ms(self, probes: Records) -> NDArray[np.float64]:
        """How long the probes that were cut had waited when the load ended."""
        cut = probes.where(self.is_cut(probes))
        return np.asarray(
            np.maximum(0, self.ended_ns - cut.instants("started_mono_ns")) / NS_PER_MS
        )

    def sample(self, probes: Records, *, may_be_cut: bool = True) -> ProbeSample:
        answered = probes.where(self.is_answered(probes)) if may_be_cut else probes.ok()
        hosts = answered.strings("host")
        ttft = answered.numbers("ttft_ms")
        e2el = answered.numbers("e2el_ms")
        return ProbeSample(
            sent=len(probes),
            failed=len(probes.failed()),
            cut=len(probes) - len(probes.failed()) - len(answered),
            ttft=describe(ttft, PERCENTILES),
            e2el=describe(e2el, PERCENTILES),
            ttft_ratio=ratio_to_alone(ttft, hosts, self.ttft_ms),
            e2el_ratio=ratio_to_alone(e2el, hosts, self.e2el_ms),
        )


def _medians_alone(alone: Records, column: str) -> dict[str, float]:
    """The median of a latency alone by server, of servers that answered `LEAST_ALONE` or more."""
    ok = alone.ok()
    medians = {}
    for host in ok.values_of("host"):
        values = known(ok.where(ok.equals("host", host)).numbers(column))
        if len(values) >= LEAST_ALONE and (median := float(np.median(values))) > 0:
            medians[str(host)] = median
    return medians


def _by_class(
    beside: Records, requests: Records, basis: _Basis
) -> dict[str, ProbeSample]:
    names = neighbour_classes(beside, requests)
    order = sorted(
        set(names),
        key=lambda name: (name != IDLE, name != ANSWERS, " + " in name, name),
    )
    samples = {}
    for name in order:
        is_of_class = np.array([other == name for other in names], dtype=np.bool_)
        samples[name] = basis.sample(beside.where(is_of_class))
    return samples


def _over_time(beside: Records, window: Window, basis: _Basis) -> list[ProbeSlice]:
    count = min(MOST_SLICES, len(beside) // LEAST_IN_SLICE)
    if count < 2:
        return []
    edges = [
        window.begun_ns + (window.ended_ns - window.begun_ns) * place // count
        for place in range(count + 1)
    ]
    started = beside.instants("started_mono_ns")
    return [
        ProbeSlice(
            ns_to_s(begin - window.begun_ns),
            ns_to_s(end - window.begun_ns),
            basis.sample(beside.where(Window(begin, end).holds(started))),
        )
        for begin, end in pairwise(edges)
    ]


def _tokens(records: Records) -> int | None:
    prompts, answers = map(records.ok().total, ("prompt_tokens", "output_tokens"))
    return None if prompts is None or answers is None else prompts + answers


def _share(own: int | None, others: int | None) -> float | None:
    return (
        None
        if own is None or others is None or not own + others
        else own / (own + others)
    )
