"""How many tokens lie between the first and the last token event of an answer.

The time between these two events is what TPOT divides, so its divisor must be the tokens of that
time. Not all reported tokens are: hidden reasoning and the markup of a tool call come before the
first event, the end token and trimmed stop strings after the last one. And an event may hold
several tokens, those of the first event are before its time.

One function, `tokens_between`, decides this for TPOT, the count gap and the tokens per event. It
takes numbers of one answer or arrays of many. Its arithmetic is exact where every token has a
place; else it gives bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.arithmetic.student_t import t_quantile
from llama_load.run_folder.observed.records import Records

# Numbers of one answer, or one per answer.
Values = Any

# Text decides whether events hold several tokens only from this many tokens an event on.
LEAST_PER_EVENT = 1.5
# Events with the text of this many tokens on average hold several; a token of English text is
# sometimes a whole word.
LONG_EVENT = 1.75
# Events that hold further tokens have their length within this factor, are longer than a long word,
# and so many others show how long one of one token is.
AS_LONG = 1.3
LONG_WORD = 3.5
LEAST_OTHERS = 4
# Characters per token of English text, where neither a tokenizer nor the prompts give them.
CHARS_PER_TOKEN = 4.0
# Half of the markup around reasoning that is shown stands between the reasoning and the answer, so
# within the time.
MIDDLE_SHARE = 0.5
# Tool calls of so many different lengths show whether their markup is the same in all.
LEAST_CALLS = 8
LEAST_SPREAD = 0.2
MOST_SLOPE = 0.05  # moves TPOT by 5 %
# Nearly all answers.
SAME_SHARE = 0.9
# In calls of one length, more than this share without an event may be a wrong count.
MARKUP_SHARE = 0.12
# Finish reasons of answers that did not end by themselves: they have no end token.
BY_LENGTH = ("length", "max_tokens", "max_output_tokens")
BY_CALL = ("tool_calls", "function_call", "tool_use")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCounts:
    """What was counted of one answer, or of many. 0 where a count is unknown, if not said
    otherwise."""

    tokens: Values  # output tokens; NaN: unknown
    events: Values  # token events
    blanks: Values = 0.0  # events of blanks before them
    reasoning: Values = 0.0  # tokens of reasoning as reported
    shows_reasoning: Values = False  # the stream had the reasoning as such
    accepted: Values = 0.0  # draft tokens
    # bytes beyond the characters: a character of 3 bytes may take 3 tokens
    wide: Values = 0.0
    chars: Values = 0.0  # of the text and of tool calls
    # of the first event, hidden reasoning included, as reported with it; NaN: not reported
    first_tokens: Values = np.nan
    first_chars: Values = np.nan  # of the first event; NaN: unknown
    first_wide: Values = (
        np.nan
    )  # of its text: bytes beyond the characters; NaN: unknown
    longest_chars: Values = np.nan  # of the longest event; NaN: unknown
    # by the text of all answers, the first event holds the tokens that have none
    first_holds: Values = False
    ends_itself: Values = False  # by an end token, not by length
    # whether an end token is among the tokens of its wide characters is not known
    may_have_end: Values = False
    # tokens without an event are known to be before the first event or after the last
    around: Values = False
    # tokens between the events by the server's own time per token; NaN: it reports none
    paced: Values = np.nan
    choices: Values = 1.0
    cut_off: Values = 0.0  # tokens of the stop string that ended it, by its length
    usual: Values = CHARS_PER_TOKEN  # characters per token


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """Tokens between the first and the last event: `least` and `most` are certain bounds, `likely`
    is the estimate (NaN: the time does not cover most of the tokens). `in_events`: tokens that
    arrived in events. `unplaced`: those of which it is not known where they are, an end token
    excepted. `several`: events hold several tokens by their text."""

    likely: Values
    least: Values
    most: Values
    in_events: Values
    unplaced: Values
    several: Values


def tokens_between(of: AnswerCounts, several: Values = None) -> TokenSpan:
    """Tokens between the first and the last token event. `several`: whether events hold several
    tokens, where that is known from many answers together; None: by the answer's own text.

    100 tokens, 91 events, 8 of hidden reasoning, 1 that ends the answer: 90 (100 - 8 - 1 - the
    first). 80 tokens in 16 events: 75, because five were in the first event. A tool call of 31
    tokens, 20 events and an end token: 19 if its markup is before and after them, 29 if its events
    hold several tokens. The server's own time per token decides, or many calls together (`around`).
    """
    tokens = np.asarray(of.tokens, dtype=np.float64)
    events = np.asarray(of.events, dtype=np.float64)
    beyond = np.maximum(0.0, tokens - events)
    blanks = np.minimum(of.blanks, beyond)
    hidden = _hidden(of, beyond - blanks)
    rest = beyond - blanks - hidden

    if several is None:
        several = _holds_several(events + rest, events, of.chars, of.usual)
    # Where tokens are sent together, the end token completes the last event; else it comes after
    # it.
    has_end = np.asarray(of.ends_itself, dtype=np.bool_) & ~np.asarray(
        several, dtype=np.bool_
    )
    after = of.choices + np.where(of.ends_itself, of.cut_off, 0.0)
    rest = rest - np.where(has_end, np.minimum(rest, after), 0.0)
    explained = np.where(several, rest, np.minimum(rest, of.accepted + of.wide))
    in_long = np.where(several, 0.0, _in_long_events(of, events, rest - explained))
    explained = explained + in_long
    in_events = np.minimum(tokens, events) + explained
    first: Values = np.where(
        several,
        _first_of_several(of, in_events, events),
        _first_of_one(of, explained - in_long, events)
        + in_long * _share_of_first(of, events),
    )

    unplaced = rest - explained

    # Counts that come with the events place every token.
    placed = ~np.isnan(of.first_tokens)
    before = np.where(placed, _before_first(of), 0.0)
    # Where each event has one of them, the one that is left came after the last event: it ended the
    # answer.
    is_after = has_end & (tokens - before - events == 1)
    in_events = np.where(placed, tokens - before - is_after, in_events)
    first = np.where(placed, of.first_tokens - before, first)
    unplaced = np.where(placed, 0.0, unplaced)

    # Without a second kind of answers, the token that ends an answer (or its stop string) looks
    # like one of a wide character.
    may_end = np.asarray(of.may_have_end, dtype=np.bool_) & ~np.asarray(
        several, dtype=np.bool_
    )
    may_end &= ~placed & (unplaced == 0)
    may_be_after = np.where(
        may_end, np.minimum(explained, of.choices + of.cut_off), 0.0
    )

    least = in_events - first - may_be_after
    most = in_events - first + np.where(of.around, 0.0, unplaced)
    likely = least + np.where(of.shows_reasoning, MIDDLE_SHARE, 0.0) * (most - least)
    # Of events of several tokens, the last one has the end token, or it has no event.
    ends = np.asarray(of.ends_itself, dtype=np.bool_) & np.asarray(several) & ~placed
    least = least - np.where(ends & (likely > of.choices), of.choices, 0.0)
    paced = np.where(np.isnan(of.paced), likely, np.clip(of.paced, least, most))
    is_paced = ~np.isnan(of.paced)
    is_known = (events >= 2) & (tokens >= 2) & (first <= in_events / 2) & (least > 0)
    return TokenSpan(
        likely=np.where(is_known, paced, np.nan),
        least=np.where(is_known, np.where(is_paced, paced, least), np.nan),
        most=np.where(is_known, np.where(is_paced, paced, most), np.nan),
        in_events=in_events,
        unplaced=unplaced,
        several=several,
    )


def all_in_events(of: AnswerCounts) -> float | None:
    """Tokens between the events of one answer where each token has an event (but one that ends it):
    all but the first. None elsewhere. The same as `tokens_between`, in a hundredth of the time: it
    is called at the end of every request."""
    beyond = of.tokens - of.events
    is_ended = beyond == 1 and of.ends_itself and not of.blanks
    if (
        of.events < 2
        or of.first_tokens == of.first_tokens
        or not (beyond == 0 or is_ended)
    ):
        return None
    return float(of.events - 1)


def _before_first(of: AnswerCounts) -> Values:
    """Tokens of hidden reasoning among those that are reported with the first event."""
    hidden = np.where(of.shows_reasoning, 0.0, of.reasoning)
    return np.minimum(
        hidden,
        np.maximum(
            0.0, np.nan_to_num(np.asarray(of.first_tokens, dtype=np.float64)) - 1
        ),
    )


def _hidden(of: AnswerCounts, beyond: Values) -> Values:
    """Tokens of reasoning before the first event: those that are reported, if the events do not
    hold them.

    A gateway that puts the reasoning into the text has an event for each of its tokens. 100 tokens,
    60 of reasoning, 39 events: 60; 99 events: 0. Where events hold several tokens, the text
    decides: it is as long as 100 tokens, or as 40.
    """
    reported = np.where(of.shows_reasoning, 0.0, of.reasoning)
    without_event = beyond - np.minimum(beyond, of.accepted)
    has_room = (reported > 0) & (without_event >= reported / 2)
    is_long = of.chars >= LONG_EVENT * of.usual * np.maximum(1.0, of.events)
    holds_all = is_long & _is_nearer(
        of.tokens, of.tokens - reported, of.chars, of.usual
    )
    return np.where(has_room & ~holds_all, np.minimum(reported, without_event), 0.0)


def _holds_several(
    tokens: Values, events: Values, chars: Values, usual: Values
) -> Values:
    """Whether the text of an event is as long as several tokens: nearer to that than to one.

    2,000 characters, 100 events, 500 tokens: 20 characters an event are 5 tokens of 4: yes. 100
    events, 200 tokens, 400 characters: 4 characters an event are one token: no.
    """
    return (tokens >= LEAST_PER_EVENT * events) & _is_nearer(
        tokens, events, chars, usual
    )


def _is_nearer(one: Values, other: Values, chars: Values, usual: Values) -> Values:
    """Whether the text has the length of `one` tokens rather than of `other`: by the logarithm of
    the characters per token."""
    text = np.maximum(1.0, chars)
    with np.errstate(divide="ignore", invalid="ignore"):
        to_one = np.abs(np.log(text / np.maximum(1.0, one) / usual))
        to_other = np.abs(np.log(text / np.maximum(1.0, other) / usual))
    return (np.asarray(chars) > 0) & (to_one <= to_other)


def _in_long_events(of: AnswerCounts, events: Values, rest: Values) -> Values:
    """The tokens without an event (`rest`), if the first event and the longest are as much longer
    than the others: an engine sends the first tokens together, a relay the last ones.

    36 events, 40 tokens: the first event has 25 characters, the others 175: 5 each, so that it
    holds 5 tokens.
    """
    number, chars, single = _long_events(of, events)
    expected = (number + rest) * single
    with np.errstate(divide="ignore", invalid="ignore"):
        is_as_long = np.abs(np.log(chars / expected)) <= math.log(AS_LONG)
    longest = np.fmax(of.first_chars, of.longest_chars)
    is_shown = (events >= number + LEAST_OTHERS) & (longest >= LONG_WORD * single)
    in_long = is_as_long & is_shown & (rest > 0)
    return np.where(in_long | np.asarray(of.first_holds), rest, 0.0)


def _share_of_first(of: AnswerCounts, events: Values) -> Values:
    """The share of the first event in the tokens that these events hold beyond one each."""
    number, chars, single = _long_events(of, events)
    of_first = np.maximum(0.0, np.nan_to_num(np.asarray(of.first_chars)) - single)
    of_both = np.nan_to_num(chars) - number * single
    share = np.clip(of_first / np.maximum(1.0, of_both), 0.0, 1.0)
    return np.where(np.asarray(of.first_holds), 1.0, np.nan_to_num(share))


def _long_events(of: AnswerCounts, events: Values) -> tuple[Values, Values, Values]:
    """The first event and the longest: how many they are (one, if the first is the longest), their
    characters, and those of each other event."""
    first = np.asarray(of.first_chars, dtype=np.float64)
    longest = np.asarray(of.longest_chars, dtype=np.float64)
    is_one = first >= longest
    number = np.where(is_one, 1.0, 2.0)
    chars = np.where(is_one, first, first + longest)
    single = np.maximum(1.0, of.chars - chars) / np.maximum(1.0, events - number)
    return number, chars, single


def _first_of_several(of: AnswerCounts, in_events: Values, events: Values) -> Values:
    """Tokens of the first event where events hold several: its share of the text, or of the events;
    one where its text is that of one, because the first token was sent alone, and before drafts."""
    share = np.asarray(of.first_chars, dtype=np.float64) / np.maximum(1.0, of.chars)
    by_text = np.where(
        np.asarray(of.first_chars) <= LONG_EVENT * of.usual,
        1.0,
        np.maximum(1.0, share * in_events),
    )
    by_count = np.maximum(1.0, in_events / np.maximum(1.0, events))
    return np.where(
        np.asarray(of.accepted) > 0, 1.0, np.where(share <= 1.0, by_text, by_count)
    )


def _first_of_one(of: AnswerCounts, explained: Values, events: Values) -> Values:
    """Tokens of the first event where events hold one: one, unless its characters take several.
    Drafts come after it."""
    by_wide = explained * of.first_wide / np.maximum(1.0, of.wide)
    extra = np.where(
        np.isnan(of.first_wide), explained / np.maximum(1.0, events), by_wide
    )
    return np.where(np.asarray(of.accepted) > 0, 1.0, 1.0 + extra)


def counts_of(
    records: Records, usual: float | NDArray[np.float64] = CHARS_PER_TOKEN
) -> AnswerCounts:
    """The counts of these answers. `usual`: characters per token."""

    def known(name: str) -> NDArray[np.float64]:
        return np.nan_to_num(records.numbers(name))

    by_length = np.logical_or.reduce(
        [records.equals("finish_reason", name) for name in BY_LENGTH]
    )
    shows = records.optional_instants(
        "first_answer_mono_ns"
    ) > records.optional_instants("first_token_mono_ns")
    placed = records.lists("event_tokens")[0] > 0
    return AnswerCounts(
        tokens=records.numbers("output_tokens"),
        events=known("token_events"),
        blanks=known("blank_events"),
        reasoning=known("reasoning_tokens"),
        shows_reasoning=shows,
        accepted=known("draft_accepted"),
        wide=np.maximum(0.0, known("output_bytes") - known("output_chars")),
        chars=known("output_chars") + known("call_chars"),
        first_tokens=np.where(placed, records.numbers("first_event_tokens"), np.nan),
        first_chars=records.numbers("first_event_chars"),
        longest_chars=records.numbers("longest_event_chars"),
        first_wide=records.numbers("first_event_bytes")
        - records.numbers("first_event_chars"),
        ends_itself=~by_length & records.has("finish_reason"),
        around=calls_with_markup_around(records),
        paced=_paced(records),
        choices=np.fmax(1.0, records.numbers("choices")),
        cut_off=np.ceil(known("stop_bytes") / CHARS_PER_TOKEN),
        usual=usual,
    )


def _paced(records: Records) -> NDArray[np.float64]:
    """Tokens between the first and the last event by the server's own time: (last - first) x
    (tokens - 1) / its time for them."""
    took_ms = records.numbers("e2el_ms") - records.numbers("ttft_ms")
    with np.errstate(divide="ignore", invalid="ignore"):
        paced = (
            took_ms
            * (records.numbers("output_tokens") - 1)
            / records.numbers("server_predict_ms")
        )
    return np.where(np.isfinite(paced), paced, np.nan)


def is_call(records: Records) -> NDArray[np.bool_]:
    """Answers that end with tool calls."""
    ends = [records.equals("finish_reason", name) for name in BY_CALL]
    return np.asarray(np.logical_or.reduce(ends), dtype=np.bool_)


def calls_with_markup_around(records: Records) -> NDArray[np.bool_]:
    """Answers of one tool call and nothing else, of servers whose calls have the same number of
    tokens without an event however many events they have: that is markup around the call. Tokens
    that share an event, or a wrong count, grow with the events.

    The slope of these tokens over the events must be below `MOST_SLOPE` with a confidence of 97.5
    %. Ten calls of 20 to 60 events with 10 to 12 further tokens: yes. Calls of one length: only if
    exactly the same few tokens (`MARKUP_SHARE`) have no event.
    """
    single = is_call(records) & (np.nan_to_num(records.numbers("output_chars")) == 0)
    single &= (np.fmax(1.0, records.numbers("tool_calls")) == 1) & (
        records.numbers("token_events") > 1
    )
    single &= records.has("output_tokens")
    around = np.zeros(len(records), dtype=np.bool_)
    if not single.any():
        return around
    hosts = np.array(records.strings("host"), dtype=object)
    events = records.numbers("token_events")
    tokens = records.numbers("output_tokens")
    for host in set(hosts[single].tolist()):
        rows = single & (hosts == host)
        further = tokens[rows] - events[rows]
        is_same = (
            rows.sum() >= LEAST_CALLS
            and np.ptp(further) <= 1
            and further.sum() <= MARKUP_SHARE * tokens[rows].sum()
        )
        if is_same or _highest_slope(events[rows], further) < MOST_SLOPE:
            around |= rows
    return around


def end_tokens_counted(records: Records) -> NDArray[np.bool_]:
    """Answers that ended by themselves, of servers that count the token that ends an answer: most
    of those whose characters have a byte each have a token more than events, or nearly all answers
    have exactly one. Where none shows it, not those whose wide characters explain such tokens."""
    ended = (
        counts_of(records).ends_itself
        & records.has("output_tokens")
        & (records.numbers("token_events") > 0)
    )
    wide = np.nan_to_num(records.numbers("output_bytes")) > np.nan_to_num(
        records.numbers("output_chars")
    )
    plain = ended & ~wide & ~is_call(records)
    hosts = np.array(records.strings("host"), dtype=object)
    blanks = np.nan_to_num(records.numbers("blank_events"))
    further = (
        records.numbers("output_tokens") - records.numbers("token_events") - blanks
    )
    counted = ended & ~wide
    for host in set(hosts[plain].tolist()):
        rows = plain & (hosts == host)
        counted |= ended & (hosts == host) & bool(np.median(further[rows]) >= 1)
    for host in set(hosts[ended].tolist()):
        # Tokens of wide characters grow with the answer; one further token in each answer, however
        # long, ended it.
        rows = ended & (hosts == host)
        has_one = float(np.mean(further[rows] == 1)) >= SAME_SHARE
        counted |= rows & (has_one and int(rows.sum()) >= LEAST_CALLS)
    return np.asarray(counted, dtype=np.bool_)


def end_tokens_unknown(records: Records) -> NDArray[np.bool_]:
    """Answers with wide characters that ended by themselves, of servers none of whose other answers
    shows whether they count the token that ends one."""
    ended = (
        counts_of(records).ends_itself
        & records.has("output_tokens")
        & (records.numbers("token_events") > 0)
    )
    wide = np.nan_to_num(records.numbers("output_bytes")) > np.nan_to_num(
        records.numbers("output_chars")
    )
    plain = ended & ~wide & ~is_call(records)
    hosts = np.array(records.strings("host"), dtype=object)
    shown = np.isin(hosts, list(set(hosts[plain].tolist())))
    return np.asarray(
        ended & wide & ~shown & ~is_call(records) & ~end_tokens_counted(records),
        dtype=np.bool_,
    )


def _highest_slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """The upper end of the 95 % interval of the slope of y over x, by least squares; infinite below
    `LEAST_CALLS` points or where x hardly differs."""
    if len(x) < LEAST_CALLS or x.std() < LEAST_SPREAD * x.mean():
        return math.inf
    away = x - x.mean()
    squares = float((away * away).sum())
    slope = float((away * y).sum()) / squares
    residuals = y - y.mean() - slope * away
    error = math.sqrt(float((residuals * residuals).sum()) / (len(x) - 2) / squares)
    # of the fewest calls, which is larger than that of more
    t = t_quantile(0.975, LEAST_CALLS - 2)
    return slope + t * error
