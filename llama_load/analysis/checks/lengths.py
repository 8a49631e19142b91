"""Checks of lengths: did the server process the whole prompts, and did answers get the requested
length?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.figures import answer_ends
from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.text_density import LONG, expected_tokens
from llama_load.ground.units import quantity
from llama_load.run_folder.observed.records import Records

# The resolution of a planned prompt length: of a tokenizer's count, and the factor of an estimate's
# error.
PLAN_RATIO = 0.02
PLAN_TOKENS = 8
ESTIMATE_FACTOR = 3.0
# Prompts were cut at a length where this share of them (and this many) has exactly that length, the
# largest of all, although their planned lengths differ by this factor.
CUT_SHARE = 0.05
LEAST_CUT = 5
CUT_SPAN = 1.3
# A limit collects all longer prompts: so many times as many have its length as any other one. Else
# lengths are merely alike.
CUT_PEAK = 3
# The share of the prompts that may have fewer tokens beyond the plan than an unknown chat template
# adds to the others.
TEMPLATE_QUANTILE = 0.1
# Counted stream events may exceed the tokens by one in this many.
EVENTS_PER_EXTRA = 50
# This many different counts, all multiples of a number from this one on, are counts of blocks.
LEAST_DIFFERENT = 4
LEAST_BLOCK = 8


def short_answers(evidence: Evidence) -> Iterator[Check]:
    """Answers shorter than requested, where all should have the requested length (--ignore-eos,
    --output-len)."""
    ok = evidence.records.ok()
    asked = requested(ok)
    got = ok.numbers("output_tokens")
    counted = (asked > 0) & ~np.isnan(got) & ~ok.equals("token_source", "events")
    if not counted.any():
        return
    reached = float(got[counted].sum() / asked[counted].sum())
    means = _means(got[counted], asked[counted])
    text = f"answers have {reached:.0%} of the requested tokens ({means})"
    if not evidence.fixed_lengths:
        yield information("answer_length_ratio", reached, text)
        return
    short = int((got[counted] < asked[counted]).sum())
    if short:
        text = (
            f"{short} of {quantity(int(counted.sum()), 'answer')} ended before the requested length: "
            + text
        )
    by_length = evidence.records.equals("finish_reason", "length").all()
    advice = (
        "see why the server ends answers by length before their requested length"
        if by_length
        else None
    )
    yield limited("short_answer_ratio", short / int(counted.sum()), text, advice=advice)


def cut_by_context(evidence: Evidence) -> Check:
    """Answers that ended because the context was full (see `analysis.figures.answer_ends`)."""
    ok = evidence.records.ok()
    cut = int(
        answer_ends.cut_by_context(
            ok, length_means_full=evidence.length_means_full
        ).sum()
    )
    text = (
        f"{quantity(cut, 'answer')} were cut by the context"
        if cut
        else "no answer was cut by the context"
    )
    return (
        limited("cut_by_context_ratio", cut / len(ok), text)
        if len(ok)
        else limited("cut_by_context_ratio", None, "no answers")
    )


def clipped(evidence: Evidence) -> Iterator[Check]:
    """Answers that a lower max_tokens ended than was asked for (see `analysis.figures.answer_ends`).
    Evidence: finish reasons, lengths of answers and prompts. No statistics: lengths that end by
    chance end by a stop, not by length."""
    ok = evidence.records.ok()
    rows = answer_ends.clipped(ok)
    if not rows.any():
        yield from _ended_by_a_limit(ok)
        return
    of = ok.where(rows)
    chars = of.numbers("output_chars")
    if (
        expected_tokens(chars, np.fmax(chars, of.numbers("output_bytes"))).sum()
        >= LONG * of.numbers("output_tokens").sum()
    ):
        return  # the count is too low, not the answer (`uncounted_ratio`)
    length = int(of.numbers("output_tokens")[0])
    asked = ok.numbers("max_tokens")[rows].max()
    answers = quantity(int(rows.sum()), "answer")
    text = f"{answers} of {len(ok)} ended by length at {length} tokens, "
    text += f"up to {asked:.0f} were asked for"
    yield limited(
        "clipped_answer_ratio",
        float(rows.mean()),
        f"{text}, whatever the length of the prompt: something lowers max_tokens",
    )


def _ended_by_a_limit(ok: Records) -> Iterator[Check]:
    """Answers that a limit of time or of characters ended (see `analysis.figures.answer_ends`)."""
    by_time = answer_ends.timed_out(ok)
    by_size = answer_ends.cut_at_a_size(ok)
    if by_size.sum() > by_time.sum():
        rows = by_size
        chars = ok.numbers("output_chars")[rows]
        answers = quantity(int(rows.sum()), "answer")
        sizes = f"{chars.min():.0f} to {chars.max():.0f} characters"
        text = f"{answers} of {len(ok)} have {sizes}, the most of all: "
        text += "a limit of characters ended them, though they say that they ended by themselves"
        advice = "look for a limit of the answer's size in the gateway or the server"
    elif by_time.any():
        rows = by_time
        took_ms = (ok.numbers("e2el_ms") - ok.numbers("ttft_ms"))[rows]
        answers = quantity(int(rows.sum()), "answer")
        times = f"{took_ms.min():.0f} to {took_ms.max():.0f} ms"
        text = f"{answers} of {len(ok)} ended {times} after their "
        text += "first token, the longest of all: a time limit ended them, though they say that they ended by themselves"
        advice = "look for a time limit of the gateway or the server"
    else:
        return
    yield limited("clipped_answer_ratio", float(rows.mean()), text, advice=advice)


def long_answers(evidence: Evidence) -> Iterator[Check]:
    """Answers longer than max_tokens (times `n`). Evidence: the server's counts or the events, both
    whole numbers: no error, but for events an allowance of 2 % and one."""
    ok = evidence.records.ok()
    asked = requested(ok)
    got = ok.numbers("output_tokens")
    counted = (asked > 0) & ~np.isnan(got)
    if not counted.any():
        yield limited(
            "long_answer_ratio",
            None,
            "no answer has both a requested and a counted length",
        )
        return
    extra = np.where(
        ok.equals("token_source", "events"), 1 + asked / EVENTS_PER_EXTRA, 0.0
    )
    longer = counted & (got > asked + extra)
    count = int(longer.sum())
    text = (
        f"{count} of {quantity(int(counted.sum()), 'answer')} are longer than requested"
    )
    if count:
        means = _means(got[longer], asked[longer])
        text += f" ({means} tokens): the server ignores max_tokens"
    yield limited("long_answer_ratio", count / int(counted.sum()), text)


def prompts_shortened(evidence: Evidence) -> Iterator[Check]:
    """Prompts that have fewer tokens by the server's count than were sent.

    Evidence: the count before the run (by the server's or a local tokenizer: within 2 % and 8
    tokens; an estimate: within a factor of 3) and the server's count in each answer; and, whatever
    the count before the run, many prompts of one and the same largest length whose planned lengths
    differ. No statistics: an honest server's count includes every token that was sent.
    """
    name = "shortened_prompt_ratio"
    ok = evidence.records.ok()
    got, planned, known = _both_counts(ok)
    if not known.any():
        yield limited(
            name,
            None,
            "prompt tokens are not known from two sources (the count before the run, the server)",
        )
        return
    by_estimate = evidence.cache.estimated
    least = planned / ESTIMATE_FACTOR if by_estimate else planned * (1 - PLAN_RATIO)
    short = known & (
        (got < least - PLAN_TOKENS) | _cut_at_one_length(got, planned, known)
    )
    count = int(short.sum())
    total = int(known.sum())
    if count:
        text = f"{count} of {quantity(total, 'prompt')} have fewer tokens by the server's count than were sent"
        means = _means(got[short], planned[short])
        text += f" ({means}): they were cut"
    else:
        how = (
            "within a factor of 3 of an estimate, which would not show less"
            if by_estimate
            else "as counted before the run"
        )
        text = f"{quantity(total, 'prompt')} {'has' if total == 1 else 'have'} their tokens by the server's count, {how}"
    yield limited(name, count / total, text)


def prompts_overcounted(evidence: Evidence) -> Iterator[Check]:
    """Prompts that have more tokens by the server's count than were sent: the count is wrong, or
    something was added to them.

    Evidence: the count before the run by a tokenizer, with the chat template where it is known,
    within 2 % and 8 tokens; counts that are all multiples of a number which the planned ones do not
    share are those of blocks of a cache. An unknown template adds the same to all prompts (the 10th
    percentile of the differences), so prompts of one length show nothing. An estimate shows nothing
    below a factor of 3. No statistics.
    """
    name = "excess_prompt_ratio"
    ok = evidence.records.ok()
    got, planned, known = _both_counts(ok)
    if not known.any():
        return
    got = got[known]
    planned = planned[known]
    most = (
        planned * (ESTIMATE_FACTOR if evidence.cache.estimated else 1 + PLAN_RATIO)
        + PLAN_TOKENS
    )
    template = (
        0.0
        if evidence.cache.template_known
        else max(0.0, float(np.quantile(got - planned, TEMPLATE_QUANTILE)))
    )
    excess = got > most + template
    block = _block_of(got, planned)
    if block >= LEAST_BLOCK and not evidence.cache.estimated:
        text = f"all prompts have a multiple of {block} tokens by the server's count: it counts blocks"
        yield limited(name, 1.0, text)
        return
    if not excess.any() and evidence.cache.estimated:
        text = f"the prompts were counted by an estimate: that the server counts too many tokens would show from {ESTIMATE_FACTOR:g} "
        text += "times as many on; give --tokenizer"
        yield limited(name, None, text)
        return
    if not excess.any() and (got > most).all() and not evidence.cache.template_known:
        text = f"all prompts have {template:.0f} tokens more by the server's count than were sent: its chat template, or a wrong count"
        yield limited(name, None, text)
        return
    text = f"{int(excess.sum())} of {quantity(len(got), 'prompt')} have more tokens by the server's count than were sent"
    if excess.any():
        means = _means(got[excess], planned[excess])
        text += f" ({means}): a wrong count, or something was added to them"
    yield limited(name, float(excess.mean()), text)


def _block_of(got: NDArray[np.float64], planned: NDArray[np.float64]) -> int:
    """The number whose multiples all these counts are, though the planned ones are not; 1: none.

    128, 192, 64 and 320 of 110, 130, 60 and 260 planned: 64.
    """
    if len(np.unique(got)) < LEAST_DIFFERENT:
        return 1
    block = max(1, int(np.gcd.reduce(got.astype(np.int64))))
    added = got - planned
    is_rounded = added.max() - added.min() < block  # else the count has another error
    return block if is_rounded and (planned % block).any() else 1


def _both_counts(
    ok: Records,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Prompt tokens by the server's count, those planned, and which requests have both."""
    got = ok.numbers("prompt_tokens")
    planned = ok.numbers("planned_prompt_tokens")
    reported = ok.equals("prompt_token_source", "usage") | ok.equals(
        "prompt_token_source", "timings"
    )
    return got, planned, np.asarray(reported & ~np.isnan(got) & (planned > 0))


def requested(records: Records) -> NDArray[np.float64]:
    """Requested output tokens of each request: max_tokens times the number of answers (`n`)."""
    return records.numbers("max_tokens") * np.fmax(1.0, records.numbers("choices"))


def _means(got: NDArray[np.float64], of: NDArray[np.float64]) -> str:
    """`mean 12.5 of 16.0`."""
    return f"mean {got.mean():.1f} of {of.mean():.1f}"


def _cut_at_one_length(
    got: NDArray[np.float64], planned: NDArray[np.float64], known: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """The prompts that have the largest length of all, where so many have it that it must be a
    limit."""
    at_limit = known & (got == np.max(got[known]))
    count = int(at_limit.sum())
    _, times = np.unique(got[known & ~at_limit], return_counts=True)
    usual = int(times.max(initial=0))
    is_peak = count >= max(LEAST_CUT, CUT_SHARE * known.sum(), CUT_PEAK * usual)

    shortest = planned[at_limit].min()
    longer = max(CUT_SPAN * shortest, shortest + PLAN_TOKENS)
    is_cut = at_limit & (planned > longer)
    if not is_peak or is_cut.sum() < LEAST_CUT:
        return np.zeros(len(got), dtype=np.bool_)
    return np.asarray(is_cut, dtype=np.bool_)
