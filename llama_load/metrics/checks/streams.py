"""Checks of the way of a stream: was its beginning held back, did it take longer than the server says?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.check import Check, limited
from llama_load.metrics.checks.client import reads_are_late
from llama_load.metrics.evidence import Evidence
from llama_load.observed.records import Records
from llama_load.units import NS_PER_MS, quantity

# Fewer answers or gaps than this show no pattern.
LEAST_ANSWERS, LEAST_GAPS = 10, 8
# Events come together if the gap between them is below this share of the answer's usual gaps (their 75th percentile).
TOGETHER = 0.05
# A beginning was held back if so many events came with the first one, a tenth of all, and twice as many as ever later.
LEAST_HELD, HELD_SHARE, HELD_BY_LATER = 2, 0.1, 2
# Streams may take this much longer than the server's own time, in the mean: the event loop and the network.
LEAST_STRETCHED_MS = 5.0


def held_back(evidence: Evidence) -> Iterator[Check]:
    """Answers whose first events came together: a guardrail or a gateway held them back, so TTFT and TPOT are its.

    Evidence: the arrival times of each answer's events. Speculative decoding sends tokens together, too, but the first one alone,
    from the prompt's step, and later ones as many at a time. Counts: no error.
    """
    name, ok = "held_back_ratio", evidence.records.ok()
    judged = ok.where(ok.numbers("token_events") > LEAST_GAPS)
    if len(judged) < LEAST_ANSWERS:
        return
    events = np.concatenate([_held_events(batch) for batch in judged.batches("itl_ms")])
    held = events > 0
    if not held.any():
        return
    text = f"in {int(held.sum())} of {quantity(len(judged), 'answer')} the first {np.median(events[held]):.0f} events came together"
    if reads_are_late(evidence):
        yield limited(name, None, f"{text}; who held them back is not known, because the client's event loop was late")
        return
    yield limited(name, float(held.mean()), f"{text}: something held them back")


def _held_events(batch: Records) -> NDArray[np.int64]:
    """For each answer, how many events came with the first one (that included); 0 where it was not held back."""
    sizes, values = batch.lists("itl_ms")
    begins = np.cumsum(sizes) - sizes
    held = np.zeros(len(sizes), dtype=np.int64)
    has_gaps = np.flatnonzero(sizes >= LEAST_GAPS)
    means_ms = np.add.reduceat(values, begins[has_gaps]) / sizes[has_gaps] if len(has_gaps) else np.zeros(0)
    for row in has_gaps[values[begins[has_gaps]] < TOGETHER * means_ms]:  # few: a percentile takes 50 us
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


def stretched(evidence: Evidence) -> Iterator[Check]:
    """How much longer streams took, from the first token to the last, than the server's own time for them: relative to that.

    Evidence: the client's arrival times and the server's times of the same answers (llama-server's timings). Means: no statistics.
    """
    name, ok = "stretched_stream_ratio", evidence.records.ok()
    first_ns, last_ns = ok.optional_instants("first_token_mono_ns"), ok.optional_instants("last_token_mono_ns")
    own_ms = ok.numbers("server_predict_ms")
    known = (own_ms > 0) & (first_ns >= 0) & ~(ok.numbers("choices") > 1)
    if int(known.sum()) < LEAST_ANSWERS:
        return
    took_ms = float(((last_ns - first_ns)[known] / NS_PER_MS).mean())
    own = float(own_ms[known].mean())
    text = f"streams took {took_ms:.1f} ms from the first token to the last, the server {own:.1f} ms for them (means)"
    value = max(0.0, took_ms / own - 1)
    if took_ms - own < LEAST_STRETCHED_MS:
        value = 0.0
    if value and reads_are_late(evidence):
        yield limited(name, None, f"{text}; whose time it is is not known, because the client's event loop was late")
        return
    yield limited(name, value, text)
