"""Checks of counts: does each have two sources, and do they agree?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.spoiled import COUNTS, ITL, RATES, TPOT, UPPER
from llama_load.analysis.figures.text_density import (
    LONG,
    LONG_TEXT,
    Shortage,
    shortage,
    shortage_of_turns,
)
from llama_load.analysis.figures.token_counts import (
    CALL_TOKENS,
    MOVES_COUNTS,
    has_timings,
)
from llama_load.ground.units import quantity
from llama_load.run_folder.arithmetic.token_span import is_call
from llama_load.run_folder.observed.records import Records

# The formula of vLLM's bench gives another TPOT than the tokens between the events from this share
# on.
FORMULA_DIFFERS = 0.05
# Texts of so many different lengths do not have one number of tokens by chance.
LEAST_DIFFERENT = 8
# The share of uncounted tokens that the length of the texts shows for certain.
DETECTS = 1 - 1 / LONG


def count_gap(evidence: Evidence) -> Check:
    """Output tokens by the server's counts against the events of the streams. Evidence: usage,
    timings, events and their text, the server's counters (see `analysis.figures.token_counts`). Counts: no
    error."""
    name = "count_gap_ratio"
    if not evidence.count_gaps:
        return limited(
            name,
            None,
            "output tokens are not known from two sources (the server's counts, stream events)",
        )
    worst = max(evidence.count_gaps, key=lambda gap: gap.ratio)
    where = f" of {worst.host}" if len(evidence.count_gaps) > 1 else ""
    text = f"{quantity(worst.answers, 'answer')}{where}: the server reports {worst.reported} output tokens, "
    text += f"{worst.events} events arrived"
    if worst.ratio > LIMITS[name].limit:
        text += f"; {worst.ratio:.1%} of the tokens are explained by neither speculation nor longer events"
        text += (
            ": the figures count the events"
            if worst.falls_back
            else ": events were lost or merged on the way"
        )
    elif worst.several:
        text += ", with the text of several tokens each"
    spoils = (ITL,) if worst.ratio <= MOVES_COUNTS else None
    return limited(name, worst.ratio, text, spoils=spoils)


def tool_calls(evidence: Evidence) -> Iterator[Check]:
    """How many tokens of tool calls have no event. Markup explains some of them, a wrong count
    would not show among those."""
    ok = evidence.records.ok()
    calls = ok.where(
        is_call(ok) & (ok.numbers("token_events") > 0) & ok.has("output_tokens")
    )
    tokens = float(calls.numbers("output_tokens").sum()) if len(calls) else 0.0
    hidden = tokens - float(calls.numbers("token_events").sum()) if len(calls) else 0.0
    if not tokens or hidden <= MOVES_COUNTS * tokens:
        return
    text = f"{hidden / tokens:.0%} of the tokens of {quantity(len(calls), 'tool call')} have no event of their own: the markup of the "
    text += (
        f"calls, or a wrong count, which would show from {CALL_TOKENS} tokens a call on"
    )
    yield information("tool_call_gap", hidden / tokens, text)


def tpot_known(evidence: Evidence) -> Iterator[Check]:
    """Whether it is known how many tokens came between the first and the last event of the answers,
    which TPOT divides by.

    Evidence: the counts, events and texts of the answers, and the server's own time per token (see
    `run_folder.arithmetic.token_span`). Bounds: no statistics, but for tool calls, whose markup is known with
    97.5 %."""
    bounds = evidence.tpot_bounds
    if bounds is None:
        return
    text = f"mean TPOT {bounds.mean_ms:.2f} ms divides by the tokens that came between the first event and the last"
    limit = LIMITS["tpot_bounds_ratio"].limit
    spoils: tuple[str, ...] = (TPOT,)
    value = max(bounds.ratio, bounds.part_ratio)
    if value <= limit < bounds.upper_ratio:
        value = bounds.upper_ratio
        spoils = (UPPER,)
        text = f"upper percentiles of TPOT may be {value:.0%} off: some answers report other numbers of tokens than they have events"
    elif value > limit:
        text = f"mean TPOT is between {bounds.least_ms:.2f} and {bounds.most_ms:.2f} ms: some tokens have no event of their own, and "
        text += "whether they came before the first, between two or after the last is not known"
    # Tokens of tool calls without an event may be a wrong count as well.
    if is_call(evidence.records.ok()).any() and TPOT in spoils:
        spoils = (TPOT, RATES, COUNTS)
    yield limited("tpot_bounds_ratio", value, text, spoils=spoils)
    formula = evidence.figures.by_vllm["tpot"].mean
    own = evidence.figures.distributions["tpot"].mean
    if formula and own and abs(formula / own - 1) > FORMULA_DIFFERS:
        text = f"vLLM's formula gives a mean TPOT of {formula:.2f} ms, where it is {own:.2f} ms: it divides by all output tokens but "
        yield information(
            "vllm_mean_tpot_ms",
            formula,
            f"{text}one, also by those that did not come in the time that it divides",
        )


def counts(evidence: Evidence) -> Iterator[Check]:
    """Impossible counts from the server, and the source of token counts that are not the server's.
    Evidence: each answer's counts against its bounds (see `servers.counts`), which no honest count
    exceeds."""
    figures = evidence.figures
    doubts = [text for text in evidence.records.ok().strings("count_doubt") if text]
    if doubts:
        text = f"{quantity(len(doubts), 'answer')} with impossible token counts: {doubts[0]}"
        yield limited("unbelievable_counts", len(doubts), text)
    # Counts that were reported and are not used have checks of their own.
    ok = evidence.records.ok()
    rows = ok.equals("token_source", "events") & ~ok.has("count_doubt")
    events = int(rows.sum())
    for gap in evidence.count_gaps:
        events -= int(gap.rows.sum()) if gap.falls_back else 0
    if events > 0:
        text = f"output tokens of {quantity(events, 'request')} were counted as stream events, because the server reported no usage"
        yield information("counted_output_requests", events, text)
    if (choices := evidence.records.numbers("choices")).size and (
        most := np.nanmax(choices, initial=1)
    ) > 1:
        text = f"requests ask for up to {most:.0f} answers: tokens and gaps of all count, so TPOT and ITL are not of one answer"
        yield information("answers_per_request", float(most), text)
    if planned := figures.prompt_token_sources.get("plan", 0):
        how = (
            "estimated from their characters"
            if evidence.cache.estimated
            else "counted before the run"
        )
        text = f"prompt tokens of {quantity(planned, 'request')} were {how}, without the chat template"
        yield information("counted_prompt_requests", planned, text)


def uncounted_output(evidence: Evidence) -> Iterator[Check]:
    """Output tokens that were not counted: the answers' texts, and max_tokens of those that ended
    by length, against their counts.

    Counts that a second source of the server confirms (timings, its counters) are not judged.
    Evidence and error rate: see `analysis.figures.text_density`."""
    ok = evidence.records.ok()
    rows = ok.has("output_tokens") & ~(ok.numbers("choices") > 1) & ~has_timings(ok)
    rows &= (ok.numbers("output_tokens") > 0) & ok.has("token_source")
    if not rows.any() or _is_output_counted(evidence):
        return
    of = ok.where(rows)
    by_events = of.equals("token_source", "events")
    tokens = of.numbers("output_tokens")
    asked = _asked_of_whole(of, by_events)
    chars = np.nan_to_num(of.numbers("output_chars")) + np.nan_to_num(
        of.numbers("call_chars")
    )
    size = np.fmax(
        chars,
        np.nan_to_num(of.numbers("output_bytes"))
        + np.nan_to_num(of.numbers("call_chars")),
    )
    judged = ~(by_events & is_call(of))
    short = _with_asked(
        shortage(tokens[judged], chars[judged], size[judged]),
        tokens[judged],
        asked[judged],
    )
    how = (
        "events hold several"
        if by_events.all()
        else "the server counts chunks, or a part of the answers"
    )
    text = f"{quantity(int(judged.sum()), 'answer')} have tokens of usual length"
    if short.ratio > LIMITS["uncounted_ratio"].limit:
        text = f"{short.ratio:.0%} of the tokens were not counted, by the length of the texts or by max_tokens: {how}"
    else:
        text += f"; fewer would show from a factor of {LONG:g} on ({LONG_TEXT:g} in single answers)"
    advice = None
    if not by_events.any():
        advice = "see which program rewrites usage"
    yield limited("uncounted_ratio", short.ratio, text, advice=advice, detects=DETECTS)


def _asked_of_whole(of: Records, by_events: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Tokens that answers of counted events have for certain, by max_tokens; 0 elsewhere. One may
    have no event."""
    whole = by_events & of.equals("finish_reason", "length") & ~is_call(of)
    return np.where(whole, np.nan_to_num(of.numbers("max_tokens")) - 1, 0.0)


def _with_asked(
    short: Shortage, tokens: NDArray[np.float64], asked: NDArray[np.float64]
) -> Shortage:
    """The shortage, where answers that have at least `asked` tokens are short, too."""
    more = (asked > tokens) & ~short.rows
    missing = float((asked - tokens)[more].sum())
    return Shortage(
        short.rows | more,
        short.tokens + float(tokens[more].sum()),
        short.expected + float(asked[more].sum()),
        short.of_all + missing,
    )


def _is_output_counted(evidence: Evidence) -> bool:
    """Whether the server's counters confirm the sum of the answers' output tokens."""
    counters = evidence.counters
    if counters is None or counters.output_tokens is None:
        return False
    reported = float(np.nansum(evidence.sent.numbers("output_tokens")))
    error = LIMITS["counter_gap_ratio"].limit * reported + counters.error(
        "output_tokens"
    )
    return abs(counters.output_tokens - reported) <= error


def uncounted_prompts(evidence: Evidence) -> Iterator[Check]:
    """Prompt tokens that the server left out: the prompts' texts against its counts, later turns of
    conversations included.

    Evidence and error rate: see `analysis.figures.text_density`. A tokenizer shows more
    (`shortened_prompt_ratio`)."""
    ok = evidence.records.ok()
    reported = ok.equals("prompt_token_source", "usage") | ok.equals(
        "prompt_token_source", "timings"
    )
    of = ok.where(
        reported & (ok.numbers("prompt_tokens") > 0) & np.isnan(ok.numbers("images"))
    )
    chars = of.numbers("prompt_chars")
    size = np.fmax(chars, of.numbers("prompt_bytes"))
    short = shortage(of.numbers("prompt_tokens"), chars, size)
    if not len(of) or not chars.sum():
        return
    limit = LIMITS["uncounted_prompt_ratio"].limit
    if short.ratio <= limit:
        of_turns = shortage_of_turns(
            of.strings("conversation"),
            of.numbers("turn"),
            of.numbers("prompt_tokens"),
            chars,
            size,
        )
        short = short if of_turns is None else of_turns
    if short.ratio <= limit:
        text = f"{quantity(len(of), 'prompt')} have tokens of usual length; fewer would show from a factor of {LONG:g} on"
        # A tokenizer's count of the same prompts shows 2 % (`shortened_prompt_ratio`).
        detects = DETECTS if evidence.cache.estimated else None
        yield limited("uncounted_prompt_ratio", short.ratio, text, detects=detects)
        return
    text = f"the server reports {short.tokens:.0f} prompt tokens, where the texts have about {short.expected:.0f}"
    cached = float(np.nansum(of.numbers("cached_tokens")))
    if cached > short.tokens:
        text += f": it leaves out the {cached:.0f} cached ones"
    elif _is_cut(of, chars):
        tokens = of.numbers("prompt_tokens")[0]
        expected = short.expected / len(of)
        length = f"{chars.min():.0f} to {chars.max():.0f} characters"

        text = f"{quantity(len(of), 'prompt')} have {tokens:.0f} tokens each by the server's count, where the "
        text += f"texts, of {length}, have about {expected:.0f}: they were cut"
        yield limited("shortened_prompt_ratio", short.ratio, text)
        return
    else:
        text += ": it leaves some out, or prompts were cut"
    yield limited("uncounted_prompt_ratio", short.ratio, text)


def _is_cut(of: Records, chars: NDArray[np.float64]) -> bool:
    """Whether different texts have exactly one number of tokens: a limit cut them; a wrong count
    would follow the texts."""
    is_one = float(np.ptp(of.numbers("prompt_tokens"))) == 0
    return bool(is_one and len(np.unique(chars)) >= LEAST_DIFFERENT)
