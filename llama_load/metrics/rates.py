"""Metrics over time: duration, the busiest second, the most requests in flight."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.table import Records
from llama_load.units import NS_PER_MS, NS_PER_S, ns_to_s


def duration_s(records: Records) -> float:
    """Benchmark duration, s: from the first request's start to the last one's end, failed ones included.

    Two requests, 0 to 3 s and 2 to 10 s: 10.0. Source: vLLM benchmarks/serve.py. Cancelled requests count until the cut.
    """
    if not len(records):
        return 0.0
    return ns_to_s(int(records.instants("ended_mono_ns").max() - records.instants("started_mono_ns").min()))


def token_times_ns(ok: Records) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """When the tokens of these answers arrived, ns, and how many at each of these instants: an entry a token event, or one at the
    end of an answer that was not streamed. Of some requests at a time: an event takes 60 bytes here.

    A request's tokens are spread evenly over its token events, so that events holding several tokens (vLLM under load) count as
    what they hold; vLLM's own bench counts events there.
    """
    for batch in ok.batches():
        is_streamed = batch.has("first_token_mono_ns")
        whole = batch.where(~is_streamed)
        yield _event_times_ns(batch.where(is_streamed))
        yield whole.instants("ended_mono_ns"), np.nan_to_num(whole.numbers("output_tokens"))


def _event_times_ns(streamed: Records) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    gaps = streamed.table["itl_ms"].combine_chunks()
    counts = np.asarray(gaps.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64)
    # All events of all requests in one array: each request's first event, then its gaps summed up from there.
    firsts = np.cumsum(counts + 1) - (counts + 1)
    steps = np.zeros(int(counts.sum()) + len(counts))
    is_gap = np.ones(len(steps), dtype=np.bool_)
    is_gap[firsts] = False
    steps[is_gap] = np.asarray(gaps.flatten().to_numpy(zero_copy_only=False), dtype=np.float64) * NS_PER_MS
    summed = np.cumsum(steps)
    # Only the time since the first event goes through a float: an instant over 2^53 ns (104 days) would be rounded.
    since_first_ns = np.rint(summed - np.repeat(summed[firsts], counts + 1)).astype(np.int64)
    tokens = streamed.numbers("output_tokens")
    weights = np.where(np.isnan(tokens), counts + 1, tokens) / (counts + 1)
    first_ns = streamed.instants("first_token_mono_ns")
    return np.repeat(first_ns, counts + 1) + since_first_ns, np.repeat(weights, counts + 1)


def peak_output_tok_per_s(ok: Records, start_ns: int) -> float:
    """Most output tokens in one whole second of the run, counted from its start (`start_ns`).

    Two requests that bring 10 one-token events each in the same second: 20.
    """
    in_second = np.zeros(1)
    for events_ns, weights in token_times_ns(ok.where(ok.has("first_token_mono_ns"))):
        seconds = np.maximum((events_ns - start_ns) // NS_PER_S, 0)
        more = np.asarray(np.bincount(seconds, weights=weights, minlength=len(in_second)), dtype=np.float64)
        more[: len(in_second)] += in_second
        in_second = more
    return float(in_second.max())


def peak_in_flight(records: Records) -> int:
    """Most requests under way at one instant, from start to end.

    0-2 s, 1-3 s, 2.5-4 s: 2. vLLM's bench counts every request that touches a whole second, which with short requests says
    more than ever were in flight; we say what was. A request that starts as another ends does not overlap it.
    """
    if not len(records):
        return 0
    starts = records.instants("started_mono_ns")
    ends = records.instants("ended_mono_ns")
    instants = np.concatenate((ends, starts))
    steps = np.concatenate((np.full(len(ends), -1), np.full(len(starts), 1)))
    order = np.lexsort((steps, instants))  # at one instant, ends come before starts
    return int(np.cumsum(steps[order]).max())
