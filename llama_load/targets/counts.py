"""The token counts of an answer: which source is used, and which counts are rejected as impossible.

Sources in order: `usage`, llama-server's `timings`, counted stream events. A count beyond its bound is rejected, reported in
`doubt`, and the next source is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.targets.answer import AnswerReader
from llama_load.targets.usage import speculated

# The most tokens that a chat template and a gateway's tool descriptions and system prompt add to a prompt.
TEMPLATE_ALLOWANCE = 4096
# Hidden reasoning has no bytes in the answer; its bound is the largest context.
LONGEST_REASONING = 2**20
# Events beyond the tokens: the last piece of a text that was held back, the parts of a tool call, one in fifty.
EXTRA_EVENTS, EVENTS_PER_EXTRA = 2, 50


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds for the counts of one request; None where unknown.

    `asked_tokens`: requested output tokens of all choices (max_tokens times n). `sent_bytes`: the request's body (rerank: once
    per document), where a token takes at least a byte; None with images. `received_bytes`: the answer's body. `merged_events`:
    token events that arrived together with a later one, as do those of a gateway that cuts tokens into pieces.
    """

    asked_tokens: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    merged_events: int = 0


NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of one request; None where unknown. `doubt` names the rejected counts."""

    prompt_tokens: int | None = None
    prompt_token_source: str | None = None  # "usage" or "timings" (processed and cached)
    cached_tokens: int | None = None
    processed_tokens: int | None = None  # of the prompt, without cached ones; reported by llama-server only
    output_tokens: int | None = None
    token_source: str | None = None  # "usage", "timings" or "events"
    reasoning_tokens: int | None = None
    event_tokens: tuple[int, ...] = ()
    first_event_tokens: int | None = None
    draft_tokens: int | None = None
    draft_accepted: int | None = None
    doubt: str | None = None


class _Doubts:
    """Passes possible counts, and collects the others."""

    def __init__(self) -> None:
        self.rejected: list[str] = []

    def __call__(self, source: str, what: str, value: int | None, most: int | None, why: str) -> int | None:
        """The value, None if it is above `most`: "usage: 96 output tokens where at most 64 were requested"."""
        if value is None or most is None or value <= most:
            return value
        self.rejected.append(f"{source}: {value} {what} where {why}")
        return None


def checked_counts(answer: AnswerReader, bounds: Bounds = NO_BOUNDS) -> Counts:
    """The counts of an answer that has ended."""
    possible = _Doubts()
    prompt, prompt_source, processed = _prompt(answer, bounds, possible)
    output, source = _output(answer, bounds, possible) if answer.generates else (None, None)
    reasoning = _reasoning(answer) if answer.generates else None
    if output is not None:
        reasoning = possible("usage", "reasoning tokens", reasoning, output, f"only {output} tokens were generated")
    event_tokens = answer.event_tokens(output) if source == "usage" else []
    drafted, accepted = _drafts(answer, output, possible)
    return Counts(
        prompt_tokens=prompt,
        prompt_token_source=prompt_source,
        cached_tokens=_cached(answer, prompt, bounds, possible),
        processed_tokens=processed,
        output_tokens=output,
        token_source=source,
        reasoning_tokens=reasoning,
        event_tokens=tuple(event_tokens),
        first_event_tokens=_first_event(answer, event_tokens, reasoning),
        draft_tokens=drafted,
        draft_accepted=accepted,
        doubt="; ".join(possible.rejected) or None,
    )


def _prompt(answer: AnswerReader, bounds: Bounds, possible: _Doubts) -> tuple[int | None, str | None, int | None]:
    """Prompt tokens, their source, and how many of them llama-server processed. 0 counts as unknown: some servers fill it in."""
    usage, timings = answer.usage, answer.timings
    most = None if bounds.sent_bytes is None else bounds.sent_bytes + TEMPLATE_ALLOWANCE
    why = f"{bounds.sent_bytes} bytes were sent"
    processed = None if timings is None else possible("timings", "processed prompt tokens", timings.prompt_n, most, why)
    if usage is not None and (reported := possible("usage", "prompt tokens", usage.prompt_tokens, most, why)):
        return reported, "usage", processed
    if timings is not None:
        reported = possible("timings", "prompt tokens", (timings.prompt_n or 0) + (timings.cache_n or 0), most, why)
        if reported:
            return reported, "timings", processed
    return None, None, processed


def _cached(answer: AnswerReader, prompt: int | None, bounds: Bounds, possible: _Doubts) -> int | None:
    """Prompt tokens that came from the server's cache: never more than the prompt has."""
    usage, timings = answer.usage, answer.timings
    details = usage.prompt_tokens_details if usage is not None else None
    sources = (
        ("usage", details.cached_tokens if details is not None else None),
        ("timings", timings.cache_n if timings is not None else None),
    )
    most = bounds.sent_bytes if prompt is None else prompt
    why = f"{bounds.sent_bytes} bytes were sent" if prompt is None else f"the prompt has {prompt}"
    for source, reported in sources:
        if (known := possible(source, "cached prompt tokens", reported, most, why)) is not None:
            return known
    return None


def _output(answer: AnswerReader, bounds: Bounds, possible: _Doubts) -> tuple[int | None, str | None]:
    """Output tokens and their source: "usage", else "timings", else the counted "events".

    The bound is max_tokens, or the number of events if that is larger; without max_tokens a token takes at least a byte of the
    answer, except hidden reasoning. 0 is rejected where there is an answer, and a count clearly below the events, each of which
    carries a token or more.
    """
    events = len(answer.token_ns)
    least = 1 if events or any(choice.pieces or choice.thoughts for choice in answer.choices) else 0
    if bounds.asked_tokens is not None:
        most, why = max(bounds.asked_tokens, events), f"at most {bounds.asked_tokens} were requested"
    elif bounds.received_bytes is not None:
        most = bounds.received_bytes + min(_reasoning(answer) or 0, LONGEST_REASONING)
        why = f"{bounds.received_bytes} bytes were received"
    else:
        most, why = None, ""
    usage, timings = answer.usage, answer.timings
    several = len(answer.choices) > 1
    if several and answer.streams:
        least = events
    sources = [
        ("usage", usage.completion_tokens if usage is not None else None),
        ("timings", timings.predicted_n if timings is not None else None),
    ]
    # With several choices llama-server counts only one of them, in both sources.
    seen = 0 if several else events - bounds.merged_events - EXTRA_EVENTS - events // EVENTS_PER_EXTRA
    if several and timings is not None:
        sources = []
    elif _differ(sources):
        (_, used), (_, timed) = sources
        possible.rejected.append(f"usage: {used} output tokens where the server's timings have {timed}")
        if events and used is not None and timed is not None and abs(timed - events) < abs(used - events):
            sources.reverse()
    for source, reported in sources:
        known = possible(source, "output tokens", reported, most, why)
        if known is None or known < least:
            continue
        if known < seen:
            possible.rejected.append(f"{source}: {known} output tokens where {events} events carried text")
            continue
        return known, source
    return (events, "events") if events else (None, None)


def _drafts(answer: AnswerReader, output: int | None, possible: _Doubts) -> tuple[int | None, int | None]:
    """Drafted tokens, and how many of them were accepted.

    A step of vLLM yields the accepted tokens and one more; of the last step, those beyond max_tokens are not sent. Its counts are
    rejected together if its histogram has another sum, or if they make more tokens than the answer has.
    """
    if answer.timings is not None:
        drafted = answer.timings.draft_n
        source, reported = "timings", answer.timings.draft_n_accepted
    elif (speculation := speculated(answer.metrics)) is not None:
        drafted, reported, source = speculation.num_draft_tokens, speculation.num_accepted_draft_tokens, "metrics"
        histogram = speculation.acceptance_histogram or []
        counted = sum(count * accepted for accepted, count in enumerate(histogram)) if histogram else reported
        if drafted is None or reported is None or reported != counted:
            possible.rejected.append(f"metrics: {reported} accepted draft tokens where the histogram has {counted}")
            return None, None
        least = reported + (speculation.num_spec_steps or 0) - len(histogram)
        if output is not None and possible(source, "tokens of drafts", least, output, f"only {output} were generated") is None:
            return None, None
    else:
        return None, None
    return drafted, possible(source, "accepted draft tokens", reported, drafted, f"only {drafted} were drafted")


def _differ(sources: Sequence[tuple[str, int | None]]) -> bool:
    """Whether both counts are given and differ by more than the token that ends an answer. (0 stands for unknown.)"""
    (_, one), (_, other) = sources
    return bool(one and other) and abs((one or 0) - (other or 0)) > 1


def _reasoning(answer: AnswerReader) -> int | None:
    details = answer.usage.completion_tokens_details if answer.usage is not None else None
    return details.reasoning_tokens if details is not None else None


def _first_event(answer: AnswerReader, event_tokens: list[int], reasoning: int | None) -> int | None:
    """Tokens generated until the first token event: from its usage, else the hidden reasoning before it + 1."""
    if event_tokens:
        return event_tokens[0]
    hidden = reasoning and answer.token_ns and not any(choice.thoughts for choice in answer.choices)
    return reasoning + 1 if reasoning and hidden else None
