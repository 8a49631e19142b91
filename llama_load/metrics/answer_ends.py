"""How answers ended: complete, cut by the context, or broken off by a failure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.failure_kind import FailureKind
from llama_load.observed.records import Records

# A limit ends most of the answers that end early, and at least so many, at one length; prompts differ by more than this.
LEAST_CLIPPED, CLIPPED_SHARE, SAME_PROMPTS = 3, 0.5, 8


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


def _short_by_length(ok: Records) -> NDArray[np.bool_]:
    """Answers that ended by length before max_tokens, by the server's count."""
    asked, got = ok.numbers("max_tokens"), ok.numbers("output_tokens")
    short = (got < asked) & ~ok.equals("token_source", "events")
    return np.asarray(ok.equals("finish_reason", "length") & short, dtype=np.bool_)
