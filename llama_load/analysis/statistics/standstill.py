"""Whether the server stood still: one time without tokens that is much longer than any other.

Looked at are the longest gaps within streams. A server that stands still stops all streams that it
works on, so nearly all of those have a gap at that time. A prompt that is processed alone stops
them, too; then a first token ends the gap, and a long prompt explains a long one.

And the times in which requests waited and no stream was under way: usually one prompt is processed
then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.gap_times import COLUMNS, gap_times
from llama_load.ground.units import NS_PER_MS
from llama_load.run_folder.observed.records import Records

Instants = NDArray[np.int64]

# The longest gaps that are looked at.
MOST_GAPS = 256
# A standstill is this many times as long as any gap at another time. Gaps that contain the prompts
# of others are lognormal with sigma 0.9 or less: the longest of 1000 is 5 x the second in less than
# 1 of 200 runs.
LEAST_FACTOR = 5.0
# Shorter ones are the network's or a scheduler's.
LEAST_MS = 100.0
# Of the streams at that time, this share has a gap of at least half the length.
SHARE_SILENT = 0.9
SILENT_LENGTH = 0.5
# A prompt whose first token comes within this part of the gap around its end is processed in it.
AT_ITS_END = 0.2
# So many times without streams show how long they usually are.
FEWEST_SILENCES = 12


@dataclass(frozen=True, slots=True)
class Standstill:
    """A time without any token, and how many times as long as any other it is."""

    begin_ns: int
    end_ns: int
    factor: float
    streams: int  # that had to wait for their next token

    @property
    def lasted_ms(self) -> float:
        """Its length."""
        return (self.end_ns - self.begin_ns) / NS_PER_MS


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Times without tokens: where they begin and end."""

    begin_ns: Instants
    end_ns: Instants

    def overlapping(self, begin_ns: int, end_ns: int) -> NDArray[np.bool_]:
        """One bool per gap: whether it has a part of this time."""
        return np.asarray((self.begin_ns < end_ns) & (self.end_ns > begin_ns))


def standstill(
    records: Records, has_known_prompt: NDArray[np.bool_]
) -> Standstill | None:
    """The time in which the server stood still; None where none stands out. `has_known_prompt`: of
    which requests it is known how much of the prompt was processed.

    300 answers with gaps of 20 ms, in one second four of them have a gap of 1 s: that second, 50.
    """
    gaps = _longest_gaps(records)
    found = _of_streams(records, gaps)
    if found is None and has_known_prompt.all():
        return _between_streams(records, gaps)
    return found


def _of_streams(records: Records, gaps: _Gaps) -> Standstill | None:
    """A time without tokens for the streams that were under way."""
    if len(gaps.begin_ns) < 2:
        return None
    lengths = gaps.end_ns - gaps.begin_ns
    begin_ns = int(gaps.begin_ns[0])
    end_ns = int(gaps.end_ns[0])
    at_once = gaps.overlapping(begin_ns, end_ns)
    other_ns = int(lengths[~at_once].max(initial=lengths[-1]))
    factor = float(lengths[0] / max(1, other_ns))
    if factor < LEAST_FACTOR or lengths[0] < LEAST_MS * NS_PER_MS:
        return None

    is_long = at_once & (lengths >= SILENT_LENGTH * lengths[0])
    silent = int(is_long.sum())
    first_ns = records.optional_instants("first_token_mono_ns")
    last_ns = records.optional_instants("last_token_mono_ns")
    middle_ns = (begin_ns + end_ns) // 2
    streams = int(
        ((first_ns >= 0) & (first_ns <= middle_ns) & (last_ns >= middle_ns)).sum()
    )
    if silent < SHARE_SILENT * streams or _is_a_prompt(
        records, first_ns, begin_ns, end_ns, factor
    ):
        return None
    begin_ns = int(gaps.begin_ns[is_long].max())
    end_ns = int(gaps.end_ns[is_long].min())
    return Standstill(begin_ns, end_ns, factor, silent) if end_ns > begin_ns else None


def _between_streams(records: Records, gaps: _Gaps) -> Standstill | None:
    """A time without tokens in which requests waited, with no stream under way, after the first
    token of all (before that the server may be cold)."""
    silences = _silences(records)
    if len(silences.begin_ns) < FEWEST_SILENCES:
        return None
    lengths = silences.end_ns - silences.begin_ns
    longest = int(np.argmax(lengths))
    longest_gap_ns = int((gaps.end_ns - gaps.begin_ns).max(initial=1))
    other_ns = max(longest_gap_ns, int(np.delete(lengths, longest).max()))
    factor = float(lengths[longest] / other_ns)
    if factor < LEAST_FACTOR or lengths[longest] < LEAST_MS * NS_PER_MS:
        return None

    begin_ns = int(silences.begin_ns[longest])
    end_ns = int(silences.end_ns[longest])
    first_ns = records.optional_instants("first_token_mono_ns")
    if _is_a_prompt(records, first_ns, begin_ns, end_ns, factor):
        return None
    waited = (records.instants("started_mono_ns") < end_ns) & (first_ns >= end_ns)
    return Standstill(begin_ns, end_ns, factor, int(waited.sum()))


def _silences(records: Records) -> _Gaps:
    """The times from the end of all streams, or from when a request waits, to the next first token;
    in their order."""
    streamed = records.where(records.has("first_token_mono_ns"))
    first_ns = streamed.optional_instants("first_token_mono_ns")
    order = np.argsort(first_ns, kind="stable")
    first_ns = first_ns[order]
    started_ns = streamed.instants("started_mono_ns")[order]
    last_ns = streamed.optional_instants("last_token_mono_ns")[order]
    ended_ns = np.maximum.accumulate(np.maximum(last_ns, first_ns))[:-1]
    waits_ns = np.minimum.accumulate(started_ns[::-1])[::-1][1:]
    begin_ns = np.maximum(ended_ns, waits_ns)
    end_ns = first_ns[1:]
    is_silent = begin_ns < end_ns
    return _Gaps(begin_ns[is_silent], end_ns[is_silent])


def _is_a_prompt(
    records: Records, first_ns: Instants, begin_ns: int, end_ns: int, factor: float
) -> bool:
    """Whether a prompt that is as much longer than others explains it."""
    reach_ns = AT_ITS_END * (end_ns - begin_ns)
    cached = np.nan_to_num(records.numbers("cached_tokens"))
    tokens = records.numbers("prompt_tokens") - cached
    is_then = (np.abs(first_ns - end_ns) <= reach_ns) & (tokens > 0)
    if not is_then.any():
        return False
    return bool(tokens[is_then].max() >= factor / 2 * np.nanmedian(tokens))


def _longest_gaps(records: Records) -> _Gaps:
    """The longest gaps of all streams, at most `MOST_GAPS`; of equal ones the first."""
    none = np.zeros(0, dtype=np.int64)
    longest = _Gaps(none, none)
    for batch in records.batches(*COLUMNS):
        longest = _longest_of(longest, batch)
    return longest


def _longest_of(known: _Gaps, batch: Records) -> _Gaps:
    """The longest of the known gaps and of those in a batch of requests."""
    longer_than_ns = -1
    if len(known.begin_ns) == MOST_GAPS:
        longer_than_ns = int(known.end_ns[-1] - known.begin_ns[-1])
    sizes, gaps_ms = batch.lists("itl_ms")
    lasted_ns = np.rint(gaps_ms * np.float64(NS_PER_MS)).astype(np.int64)
    is_longer = lasted_ns > longer_than_ns
    if not is_longer.any():
        return known

    is_streamed = np.repeat(batch.has("first_token_mono_ns"), sizes)
    chosen = is_longer & is_streamed
    own_end_ns = gap_times(batch).ended_ns[chosen]
    own_begin_ns = own_end_ns - lasted_ns[chosen]
    begin_ns = np.concatenate((known.begin_ns, own_begin_ns))
    end_ns = np.concatenate((known.end_ns, own_end_ns))
    order = np.argsort(begin_ns - end_ns, kind="stable")[:MOST_GAPS]
    return _Gaps(begin_ns[order], end_ns[order])
