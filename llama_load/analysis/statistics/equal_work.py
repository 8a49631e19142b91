"""Latencies at equal work: TTFT without its wait for a slot, divided by what prompt, prompts ahead
and load explain; pace likewise.

A server that is one server all the time has one group of these quotients, however mixed its
prompts, loads and waits are. So a second group (see `analysis.statistics.two_groups`) is another source of
answers: a cache, a filter, another server.

Slots: with k slots, first come first served, request i begins when the k-th largest end of earlier
requests is over: begin(i) = max(start(i), k-th largest end(j < i)). How many slots there are is
rarely known; of none, those that the server reports, and the most answers that were ever generated
at once, the number is taken that explains TTFT best. Requests that something in front of the server
answered took no slot: where their TTFT are a second group (see `analysis.statistics.two_groups`) and the others
are explained far better without them, they are left out of the queue.

Work: TTFT' = first token - begin is fitted by a + w x prompt tokens + v x (own prompt tokens and
those of others whose first token came meanwhile) + u x mean number in flight, all at least 0, with
the least sum of |log quotient|: robust against a second group of up to a third.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.equal_load import mean_in_flight
from llama_load.analysis.statistics.slices import Instants, Values
from llama_load.analysis.statistics.two_groups import two_groups
from llama_load.ground.units import NS_PER_MS

Flags = NDArray[np.bool_]

# Rows for a fit: more change nothing.
MOST_FITTED = 2000
FIT_STEPS = 30
LEAST_RESIDUAL = 0.02
LEAST_GAIN = 1e-4
STEP_LENGTHS = (1.0, 0.5, 0.2, 0.05, 0.01)
# Of a first token before its request could have begun by first come first served: this part of the
# usual time.
OVERTAKEN = 0.1
# A quotient further off than this explains no better or worse.
MOST_DEVIATION = 3.0
# Requests that took no slot disturb the queue of the others: with a lower mean deviation there are
# none. An explanation without some requests has to leave this part of the deviation at most.
WELL_EXPLAINED = 0.15
FAR_BETTER = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The requests of one server as columns, in order of their start. `is_judged`: those whose
    quotients are wanted."""

    started_ns: Instants
    first_ns: Instants  # -1 where there is none
    ended_ns: Instants
    prompt_tokens: Values  # to be processed, without cached ones
    is_judged: Flags
    slots: int | None = None  # as the server reports
    # Those whose first token came with the whole answer, so that it shows no prefill.
    is_whole: Flags | None = None

    @property
    def shows_prefill(self) -> Flags:
        """Whether a first token shows what its prompt took; all, where no answer was streamed."""
        answered = self.first_ns >= 0
        if self.is_whole is None or self.is_whole[answered].all():
            return answered
        return answered & ~self.is_whole


@dataclass(frozen=True, slots=True)
class Explained:
    """TTFT without the wait for a slot, ms, and divided by what its work explains; NaN where it is
    not judged. A quotient of 1: as expected; 0.1: ten times as fast as others with the same
    work."""

    took_ms: Values
    quotients: Values


def explained_ttft(work: Work) -> Explained:
    """By the slots that explain most."""
    everyone = np.ones(len(work.started_ns), dtype=np.bool_)
    best, deviation = _best_explained(work, everyone)
    if deviation < WELL_EXPLAINED:
        return best
    # A clock that jumped may put a first token before its request.
    judged = np.flatnonzero(work.is_judged & (work.first_ns > work.started_ns))
    groups = two_groups((work.first_ns - work.started_ns)[judged] / NS_PER_MS)
    if groups is None or not work.shows_prefill[judged[~groups.is_lower]].any():
        return best

    queued = everyone.copy()
    queued[judged[groups.is_lower]] = False
    without, rest = _best_explained(work, queued)
    return without if rest < FAR_BETTER * deviation else best


def _best_explained(work: Work, queued: Flags) -> tuple[Explained, float]:
    """The best explanation with `queued` in the queue for slots, and its mean deviation |log
    quotient|: of the others from their own median."""
    best = Explained(np.full(len(queued), np.nan), np.full(len(queued), np.nan))
    least = np.inf
    for slots in _candidates(work, queued):
        explained = _with_slots(work, queued, slots)
        deviation = _mean_deviation(
            explained.quotients, queued & work.shows_prefill, ~queued
        )
        if deviation < least:
            least = deviation
            best = explained
    return best, least


def _mean_deviation(quotients: Values, fitted: Flags, aside: Flags) -> float:
    known = quotients > 0
    parts = [np.abs(np.log(quotients[known & fitted]))]
    if (known & aside).any():
        others = np.log(quotients[known & aside])
        parts.append(np.abs(others - np.median(others)))
    deviations = np.concatenate(parts)
    return (
        float(np.minimum(deviations, MOST_DEVIATION).mean())
        if len(deviations)
        else np.inf
    )


def pace_quotients(work: Work, pace_ms: Values) -> Values:
    """Time per token / what prompt length and load explain; NaN where it is not judged."""
    judged = work.is_judged & (pace_ms > 0) & (work.first_ns >= 0)
    begun_ns = np.where(work.first_ns >= 0, work.first_ns, work.ended_ns)
    load = mean_in_flight(begun_ns, work.ended_ns, begun_ns, work.ended_ns)
    return _quotients(pace_ms, [work.prompt_tokens, load], judged, judged)


def begins_ns(started_ns: Instants, ended_ns: Instants, slots: int) -> Instants:
    """When each request got one of `slots`, first come first served: the k-th largest end of the
    earlier ones, or its start.

    Two slots, starts 0, 0, 1 and ends 5, 8, 9: 0, 0, 5.
    """
    largest: list[int] = []
    begun = np.empty(len(started_ns), dtype=np.int64)
    for number, (start, end) in enumerate(
        zip(started_ns.tolist(), ended_ns.tolist(), strict=True)
    ):
        if len(largest) < slots:
            begun[number] = start
            heapq.heappush(largest, end)
        else:
            begun[number] = max(start, largest[0])
            heapq.heappushpop(largest, end)
    return begun


def _candidates(work: Work, queued: Flags) -> Sequence[int | None]:
    """The numbers of slots that may explain waits; None: no request waits for one."""
    generating = np.flatnonzero((work.first_ns >= 0) & queued)
    in_flight = _most_at_once(work.started_ns[queued], work.ended_ns[queued])
    candidates: list[int | None] = [None]
    if len(generating):
        most = _most_at_once(work.first_ns[generating], work.ended_ns[generating])
        candidates += [slots for slots in (most, most + 1) if 0 < slots < in_flight]
    if work.slots and work.slots < in_flight:
        candidates.append(work.slots)
    return candidates


def _most_at_once(begins: Instants, ends: Instants) -> int:
    """The most of these intervals at one instant; one that ends when another begins is not counted
    with it."""
    instants = np.concatenate((ends, begins))
    steps = np.repeat((-1, 1), len(begins))
    order = np.lexsort((steps, instants))
    return int(np.cumsum(steps[order]).max(initial=0))


def _with_slots(work: Work, queued: Flags, slots: int | None) -> Explained:
    """The quotients if there are so many slots for these requests."""
    begun_ns = work.started_ns.copy()
    if slots is not None:
        begun_ns[queued] = begins_ns(
            work.started_ns[queued], work.ended_ns[queued], slots
        )
    judged = work.is_judged & (work.first_ns >= 0)
    took_ms = np.where(judged, (work.first_ns - begun_ns) / NS_PER_MS, np.nan)

    in_time = took_ms > 0
    overtook = judged & ~in_time
    if overtook.any() and in_time.any():
        took_ms[overtook] = OVERTAKEN * float(np.median(took_ms[in_time]))

    until_ns = np.maximum(work.first_ns, begun_ns)
    ahead = _tokens_ahead(work, begun_ns, until_ns)
    load = mean_in_flight(work.started_ns, work.ended_ns, begun_ns, until_ns)
    known = judged & (took_ms > 0)
    fitted = known & queued & work.shows_prefill
    # With factors of at least 0, a prompt ahead costs at most what an own one costs: a single slow
    # request, which many others overtook, does not explain itself.
    causes = [work.prompt_tokens, np.nan_to_num(work.prompt_tokens) + ahead, load]
    return Explained(
        np.where(known, took_ms, np.nan), _quotients(took_ms, causes, known, fitted)
    )


def _tokens_ahead(work: Work, begun_ns: Instants, until_ns: Instants) -> Values:
    """Prompt tokens of other requests that a server with one prompt at a time processed from each
    begin to each first token.

    It processes a prompt from the first token before it, or from its begin, to its own first token,
    evenly. Begins 0 and 1 s, 100 tokens each, first tokens at 2 and 4 s: the second one had 50
    ahead.
    """
    known = np.flatnonzero(work.shows_prefill)
    if not len(known):
        return np.zeros(len(begun_ns))
    known = known[np.argsort(work.first_ns[known], kind="stable")]
    origin = int(begun_ns.min())
    ends = (work.first_ns[known] - origin).astype(np.float64)
    before = np.concatenate(([0.0], ends[:-1]))
    begins = np.clip((begun_ns[known] - origin).astype(np.float64), before, ends)
    tokens = np.nan_to_num(work.prompt_tokens[known])
    done = np.cumsum(tokens)

    instants = np.column_stack((begins, ends)).ravel()
    processed = np.column_stack((done - tokens, done)).ravel()
    since = np.interp((begun_ns - origin).astype(np.float64), instants, processed)
    until = np.interp((until_ns - origin).astype(np.float64), instants, processed)
    return np.maximum(0.0, until - since - np.nan_to_num(work.prompt_tokens))


def _quotients(
    values: Values, causes: Sequence[Values], known: Flags, fitted: Flags
) -> Values:
    """Each value / its fit by the causes, with the factors of those that are `fitted`."""
    quotients = np.full(len(values), np.nan)
    if not fitted.any():
        return quotients
    columns = np.column_stack(
        [np.ones(len(values)), *(np.nan_to_num(cause) for cause in causes)]
    )
    scales = np.maximum(columns[fitted].mean(axis=0), 1e-9)
    least = 1e-6 * float(np.median(values[fitted]))
    factors = _factors(columns[fitted] / scales, values[fitted], least)
    fit = np.maximum(columns[known] / scales @ factors, least)
    quotients[known] = values[known] / fit
    return quotients


def _factors(rows: Values, targets: Values, least: float) -> Values:
    """Factors of at least 0 for the causes, with the least sum of |log(value / fit)|; a fit is at
    least `least`.

    By weighted least squares, repeated (weights 1 / |residual|), linear in the logarithm around the
    fit of the step before. Source: E. J. Schlossmacher, "An Iterative Technique for Absolute
    Deviations Curve Fitting", 1973.
    """
    step = max(1, len(targets) // MOST_FITTED)
    rows = rows[::step]
    targets = targets[::step]
    found = [
        _descended(start, rows, targets, least) for start in _starts(rows, targets)
    ]
    return min(found, key=lambda factors: _deviation(factors, rows, targets, least))


def _starts(rows: Values, targets: Values) -> Iterator[Values]:
    """Factors to begin with: each choice of causes explains the values where it is largest. (The
    deviation has several minima.)"""
    usual = float(np.median(targets))
    count = rows.shape[1]
    by_largest = np.zeros(count)
    for cause in range(1, count):
        least = max(1e-9, float(np.quantile(rows[:, cause], 0.9)))
        largest = rows[:, cause] >= least
        if largest.any():
            by_largest[cause] = float(
                np.median(targets[largest] / rows[largest, cause])
            )

    for chosen in itertools.product((0.01, 1.0), repeat=count - 1):
        yield np.concatenate(([0.5 * usual], by_largest[1:] * chosen))


def _descended(factors: Values, rows: Values, targets: Values, least: float) -> Values:
    """Factors after repeated steps of weighted least squares, each shortened until it is a step
    down."""
    deviation = _deviation(factors, rows, targets, least)
    for _ in range(FIT_STEPS):
        direction = _direction(factors, rows, targets, least)
        for length in STEP_LENGTHS:
            tried = np.maximum(0.0, factors + length * direction)
            reached = _deviation(tried, rows, targets, least)
            if reached < deviation:
                break
        else:
            return factors
        is_done = deviation - reached < LEAST_GAIN * deviation
        factors = tried
        deviation = reached
        if is_done:
            return factors
    return factors


def _direction(factors: Values, rows: Values, targets: Values, least: float) -> Values:
    """The step of weighted least squares, linear in the logarithm; factors at 0 that would fall
    stay there."""
    fit = np.maximum(rows @ factors, least)
    residuals = np.clip(np.log(targets / fit), -1, 1)
    weights = 1 / np.maximum(np.abs(residuals), LEAST_RESIDUAL)
    slopes = rows / fit[:, None]
    weighted = slopes * weights[:, None]
    curvature = slopes.T @ weighted
    curvature += 1e-6 * float(np.trace(curvature)) * np.eye(len(factors))
    gradient = weighted.T @ residuals

    step = np.zeros(len(factors))
    free = np.arange(len(factors))
    while len(free):
        step[:] = 0.0
        step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        stuck = (factors[free] <= 0) & (step[free] < 0)
        if not stuck.any():
            break
        free = free[~stuck]
    return step


def _deviation(factors: Values, rows: Values, targets: Values, least: float) -> float:
    return float(np.abs(np.log(targets / np.maximum(rows @ factors, least))).sum())
