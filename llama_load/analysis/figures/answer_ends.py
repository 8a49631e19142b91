"""How answers ended: complete, cut by the context, or broken off by a failure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.failure_kind import FailureKind
from llama_load.ground.units import NS_PER_MS
from llama_load.run_folder.observed.records import Records
from llama_load.servers.answer_form import FREE

# A limit ends most of the answers that end early, and at least so many, at one length; prompts
# differ by more than this.
LEAST_CLIPPED = 3
CLIPPED_SHARE = 0.5
SAME_PROMPTS = 8

# A time limit ends so many answers, and this share, within one gap of the longest; so many times as
# many as end within any other such time; while this share of the answers ends before.
LEAST_TIMED = 8
TIMED_SHARE = 0.1
TIMED_PEAK = 4
SHORTER_SHARE = 0.1
# Or answers of which some have this many times as many tokens as others.
DIFFERENT_LENGTHS = 1.2
# Or times that scatter this much less than the lengths.
LESS_SCATTER = 0.75
LEAST_SPAN = 2
# Shorter answers are alike by chance.
LEAST_TIMED_TOKENS = 12


@dataclass(frozen=True, slots=True)
class AnswerEnds:
    """How answers ended."""

    complete: int  # successful
    cut_by_context: int  # successful, but ended because the context was full
    broken_off: int  # failed requests that had begun to answer


def answer_ends(records: Records, *, length_means_full: bool) -> AnswerEnds:
    """How the answers of these requests ended; `length_means_full` as of `cut_by_context`."""
    ok = records.ok()
    cut = int(cut_by_context(ok, length_means_full=length_means_full).sum())
    failed = records.failed()
    # that came, but too late
    begun = failed.has("first_token_mono_ns") & ~failed.equals(
        "status", FailureKind.FIRST_TOKEN_TIMEOUT
    )
    return AnswerEnds(len(ok) - cut, cut, int(begun.sum()))


def cut_by_context(ok: Records, *, length_means_full: bool) -> NDArray[np.bool_]:
    """One bool per successful answer: whether it ended by length before max_tokens. Counted stream
    events cannot show it.

    `length_means_full`: without max_tokens, an end by length means a full context (llama-server).
    Answers that a lower limit of the way cut (see `clipped`) are not among them.
    """
    short = _short_by_length(ok)
    if length_means_full:
        short |= ok.equals("finish_reason", "length") & np.isnan(
            ok.numbers("max_tokens")
        )
    return np.asarray(short & ~clipped(ok), dtype=np.bool_)


def clipped(ok: Records) -> NDArray[np.bool_]:
    """One bool per successful answer: whether a lower max_tokens than was asked for ended it, such
    as a gateway's.

    A full context ends answers at one sum of prompt and answer, a limit at one length of the
    answer, whatever the prompts'. 16 answers of 64 tokens to prompts of 20 to 400, all asked for
    256: all. Prompts of one length do not tell both apart.
    """
    short = _short_by_length(ok)
    none = np.zeros(len(ok), dtype=np.bool_)
    if short.sum() < LEAST_CLIPPED:
        return none
    got = ok.numbers("output_tokens")
    prompts = ok.numbers("prompt_tokens")
    lengths, counts = np.unique(got[short], return_counts=True)
    at_limit = short & (got == lengths[np.argmax(counts)])
    known = prompts[at_limit & ~np.isnan(prompts)]
    is_limit = at_limit.sum() >= max(LEAST_CLIPPED, CLIPPED_SHARE * short.sum())
    if not is_limit or not len(known) or np.ptp(known) < SAME_PROMPTS:
        return none
    return np.asarray(at_limit, dtype=np.bool_)


def timed_out(ok: Records) -> NDArray[np.bool_]:
    """One bool per successful answer: whether a time limit ended it, such as a gateway's, which
    says that it ended by itself.

    Free answers of different texts that end by themselves last for different times. Where many last
    as long as the longest, to a gap, something ended them. 30 answers of 0.2 to 1.2 s, 20 more of
    1.18 to 1.2 s with gaps of 20 ms: 20 and a few.
    """
    first_ns = ok.optional_instants("first_token_mono_ns")
    last_ns = ok.optional_instants("last_token_mono_ns")
    took_ms = np.where(first_ns < 0, np.nan, (last_ns - first_ns) / NS_PER_MS)
    judged = _ended_themselves(ok) & (took_ms > 0)
    events = ok.numbers("token_events")
    found = _at_limit(ok, took_ms, took_ms / np.maximum(1.0, events - 1), judged)
    if found is None or found.is_a_limit:
        return _rows(found, ok)

    is_limit = _scatters_less(found, judged, took_ms, events)
    return _rows(found if is_limit else None, ok)


def cut_at_a_size(ok: Records) -> NDArray[np.bool_]:
    """One bool per successful answer: whether a largest number of characters ended it, such as a
    gateway's, which says that it ended by itself.

    As of `timed_out`: many free answers of different texts are as long as the longest, to a token.
    30 answers of 50 to 200 characters, 20 more of 196 to 200, 5 a token: 20 and a few.
    """
    chars = ok.numbers("output_chars")
    judged = _ended_themselves(ok) & (chars > 0)
    events = np.maximum(1.0, ok.numbers("token_events"))
    found = _at_limit(ok, chars, chars / events, judged)
    if found is None or (found.is_a_limit and found.others > 0):
        return _rows(found, ok)

    # where no answer is shorter, all may have one form, such as that of a number of 36 digits
    has_form = np.ptp(chars[found.rows]) == 0
    is_limit = found.is_a_limit or _scatters_less(found, judged, chars, events)
    return _rows(found if is_limit and not has_form else None, ok)


@dataclass(frozen=True, slots=True)
class _AtLimit:
    """The answers that are as long as the longest, how many are shorter, and whether so many more
    have that length than any other that it is a limit."""

    rows: NDArray[np.bool_]
    others: int
    is_a_limit: bool


def _ended_themselves(ok: Records) -> NDArray[np.bool_]:
    """Free answers of two events and more that say that they ended by themselves."""
    is_free = ~ok.has("answer_form") | ok.equals("answer_form", FREE)
    ended = ok.equals("finish_reason", "stop") & (ok.numbers("token_events") >= 2)
    return np.asarray(ended & is_free & ok.has("output_sha256"), dtype=np.bool_)


def _at_limit(
    ok: Records,
    lengths: NDArray[np.float64],
    of_token: NDArray[np.float64],
    judged: NDArray[np.bool_],
) -> _AtLimit | None:
    """The judged answers with the largest length (a time, characters), to a token's; None where
    they are too few, or nearly all are that long for another reason."""
    if judged.sum() < LEAST_TIMED:
        return None
    step = 1.5 * float(np.median(of_token[judged]))
    longest = float(lengths[judged].max())
    if longest < LEAST_TIMED_TOKENS * step / 1.5:
        return None

    rows = judged & (lengths > longest - step)
    texts = ok.strings("output_sha256")
    different = len({texts[place] for place in np.flatnonzero(rows)})
    if different < max(LEAST_TIMED, TIMED_SHARE * judged.sum()):
        return None
    others = lengths[judged & ~rows]
    edges = np.arange(0.0, longest + step, step)
    usual = int(np.histogram(others, edges)[0].max(initial=1))
    spread = ok.numbers("token_events")[rows]
    short, long = np.quantile(spread, (0.1, 0.9))
    are_enough = len(others) >= SHORTER_SHARE * judged.sum()
    are_different = are_enough or long >= DIFFERENT_LENGTHS * short
    is_a_limit = bool(are_different and different >= TIMED_PEAK * usual)
    return _AtLimit(np.asarray(rows, dtype=np.bool_), len(others), is_a_limit)


def _scatters_less(
    found: _AtLimit,
    judged: NDArray[np.bool_],
    lengths: NDArray[np.float64],
    events: NDArray[np.float64],
) -> bool:
    """Whether nearly all answers are of about one length, and differ less in it than in their
    events. Of answers that end by themselves the times and characters differ as the events do, and
    by their paces and words; at a limit less than the events."""
    of_events = events[found.rows]
    short, long = np.quantile(of_events, (0.1, 0.9))
    few = found.others < SHORTER_SHARE * judged.sum()
    if not few or long >= DIFFERENT_LENGTHS * short or np.ptp(of_events) < LEAST_SPAN:
        return False
    scatter = _scatter(lengths[found.rows])
    return bool(scatter < LESS_SCATTER * _scatter(of_events))


def _rows(found: _AtLimit | None, ok: Records) -> NDArray[np.bool_]:
    return np.zeros(len(ok), dtype=np.bool_) if found is None else found.rows


def _scatter(values: NDArray[np.float64]) -> float:
    return float(np.log(values).std())


def _short_by_length(ok: Records) -> NDArray[np.bool_]:
    """Answers that ended by length before max_tokens, by the server's count. Where as many events
    came as were asked for, the count is too low, and not the answer short."""
    asked = ok.numbers("max_tokens")
    got = ok.numbers("output_tokens")
    short = (got < asked) & ~ok.equals("token_source", "events")
    short &= ~(ok.numbers("token_events") >= asked)
    return np.asarray(ok.equals("finish_reason", "length") & short, dtype=np.bool_)
