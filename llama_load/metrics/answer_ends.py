"""How answers ended: complete, cut by the context, or broken off by a failure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.failure_kind import FailureKind
from llama_load.observed.records import Records


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

    `length_means_full`: without max_tokens, an end by length means a full context (llama-server).
    """
    asked, got = ok.numbers("max_tokens"), ok.numbers("output_tokens")
    with np.errstate(invalid="ignore"):
        short = (got < asked) & ~ok.equals("token_source", "events")
    if length_means_full:
        short |= np.isnan(asked)
    return np.asarray(ok.equals("finish_reason", "length") & short)
