"""How answers ended: complete, cut by the context, or broken off by a failure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.failure_kind import FailureKind
from llama_load.observed.records import Records
from llama_load.targets.answer_form import FREE
from llama_load.units import NS_PER_MS

# A limit ends most of the answers that end early, and at least so many, at one length; prompts differ by more than this.
LEAST_CLIPPED, CLIPPED_SHARE, SAME_PROMPTS = 3, 0.5, 8

# A time limit ends so many answers, and this share, within one gap of the longest; so many times as many as end within any other
# such time; while this share of the answers ends before.
LEAST_TIMED, TIMED_SHARE, TIMED_PEAK, SHORTER_SHARE = 8, 0.1, 4, 0.1
# Or answers of which some have this many times as many tokens as others.
DIFFERENT_LENGTHS = 1.2
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
    begun = failed.has("first_token_mono_ns") & ~failed.equals("status", FailureKind.FIRST_TOKEN_TIMEOUT)  # that came, but too late
    return AnswerEnds(len(ok) - cut, cut, int(begun.sum()))


def cut_by_context(ok: Records, *, length_means_full: bool) -> NDArray[np.bool_]:
    """One bool per successful answer: whether it ended by length before max_tokens. Counted stream events cannot show it.

    `length_means_full`: without max_tokens, an end by length means a full context (llama-server). Answers that a lower limit of the
    way cut (see `clipped`) are not among them.
    """
    short = _short_by_length(ok)
    if length_means_full:
        short |= ok.equals("finish_reason", "length") & np.isnan(ok.numbers("max_tokens"))
    return np.asarray(short & ~clipped(ok), dtype=np.bool_)


def clipped(ok: Records) -> NDArray[np.bool_]:
    """One bool per successful answer: whether a lower max_tokens than was asked for ended it, such as a gateway's.

    A full context ends answers at one sum of prompt and answer, a limit at one length of the answer, whatever the prompts'.
    16 answers of 64 tokens to prompts of 20 to 400, all asked for 256: all. Prompts of one length do not tell both apart.
    """
    short = _short_by_length(ok)
    none = np.zeros(len(ok), dtype=np.bool_)
    if short.sum() < LEAST_CLIPPED:
        return none
    got, prompts = ok.numbers("output_tokens"), ok.numbers("prompt_tokens")
    lengths, counts = np.unique(got[short], return_counts=True)
    at_limit = short & (got == lengths[np.argmax(counts)])
    known = prompts[at_limit & ~np.isnan(prompts)]
    is_limit = at_limit.sum() >= max(LEAST_CLIPPED, CLIPPED_SHARE * short.sum())
    if not is_limit or not len(known) or np.ptp(known) < SAME_PROMPTS:
        return none
    return np.asarray(at_limit, dtype=np.bool_)


def timed_out(ok: Records) -> NDArray[np.bool_]:
    """One bool per successful answer: whether a time limit ended it, such as a gateway's, which says that it ended by itself.

    Free answers of different texts that end by themselves last for different times. Where many last as long as the longest, to a
    gap, something ended them. 30 answers of 0.2 to 1.2 s, 20 more of 1.18 to 1.2 s with gaps of 20 ms: 20 and a few.
    """
    none = np.zeros(len(ok), dtype=np.bool_)
    first_ns = ok.optional_instants("first_token_mono_ns")
    last_ns = ok.optional_instants("last_token_mono_ns")
    events = ok.numbers("token_events")
    judged = (first_ns >= 0) & (last_ns > first_ns) & (events >= 2) & ok.equals("finish_reason", "stop")
    judged &= ok.has("output_sha256") & (~ok.has("answer_form") | ok.equals("answer_form", FREE))
    if judged.sum() < LEAST_TIMED:
        return none
    took_ms = (last_ns - first_ns) / NS_PER_MS
    gap_ms = float(np.median(took_ms[judged] / (events[judged] - 1)))
    longest_ms = float(took_ms[judged].max())
    if longest_ms < LEAST_TIMED_TOKENS * gap_ms:
        return none

    at_limit = judged & (took_ms > longest_ms - 1.5 * gap_ms)
    texts = ok.strings("output_sha256")
    different = len({texts[place] for place in np.flatnonzero(at_limit)})
    if different < max(LEAST_TIMED, TIMED_SHARE * judged.sum()):
        return none
    others = took_ms[judged & ~at_limit]
    short, long = np.quantile(events[at_limit], (0.1, 0.9))
    if len(others) < SHORTER_SHARE * judged.sum() and long < DIFFERENT_LENGTHS * short:
        return none  # all answers have one length
    usual = np.histogram(others, np.arange(0.0, longest_ms + 1.5 * gap_ms, 1.5 * gap_ms))[0].max(initial=1)
    return np.asarray(at_limit, dtype=np.bool_) if different >= TIMED_PEAK * usual else none


def _short_by_length(ok: Records) -> NDArray[np.bool_]:
    """Answers that ended by length before max_tokens, by the server's count."""
    asked, got = ok.numbers("max_tokens"), ok.numbers("output_tokens")
    short = (got < asked) & ~ok.equals("token_source", "events")
    return np.asarray(ok.equals("finish_reason", "length") & short, dtype=np.bool_)
