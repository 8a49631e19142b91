"""The token counts of an answer: which source is used, and which counts are rejected as impossible.

Sources in order: `usage`, llama-server's `timings`, counted stream events. A count beyond its bound
is rejected, reported in `doubt`, and the next source is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from llama_load.servers.answer import AnswerReader
from llama_load.servers.usage import speculated

# The most tokens that a chat template, and a gateway with its tools and system prompt, add to a
# prompt.
TEMPLATE_ALLOWANCE = 4096
# Hidden reasoning has no bytes in the answer; its bound is the largest context.
LONGEST_REASONING = 2**20
# An answer may have this many more events than tokens: the last piece of a text that was held back,
# the parts of a tool call, and one in fifty.
EXTRA_EVENTS = 2
EVENTS_PER_EXTRA = 50


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds for the counts of one request; None where unknown.

    `asked_tokens`: requested output tokens of all choices (max_tokens times n). `sent_bytes`: the
    request's body (rerank: once per document), where a token takes at least a byte; None with
    images. `received_bytes`: the answer's body. `merged_events`: token events that arrived together
    with a later one, as do those of a gateway that cuts tokens into pieces.
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
    # "usage" or "timings" (processed and cached)
    prompt_token_source: str | None = None
    cached_tokens: int | None = None
    # of the prompt, without cached ones; reported by llama-server only
    processed_tokens: int | None = None
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

    def __call__(
        self, source: str, what: str, value: int | None, most: int | None, why: str
    ) -> int | None:
        """The value; None if it is above `most`.

        Noted then: "usage: 96 output tokens where at most 64 were requested".
        """
        if value is None or most is None or value <= most:
            return value
        self.rejected.append(f"{source}: {value} {what} where {why}")
        return None


def checked_counts(answer: AnswerReader, bounds: Bounds = NO_BOUNDS) -> Counts:
    """The counts of an answer that has ended."""
    possible = _Doubts()
    prompt, prompt_source, processed = _prompt(answer, bounds, possible)
    output = None
    source = None
    reasoning = None
    if answer.generates:
        output, source = _output(answer, bounds, possible)
        reasoning = _reasoning(answer)
    if output is not None:
        why = f"only {output} tokens were generated"
        reasoning = possible("usage", "reasoning tokens", reasoning, output, why)

    if answer.generates:
        _compare_with_total(answer, possible)
    event_tokens = []
    if source == "usage" and output is not None and not _thoughts_beside(answer):
        event_tokens = answer.event_tokens(output)
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


def _compare_with_total(answer: AnswerReader, possible: _Doubts) -> None:
    """Note a total that is larger than its parts: tokens that are in neither, such as Gemini's
    thoughts, or cached ones of the prompt."""
    usage = answer.usage
    if usage is None or not usage.prompt_tokens or not usage.completion_tokens:
        return
    parts = usage.prompt_tokens + usage.completion_tokens
    parts += usage.thoughts_beside
    if usage.total_tokens is not None and usage.total_tokens > parts:
        possible.rejected.append(
            f"usage: {usage.prompt_tokens} + {usage.completion_tokens} tokens of prompt and answer "
            f"where the total is {usage.total_tokens}"
        )


def _prompt(
    answer: AnswerReader, bounds: Bounds, possible: _Doubts
) -> tuple[int | None, str | None, int | None]:
    """Prompt tokens, their source, and how many of them llama-server processed.

    0 counts as unknown: some servers fill it in.
    """
    usage = answer.usage
    timings = answer.timings
    most = None
    if bounds.sent_bytes is not None:
        most = bounds.sent_bytes + TEMPLATE_ALLOWANCE
    why = f"{bounds.sent_bytes} bytes were sent"

    processed = None
    if timings is not None:
        processed = possible(
            "timings", "processed prompt tokens", timings.prompt_n, most, why
        )

    if usage is not None:
        reported = possible("usage", "prompt tokens", usage.prompt_tokens, most, why)
        if reported:
            return reported, "usage", processed

    if timings is not None:
        of_both = (timings.prompt_n or 0) + (timings.cache_n or 0)
        reported = possible("timings", "prompt tokens", of_both, most, why)
        if reported:
            return reported, "timings", processed
    return None, None, processed


def _cached(
    answer: AnswerReader, prompt: int | None, bounds: Bounds, possible: _Doubts
) -> int | None:
    """Prompt tokens that came from the server's cache: never more than the prompt has."""
    if prompt is None:
        most = bounds.sent_bytes
        why = f"{bounds.sent_bytes} bytes were sent"
    else:
        most = prompt
        why = f"the prompt has {prompt}"

    if answer.usage is not None:
        known = possible(
            "usage", "cached prompt tokens", answer.usage.cached, most, why
        )
        if known is not None:
            return known

    if answer.timings is not None:
        return possible(
            "timings", "cached prompt tokens", answer.timings.cache_n, most, why
        )
    return None


def _output(
    answer: AnswerReader, bounds: Bounds, possible: _Doubts
) -> tuple[int | None, str | None]:
    """Output tokens and their source: "usage", else "timings", else the counted "events".

    The bound is max_tokens, or the number of events if that is larger; without max_tokens a token
    takes at least a byte of the answer, except hidden reasoning. 0 is rejected where there is an
    answer, and a count clearly below the events, each of which carries a token or more.
    """
    events = len(answer.token_ns)
    most, why = _most_output(answer, bounds)
    least, least_by_events = _least_output(answer, bounds)
    for source, reported in _output_sources(answer, possible):
        known = possible(source, "output tokens", reported, most, why)
        if known is None or known < least:
            continue
        if known < least_by_events:
            text = f"{source}: {known} output tokens where {events} events carried text"
            possible.rejected.append(text)
            continue
        return known, source

    if events:
        return events, "events"
    return None, None


def _most_output(answer: AnswerReader, bounds: Bounds) -> tuple[int | None, str]:
    """The most output tokens that are possible, and why; None where that is not known."""
    if bounds.asked_tokens is not None:
        most = max(bounds.asked_tokens, len(answer.token_ns)) + _thoughts_beside(answer)
        return most, f"at most {bounds.asked_tokens} were requested"
    if bounds.received_bytes is not None:
        hidden = min(_reasoning(answer) or 0, LONGEST_REASONING)
        return (
            bounds.received_bytes + hidden,
            f"{bounds.received_bytes} bytes were received",
        )
    return None, ""


def _least_output(answer: AnswerReader, bounds: Bounds) -> tuple[int, int]:
    """The least output tokens that count as known, and the least that the events allow."""
    events = len(answer.token_ns)
    choices = answer.choices
    has_answer = any(choice.pieces or choice.thoughts for choice in choices)
    least = 1 if events or has_answer else 0
    if len(choices) > 1:
        return (events if answer.streams else least), 0

    extra = EXTRA_EVENTS + events // EVENTS_PER_EXTRA
    return least, events - bounds.merged_events - extra


def _output_sources(
    answer: AnswerReader, possible: _Doubts
) -> list[tuple[str, int | None]]:
    """What the server reports as output tokens, the better source first."""
    usage = answer.usage
    timings = answer.timings
    used = None
    if usage is not None and usage.completion_tokens is not None:
        used = usage.completion_tokens + usage.thoughts_beside
    if timings is None:
        return [("usage", used)]
    # With several choices llama-server counts only one of them, in both sources.
    if len(answer.choices) > 1:
        return []

    timed = timings.predicted_n
    if usage is None:
        return [("timings", timed)]
    sources = [("usage", used), ("timings", timed)]
    # 0 stands for unknown; the token that ends an answer may be counted or not.
    if used and timed and abs(used - timed) > 1:
        text = f"usage: {used} output tokens where the server's timings have {timed}"
        possible.rejected.append(text)
        events = len(answer.token_ns)
        if events and abs(timed - events) < abs(used - events):
            sources.reverse()
    return sources


def _drafts(
    answer: AnswerReader, output: int | None, possible: _Doubts
) -> tuple[int | None, int | None]:
    """Drafted tokens, and how many of them were accepted.

    A step of vLLM yields the accepted tokens and one more; of the last step, those beyond
    max_tokens are not sent. Its counts are rejected together if its histogram has another sum, or
    if they make more tokens than the answer has.
    """
    timings = answer.timings
    if timings is not None:
        drafted = timings.draft_n
        why = f"only {drafted} were drafted"
        accepted = timings.draft_n_accepted
        return drafted, possible(
            "timings", "accepted draft tokens", accepted, drafted, why
        )

    speculation = speculated(answer.metrics)
    if speculation is None:
        return None, None
    drafted = speculation.num_draft_tokens
    accepted = speculation.num_accepted_draft_tokens
    histogram = speculation.acceptance_histogram or []
    counted = accepted
    if histogram:
        counted = sum(steps * tokens for tokens, steps in enumerate(histogram))
    if drafted is None or accepted is None or accepted != counted:
        text = f"metrics: {accepted} accepted draft tokens where the histogram has {counted}"
        possible.rejected.append(text)
        return None, None

    if output is not None:
        least = accepted + (speculation.num_spec_steps or 0) - len(histogram)
        why = f"only {output} were generated"
        if possible("metrics", "tokens of drafts", least, output, why) is None:
            return None, None
    why = f"only {drafted} were drafted"
    return drafted, possible("metrics", "accepted draft tokens", accepted, drafted, why)


def _reasoning(answer: AnswerReader) -> int | None:
    return answer.usage.reasoning if answer.usage is not None else None


def _thoughts_beside(answer: AnswerReader) -> int:
    """Tokens of reasoning that the reported output tokens do not hold."""
    return answer.usage.thoughts_beside if answer.usage is not None else 0


def _first_event(
    answer: AnswerReader, event_tokens: list[int], reasoning: int | None
) -> int | None:
    """Tokens generated until the first token event.

    From its usage, else the hidden reasoning before it, and one.
    """
    if event_tokens:
        return event_tokens[0]
    if not reasoning or not answer.token_ns:
        return None

    is_shown = any(choice.thoughts for choice in answer.choices)
    return None if is_shown else reasoning + 1
