"""The lengths of an answer's texts, and with them the tokens between its first and its last token
event."""

from __future__ import annotations

import math
from dataclasses import dataclass

from llama_load.run_folder.arithmetic.token_span import (
    BY_LENGTH,
    AnswerCounts,
    all_in_events,
    tokens_between,
)
from llama_load.servers.answer import AnswerReader
from llama_load.servers.choice_text import is_visible
from llama_load.servers.counts import Counts


@dataclass(frozen=True, slots=True)
class TextSizes:
    """Characters and bytes of a generated text and of its first token event, characters of its
    longest event (None: each token has an event) and of its tool calls (None: it has none)."""

    chars: int
    bytes: int
    first_chars: int | None
    first_bytes: int | None
    longest_chars: int | None
    call_chars: int | None

    @classmethod
    def of(cls, answer: AnswerReader, text: str, tokens: int | None) -> TextSizes:
        """Those of an answer with this whole text and so many tokens."""
        call_chars = None
        if answer.calls:
            call_chars = 0
            for call in answer.calls:
                call_chars += len(call.name) + len(call.arguments)

        first_chars = None
        first_bytes = None
        first = _first_text(answer)
        if first is not None:
            first_chars = len(first)
            first_bytes = _bytes_of(first)

        longest_chars = None
        if first is not None and tokens is not None and tokens > len(answer.token_ns):
            longest_chars = max(map(len, (*answer.thoughts, *answer.pieces)))

        return cls(
            len(text),
            _bytes_of(text),
            first_chars,
            first_bytes,
            longest_chars,
            call_chars,
        )


def _bytes_of(text: str) -> int:
    """How many bytes it takes in UTF-8, with the halves of broken surrogate pairs."""
    return len(text.encode("utf-8", "surrogatepass"))


def _first_text(answer: AnswerReader) -> str | None:
    """The text of the first token event: the first that a reader could see. Reasoning comes before
    the answer."""
    if not answer.token_ns or answer.others:
        return None

    for piece in answer.thoughts or answer.pieces:
        if is_visible(piece):
            return piece

    return None


def tokens_between_events(
    answer: AnswerReader, counts: Counts, sizes: TextSizes, *, choices: int
) -> float | None:
    """Tokens between the first and the last token event, as far as this answer alone shows; None:
    not known. (A report judges the answers of a server together.)"""
    if counts.output_tokens is None or len(answer.token_ns) < 2:
        return None
    shows_reasoning = (
        answer.first_answer_ns is not None
        and answer.first_answer_ns > answer.token_ns[0]
    )

    first_tokens = math.nan
    if counts.event_tokens:
        first_tokens = float(counts.first_event_tokens or 0)

    first_chars = math.nan
    if sizes.first_chars is not None:
        first_chars = float(sizes.first_chars)

    longest_chars = math.nan
    if sizes.longest_chars is not None:
        longest_chars = float(sizes.longest_chars)

    finish = answer.finish_reason
    of = AnswerCounts(
        tokens=float(counts.output_tokens),
        events=float(len(answer.token_ns)),
        blanks=float(len(answer.blank_ns)),
        reasoning=float(counts.reasoning_tokens or 0),
        shows_reasoning=shows_reasoning,
        accepted=float(counts.draft_accepted or 0),
        wide=float(sizes.bytes - sizes.chars),
        chars=float(sizes.chars + (sizes.call_chars or 0)),
        first_tokens=first_tokens,
        first_chars=first_chars,
        longest_chars=longest_chars,
        first_wide=float((sizes.first_bytes or 0) - (sizes.first_chars or 0)),
        ends_itself=finish is not None and finish not in BY_LENGTH,
        choices=float(choices),
    )
    simple = all_in_events(of)
    if simple is not None:
        return simple

    between = float(tokens_between(of).likely)
    if math.isnan(between):
        return None

    return between
