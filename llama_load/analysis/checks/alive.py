"""Checks that answers were generated: not refused, not the same for different prompts, not given up
after some tokens."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.own_times import own_times
from llama_load.analysis.statistics.first_gaps import first_gaps, usual_place
from llama_load.analysis.statistics.short_answers import short_alike
from llama_load.ground.units import quantity
from llama_load.run_folder.arithmetic.token_span import counts_of
from llama_load.run_folder.observed.records import Records
from llama_load.servers.answer_end import NO_REASON
from llama_load.servers.answer_form import FREE

EARLY = "early_first_ratio"
# Ends of answers that a filter or a refusal of the model caused, in the words of several servers.
REFUSALS = frozenset(
    (
        "content_filter",
        "refusal",
        "safety",
        "blocklist",
        "prohibited_content",
        "recitation",
        "guardrail",
    )
)
# Short answers may be equal or abrupt by intention (a classification): only answers of at least
# `LEAST_TOKENS` can be equal, only requests for at least `LEAST_ASKED` abrupt.
LEAST_TOKENS = 16
LEAST_ASKED = 32
# An answer that ended on its own account after this many tokens is abrupt.
ABRUPT_TOKENS = 4
# Short answers that are alike by chance.
MOST_ALIKE = 0.02
# Gaps of an answer that show its pace.
LEAST_GAPS = 8
# Fewer answers than this show no pattern, and fewer early first tokens are chance.
LEAST_ANSWERS = 10
LEAST_EARLY = 3
# A first token within this part of the server's own time for the prompt came before it; the rest is
# for two clocks, and so is this much of a mean, ms.
OWN_TIME = 0.9
CLOCKS_MS = 5.0
# An opening of several events, in at least this part of the answers.
LEAST_OPENED = 0.25


def equal_answers(evidence: Evidence) -> Iterator[Check]:
    """Answers equal to those of other prompts: a cache in front of the server, a stub, or a
    refusal.

    Evidence: the hashes of prompts and answers. Of each answer that several prompts got, all but
    one count. Two generated answers of 16 tokens are equal by chance in less than one of 10^6
    pairs. Shorter ones ("yes") are often equal, and so are those that a schema or a grammar leaves
    no choice: they are not judged.
    """
    name = "equal_answer_ratio"
    ok = evidence.records.ok()
    is_long = ok.numbers("output_tokens") >= LEAST_TOKENS
    judged = ok.where(
        is_long & _is_free(ok) & ok.has("output_sha256") & ok.has("prompt_sha256")
    )
    prompts = defaultdict(set)
    for prompt, answer in zip(
        judged.strings("prompt_sha256"), judged.strings("output_sha256"), strict=True
    ):
        prompts[answer].add(prompt)
    if (
        len(judged) < LEAST_ANSWERS
        or len(set().union(*prompts.values())) < LEAST_ANSWERS
    ):
        few = f"fewer than {LEAST_ANSWERS} free answers of {LEAST_TOKENS} tokens or more to different prompts"
        yield limited(name, None, f"{few}: equal ones would show nothing")
        return
    counts = Counter(judged.strings("output_sha256"))
    equal = sum(
        counts[answer] - 1 for answer, asked in prompts.items() if len(asked) > 1
    )
    text = f"{equal} of {quantity(len(judged), 'answer')} are equal to the answer of another prompt"
    if equal:
        most = max(
            counts, key=lambda answer: (len(prompts[answer]) > 1, counts[answer])
        )
        text += f" (the most frequent came {quantity(counts[most], 'time')})"
    yield limited(name, equal / len(judged), text)


def answer_ends(evidence: Evidence) -> Iterator[Check]:
    """Complete answers that lack a sign of their end (see `servers.answer_end`): notes, and answers
    without a finish_reason where others have one.

    Evidence: the streams, so no error. No statistics."""
    ok = evidence.records.ok()
    notes: Counter[str] = Counter()
    for note in ok.strings("end_note"):
        if note:
            notes.update(str(note).split("; "))
    for note, count in notes.items():
        text = (
            f"{quantity(count, 'answer')} ended otherwise than most servers' do: {note}"
        )
        yield information("answer_end_notes", count, text)
    without = notes[NO_REASON]
    if 0 < without < len(ok):
        text = f"{without} of {quantity(len(ok), 'answer')} ended without a finish_reason, which others have: they may have "
        yield limited("unconfirmed_end_ratio", without / len(ok), f"{text}broken off")


def refusals(evidence: Evidence) -> Iterator[Check]:
    """Answers that a filter ended or the model refused, by their finish_reason, and short ones that
    are alike (see `analysis.statistics.short_answers`).

    Evidence: the server's word, so no error; hashes of the answers (texts, where they were saved).
    Free answers of half the usual length to three different prompts are alike by chance in greetings
    and thanks alone: below 2 % they are not counted.
    """
    name = "refused_ratio"
    ok = evidence.records.ok()
    alike = short_alike(ok.where(_asked_at_least(ok, LEAST_ASKED) & _is_free(ok)))
    if alike is not None and alike.count > MOST_ALIKE * alike.of:
        text = f"{alike.count} of {quantity(alike.of, 'answer')} are short and alike ({alike.most_frequent} times about "
        text += f"{alike.tokens:.0f} tokens, where {alike.usual:.0f} are usual), to different prompts: refusals, or texts of an error"
        yield limited(name, alike.count / alike.of, text)
        return

    reasons = Counter(
        str(reason).lower()
        for reason in ok.strings("finish_reason")
        if reason is not None
    )
    if not reasons:
        yield limited(name, None, "no answer has a finish_reason")
        return
    refused = {reason: count for reason, count in reasons.items() if reason in REFUSALS}
    count = sum(refused.values())
    text = f"{count} of {quantity(len(ok), 'answer')} were refused or filtered"
    if refused:
        text += f" (finish_reason {', '.join(sorted(refused))})"
    yield limited(name, count / len(ok), text)


def abrupt_answers(evidence: Evidence) -> Iterator[Check]:
    """Answers of four tokens or less where 32 or more were allowed: refusals, error texts, a stub.

    Evidence: token counts and finish_reason. No statistics; chat models end less than 1 % of their
    answers so early. An answer that a schema or a grammar forces to be short is not judged.
    """
    name = "abrupt_answer_ratio"
    ok = evidence.records.ok()
    judged = ok.where(
        _asked_at_least(ok, LEAST_ASKED) & _is_free(ok) & ok.has("output_tokens")
    )
    if len(judged) < LEAST_ANSWERS:
        yield limited(
            name,
            None,
            f"fewer than {LEAST_ANSWERS} free answers may have {LEAST_ASKED} tokens or more",
        )
        return
    calls = judged.equals("finish_reason", "tool_calls") | judged.equals(
        "finish_reason", "function_call"
    )
    tokens = judged.numbers("output_tokens")
    abrupt = (
        (tokens <= ABRUPT_TOKENS) & ~judged.equals("finish_reason", "length") & ~calls
    )
    ended = int(abrupt.sum())
    answers = quantity(len(judged), "answer")
    text = f"{ended} of {answers} ended after {ABRUPT_TOKENS} tokens or less"

    yield limited(name, float(abrupt.mean()), text)


def early_first_tokens(evidence: Evidence) -> Iterator[Check]:
    """First tokens that came before anything was generated: from a proxy or a template, so that
    TTFT measures nothing.

    Evidence: the server's own time for the prompt (the first token cannot come within it), or until
    its first tokens, in the mean of all answers; else the gaps: the second token came after three
    of the answer's long gaps, and later than half of TTFT beyond what prompts of others and a full
    decoding explain (`analysis.statistics.first_gaps`). Where this is as long after any prompt and any first
    token, another machine may decode: not known.
    """
    name = EARLY
    ok = evidence.records.ok()
    judged = ok.where((ok.numbers("token_events") > LEAST_GAPS) & ok.has("ttft_ms"))
    if len(judged) < LEAST_ANSWERS:
        yield limited(
            name,
            None,
            f"fewer than {LEAST_ANSWERS} streamed answers have {LEAST_GAPS} gaps or more",
        )
        return
    if (found := _before_histograms(evidence)) is not None:
        yield found
        return
    ttft_ms = judged.numbers("ttft_ms")
    prompt_ms = judged.numbers("server_prompt_ms")
    gaps = first_gaps(judged, evidence.sent)
    before_own = ttft_ms < OWN_TIME * prompt_ms
    early = np.where(np.isnan(prompt_ms), gaps.are_early(ttft_ms), before_own)
    text = f"{int(early.sum())} of {quantity(len(judged), 'answer')} got their first token long before the others"
    if early.any():
        after_ms = np.median(ttft_ms[early])
        later_ms = np.median(gaps.gap_ms[early])
        text += f" (after {after_ms:.0f} ms; the next {later_ms:.0f} ms later)"
    if early.sum() < LEAST_EARLY:
        early = np.zeros_like(early)
    prompts = judged.numbers("prompt_tokens")
    extra = _extra_events(judged)
    by_gaps = np.isnan(prompt_ms).all()
    if by_gaps and early.any() and gaps.are_hand_overs(early, ttft_ms, prompts, extra):
        text += "; as long after any prompt, as where another machine decodes"
        yield limited(name, None, text)
        return
    has_passed = early.mean() <= LIMITS[name].limit
    if (
        by_gaps
        and has_passed
        and (opened := _early_openings(judged, evidence.sent)) is not None
    ):
        yield opened
        return
    # Of those by their gaps, as many are chance as there are such gaps at any other place.
    chance = gaps.later_ratio if by_gaps else 0.0
    yield limited(name, max(0.0, float(early.mean()) - chance), text)


def _early_openings(judged: Records, in_flight: Records) -> Check | None:
    """Openings of several events (a tag and a line break, the words of a small model) that came
    before anything was generated, as `early_first_tokens` has it of one; None where there are
    none."""
    before = usual_place(judged)
    if not before:
        return None
    gaps = first_gaps(judged, in_flight, before)
    opened = gaps.are_early(judged.numbers("ttft_ms") + gaps.opening_ms)
    share = float(opened.mean()) - gaps.later_ratio
    if share < LEAST_OPENED:
        return None
    later_ms = float(np.median(gaps.gap_ms[opened]))
    answers = quantity(len(judged), "answer")
    text = f"{int(opened.sum())} of {answers} began with {before + 1} events "
    text += f"long before the others (the next came {later_ms:.0f} ms later)"
    return limited(EARLY, share, text)


def _before_histograms(evidence: Evidence) -> Check | None:
    """First tokens that came sooner than the server's own, in the mean of all answers; None where
    they did not, or where it is not known.

    None can come sooner than by its whole TTFT, so at least this part of them came before. 770 ms
    at the client, 940 ms at the server: at least 18 %.
    """
    times = own_times(evidence)
    if times is None or times.ttft_ms <= 0:
        return None
    own_ms = times.ttft_ms / times.requests
    ttft_ms = float(evidence.records.ok().numbers("ttft_ms").mean())
    sooner = 1 - ttft_ms / own_ms
    if own_ms - ttft_ms < CLOCKS_MS or sooner <= LIMITS[EARLY].limit:
        return None
    text = f"first tokens came after {ttft_ms:.0f} ms, the server's own after {own_ms:.0f} ms (means): "
    text += f"{sooner:.0%} of the answers or more began with one that the server had not generated"
    return limited(EARLY, sooner, text)


def _extra_events(judged: Records) -> NDArray[np.float64]:
    """For each answer, the events beyond the server's count of tokens; NaN where it is not known:
    not counted, or as many in an answer that ended by itself, whose last token may or may not be
    counted."""
    tokens = judged.numbers("output_tokens")
    blanks = np.nan_to_num(judged.numbers("blank_events"))
    extra = judged.numbers("token_events") + blanks - tokens
    is_unclear = counts_of(judged).ends_itself & (extra == 0)
    is_unclear |= judged.equals("token_source", "events")
    return np.where(is_unclear, np.nan, extra)


def _is_free(ok: Records) -> NDArray[np.bool_]:
    """One bool per request: whether its answer was not forced into a form."""
    return np.asarray(
        ~ok.has("answer_form") | ok.equals("answer_form", FREE), dtype=np.bool_
    )


def _asked_at_least(ok: Records, tokens: int) -> NDArray[np.bool_]:
    """One bool per request: whether its answer may have this many tokens."""
    asked = ok.numbers("max_tokens")
    return np.asarray(
        np.isnan(asked) | (asked == 0) | (asked >= tokens), dtype=np.bool_
    )
