"""Checks of the way of a stream: was its beginning or its end held back, did it take longer than
the server says?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.checks.client import reads_are_late
from llama_load.analysis.figures.check import Check, limited
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.own_times import LEAST_ANSWERS, own_times
from llama_load.analysis.figures.spoiled import E2EL, ITL, RATES, TPOT, TTFT, UPPER
from llama_load.analysis.statistics.first_gaps import EARLY_BY_GAP, sampled
from llama_load.analysis.statistics.last_gaps import last_gaps
from llama_load.ground.units import NS_PER_MS, quantity
from llama_load.run_folder.arithmetic.token_span import counts_of
from llama_load.run_folder.observed.records import Records

HELD = "held_back_ratio"
EARLY = "early_first_ratio"
# Fewer gaps than this show no pattern.
LEAST_GAPS = 8
# Events come together if the gap between them is below this share of the answer's usual gaps (their
# 75th percentile).
TOGETHER = 0.05
# A beginning was held back if so many events came with the first one, a tenth of all, and twice as
# many as ever later.
LEAST_HELD = 2
HELD_SHARE = 0.1
HELD_BY_LATER = 2
# Streams may take this much longer than the server's own time, in the mean: the event loop and the
# network.
LEAST_STRETCHED_MS = 5.0
# Where the means differ by less than this part of the differences in single answers, some of them
# took longer and others shorter.
STEADY = 0.5
# The excess of a first gap and the time that nothing else explains are one if the smaller is at
# least this part of the larger.
IN_FIRST_GAPS = 0.8
# Of the time that nothing else explains, answers in which both are one have at least this part.
IN_SUCH_ANSWERS = 0.5


def held_back(evidence: Evidence) -> Iterator[Check]:
    """Answers whose first events came together: a guardrail or a gateway held them back, so TTFT
    and TPOT are its. Or whose last events came long after the others (see `analysis.statistics.last_gaps`), so
    TPOT and E2EL are.

    Evidence: the arrival times of each answer's events. Speculative decoding sends tokens together,
    too, but the first one alone, from the prompt's step, and later ones as many at a time. Counts:
    no error.
    """
    ok = evidence.records.ok()
    judged = ok.where(ok.numbers("token_events") > LEAST_GAPS)
    if len(judged) < LEAST_ANSWERS:
        return
    held = [_held_beginnings(judged), _held_ends(evidence, judged)]
    held = [each for each in held if each.ratio > 0]
    if not held:
        return
    text = "; ".join(each.text for each in held)
    if reads_are_late(evidence):
        text += "; who held them back is not known, because the client's event loop was late"
        yield limited(HELD, None, text)
        return
    spoils = {name: None for each in held for name in each.spoils}
    text += ": something held them back"
    yield limited(HELD, max(each.ratio for each in held), text, spoils=tuple(spoils))


@dataclass(frozen=True, slots=True)
class _Held:
    """The share of answers of which a part was held back, in words, and what it spoils."""

    ratio: float
    text: str
    spoils: tuple[str, ...]


def _held_beginnings(judged: Records) -> _Held:
    events = np.concatenate([_held_events(batch) for batch in judged.batches("itl_ms")])
    held = events > 0
    if not held.any():
        return _Held(0.0, "", ())
    usual = np.median(events[held])
    text = f"in {int(held.sum())} of {quantity(len(judged), 'answer')} "
    text += f"the first {usual:.0f} events came together"
    return _Held(float(held.mean()), text, (TTFT, TPOT, ITL))


def _held_ends(evidence: Evidence, judged: Records) -> _Held:
    found = last_gaps(judged, evidence.sent)
    if found is None:
        return _Held(0.0, "", ())
    text = f"in {found.late} of {quantity(found.answers, 'answer')} "
    text += f"the last events came {found.gap_ms:.0f} ms after the others (median)"
    # what delays one event of each answer, a lost packet, delays first ones, too
    return _Held(found.ratio, text, (TTFT, TPOT, ITL, E2EL, RATES))


def _spoiled_by_ends(evidence: Evidence) -> tuple[str, ...]:
    """Users who wait longer for the end of their answers send fewer requests: another load, which
    TTFT and rates are of."""
    is_closed = evidence.gap_ms is None
    return (TTFT, TPOT, ITL, E2EL, RATES) if is_closed else (TPOT, ITL, E2EL, RATES)


def _held_events(batch: Records) -> NDArray[np.int64]:
    """For each answer, how many events came with the first one (that included); 0 where it was not
    held back."""
    sizes, values = batch.lists("itl_ms")
    begins = np.cumsum(sizes) - sizes
    held = np.zeros(len(sizes), dtype=np.int64)
    has_gaps = np.flatnonzero(sizes >= LEAST_GAPS)
    means_ms = (
        np.add.reduceat(values, begins[has_gaps]) / sizes[has_gaps]
        if len(has_gaps)
        else np.zeros(0)
    )
    # few: a percentile takes 50 us
    for row in has_gaps[values[begins[has_gaps]] < TOGETHER * means_ms]:
        held[row] = _held_in(values[begins[row] : begins[row] + sizes[row]])
    return held


def _held_in(gaps_ms: NDArray[np.float32]) -> int:
    """The events that came with the first one, of one answer."""
    is_apart = gaps_ms >= TOGETHER * np.percentile(gaps_ms, 75)
    places = np.flatnonzero(is_apart)
    if not len(places):
        return 0
    first = int(places[0])
    later = int(np.diff([*places, len(gaps_ms)]).max()) - 1
    is_held = first >= max(LEAST_HELD, HELD_SHARE * len(gaps_ms), HELD_BY_LATER * later)
    return first + 1 if is_held else 0


@dataclass(frozen=True, slots=True)
class _Spans:
    """Time from the first token of a stream to its last: as they arrived, and as the server
    generated them; means, ms. `apart_ms`: the median difference of both in an answer, in either
    direction; 0 where only sums are known. (Not the mean: the step of the token that ends an
    answer, which has no event, may contain the prompt of another.)"""

    took_ms: float
    own_ms: float
    apart_ms: float = 0.0


def stretched(evidence: Evidence) -> Iterator[Check]:
    """How much longer streams took, from the first token to the last, than the server's own time
    for them: relative to that. Or how much shorter, where each token has an event: a gateway had
    waited for them. Or some longer and others shorter: something delays events by different times.

    Evidence: the client's arrival times and the server's times of the same answers: llama-server's
    timings, or vLLM's histograms where all that they count are answers of this run. Means: no
    statistics.
    """
    name = "stretched_stream_ratio"
    spans = _of_answers(evidence) or _of_histograms(evidence)
    if spans is None:
        if _has_no_times(evidence):
            text = "the server reports no times of its own: streams that something paces would not show"
            yield limited(name, None, text)
        return
    text = f"streams took {spans.took_ms:.1f} ms from the first token to the last, the server {spans.own_ms:.1f} ms for them (means)"
    longer_ms = spans.took_ms - spans.own_ms
    shorter_ms = _shorter_ms(evidence, spans)
    beyond_ms = max(longer_ms, shorter_ms, spans.apart_ms)
    if beyond_ms < LEAST_STRETCHED_MS:
        yield limited(name, 0.0, text)
        return
    if reads_are_late(evidence):
        yield limited(
            name,
            None,
            f"{text}; whose time it is is not known, because the client's event loop was late",
        )
        return

    value = beyond_ms / spans.own_ms
    if shorter_ms == beyond_ms:
        text += ": something waited for tokens before it sent them"
        yield limited(name, value, text, spoils=(TTFT, TPOT, ITL, E2EL, RATES))
    elif longer_ms < spans.apart_ms * STEADY:
        text += f", apart by {spans.apart_ms:.1f} ms in single answers (median): something delays events by different times"
        spoils = (TTFT, TPOT, ITL, E2EL, RATES, UPPER)  # first and last events, too
        yield limited(name, value, text, spoils=spoils)
    elif (began_early := _began_early(evidence, longer_ms)) > 0:
        text += ": nearly all of it before the second event, so the first one was sent before its token"
        yield limited(EARLY, began_early, text)
    else:
        yield limited(name, value, text, spoils=_spoiled_by_ends(evidence))


def _began_early(evidence: Evidence, longer_ms: float) -> float:
    """The share of answers whose first gap is long, where the first gaps have nearly all of the
    time by which streams took longer than the server; else 0.

    In each answer where the server reports its time in each: the prompts of others make first gaps
    longer, too, and that is the server's own time.
    """
    streams = [
        stream for stream in sampled(evidence.records.ok()) if len(stream.gaps_ms) > 1
    ]
    if not streams:
        return 0.0
    firsts_ms = np.array([stream.gaps_ms[0] for stream in streams])
    usual_ms = np.array([np.median(stream.gaps_ms[1:]) for stream in streams])
    server_ms = np.array([stream.server_ms for stream in streams])
    took_ms = np.array([stream.gaps_ms.sum() for stream in streams])
    excess_ms = firsts_ms - usual_ms
    is_long = firsts_ms > EARLY_BY_GAP * usual_ms

    if np.isnan(server_ms).any():
        mean_ms = float(excess_ms.mean())
        smaller_ms = min(mean_ms, longer_ms)
        if smaller_ms < IN_FIRST_GAPS * max(mean_ms, longer_ms):
            return 0.0
        return float(is_long.mean())
    own_longer_ms = np.maximum(0.0, took_ms - server_ms)
    smaller = np.minimum(excess_ms, own_longer_ms)
    larger = np.maximum(excess_ms, own_longer_ms)
    is_early = is_long & (smaller >= IN_FIRST_GAPS * larger)
    if own_longer_ms[is_early].sum() < IN_SUCH_ANSWERS * own_longer_ms.sum():
        return 0.0
    return float(is_early.mean())


def _of_answers(evidence: Evidence) -> _Spans | None:
    """By the server's times in each answer; None where it reports too few."""
    ok = evidence.records.ok()
    own_ms = ok.numbers("server_predict_ms")
    took_ms = _took_ms(ok)
    known = (own_ms > 0) & ~np.isnan(took_ms) & ~(ok.numbers("choices") > 1)
    if int(known.sum()) < LEAST_ANSWERS:
        return None
    shown = ok.numbers("token_events") - 1
    unshown = ok.numbers("output_tokens") - 1 - shown
    # the token that ends an answer has no event, and took a step of the server's time
    has_end = (unshown == 1) & counts_of(ok).ends_itself & (shown > 0)
    own_ms = np.where(has_end, own_ms * shown / (shown + 1), own_ms)
    is_whole = known & ((unshown == 0) | has_end)
    apart_ms = 0.0
    if int(is_whole.sum()) >= LEAST_ANSWERS:
        apart_ms = float(np.median(np.abs(took_ms - own_ms)[is_whole]))
    return _Spans(float(took_ms[known].mean()), float(own_ms[known].mean()), apart_ms)


def _of_histograms(evidence: Evidence) -> _Spans | None:
    """By the sums of the server's histograms; None where they have other requests than the streamed
    answers of this run."""
    times = own_times(evidence)
    if times is None or times.decode_ms <= 0:
        return None
    took_ms = _took_ms(evidence.records.ok())
    return _Spans(float(took_ms.mean()), times.decode_ms / times.requests)


def _has_no_times(evidence: Evidence) -> bool:
    """Whether answers streamed, and the server reports its own times neither in them nor in
    histograms."""
    ok = evidence.records.ok()
    has_streams = (ok.numbers("token_events") > 1).any()
    has_times = ok.has("server_predict_ms").any()
    counters = evidence.counters
    has_times |= counters is not None and counters.times is not None
    return bool(has_streams and not has_times)


def _took_ms(ok: Records) -> NDArray[np.float64]:
    """From the first token to the last, ms; NaN where it did not stream."""
    first_ns = ok.optional_instants("first_token_mono_ns")
    last_ns = ok.optional_instants("last_token_mono_ns")
    return np.where(first_ns < 0, np.nan, (last_ns - first_ns) / NS_PER_MS)


def _shorter_ms(evidence: Evidence, spans: _Spans) -> float:
    """How much shorter streams took than the server for the tokens that they show, ms. 0 where
    tokens besides those that end answers have no event of their own: they may have come before the
    first or after the last, and may have taken longer than others."""
    ok = evidence.records.ok()
    steps = ok.numbers("output_tokens") - 1
    shown = ok.numbers("token_events") - 1
    if np.nansum(steps - shown - counts_of(ok).ends_itself) > 0:
        return 0.0
    share = float(np.nansum(shown) / max(1.0, np.nansum(steps)))
    return spans.own_ms * min(1.0, share) - spans.took_ms
