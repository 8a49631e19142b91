"""Checks that answers were generated: not refused, not the same for different prompts, not given up after some tokens."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.check import Check, limited
from llama_load.metrics.evidence import Evidence
from llama_load.metrics.first_gaps import first_gaps
from llama_load.observed.records import Records
from llama_load.targets.answer_form import FREE
from llama_load.units import quantity

# Ends of answers that a filter or a refusal of the model caused, in the words of several servers.
REFUSALS = frozenset(("content_filter", "refusal", "safety", "blocklist", "prohibited_content", "recitation", "guardrail"))
# Short answers may be equal or abrupt by intention (a classification): only answers of at least `LEAST_TOKENS` can be equal, only
# requests for at least `LEAST_ASKED` abrupt.
LEAST_TOKENS, LEAST_ASKED = 16, 32
# An answer that ended on its own account after this many tokens is abrupt.
ABRUPT_TOKENS = 4
# Gaps of an answer that show its pace.
LEAST_GAPS = 8
# Fewer answers than this show no pattern.
LEAST_ANSWERS = 10


def equal_answers(evidence: Evidence) -> Iterator[Check]:
    """Answers equal to those of other prompts: a cache in front of the server, a stub, or a refusal.

    Evidence: the hashes of prompts and answers. Of each answer that several prompts got, all but one count. Two generated answers
    of 16 tokens are equal by chance in less than one of 10^6 pairs. Shorter ones ("yes") are often equal, and so are those that
    a schema or a grammar leaves no choice: they are not judged.
    """
    name, ok = "equal_answer_ratio", evidence.records.ok()
    is_long = ok.numbers("output_tokens") >= LEAST_TOKENS
    judged = ok.where(is_long & _is_free(ok) & ok.has("output_sha256") & ok.has("prompt_sha256"))
    prompts = defaultdict(set)
    for prompt, answer in zip(judged.strings("prompt_sha256"), judged.strings("output_sha256"), strict=True):
        prompts[answer].add(prompt)
    if len(judged) < LEAST_ANSWERS or len(set().union(*prompts.values())) < LEAST_ANSWERS:
        few = f"fewer than {LEAST_ANSWERS} free answers of {LEAST_TOKENS} tokens or more to different prompts"
        yield limited(name, None, f"{few}: equal ones would show nothing")
        return
    counts = Counter(judged.strings("output_sha256"))
    equal = sum(counts[answer] - 1 for answer, asked in prompts.items() if len(asked) > 1)
    text = f"{equal} of {quantity(len(judged), 'answer')} are equal to the answer of another prompt"
    if equal:
        most = max(counts, key=lambda answer: (len(prompts[answer]) > 1, counts[answer]))
        text += f" (the most frequent came {quantity(counts[most], 'time')})"
    yield limited(name, equal / len(judged), text)


def refusals(evidence: Evidence) -> Iterator[Check]:
    """Answers that a filter ended or the model refused, by their finish_reason. Evidence: the server's word, so no error."""
    ok = evidence.records.ok()
    reasons = Counter(str(reason).lower() for reason in ok.strings("finish_reason") if reason is not None)
    if not reasons:
        yield limited("refused_ratio", None, "no answer has a finish_reason")
        return
    refused = {reason: count for reason, count in reasons.items() if reason in REFUSALS}
    count = sum(refused.values())
    text = f"{count} of {quantity(len(ok), 'answer')} were refused or filtered"
    if refused:
        text += f" (finish_reason {', '.join(sorted(refused))})"
    yield limited("refused_ratio", count / len(ok), text)


def abrupt_answers(evidence: Evidence) -> Iterator[Check]:
    """Answers of four tokens or less where 32 or more were allowed: refusals, error texts, a stub.

    Evidence: token counts and finish_reason. No statistics; chat models end less than 1 % of their answers so early. An answer that
    a schema or a grammar forces to be short is not judged.
    """
    name, ok = "abrupt_answer_ratio", evidence.records.ok()
    judged = ok.where(_asked_at_least(ok, LEAST_ASKED) & _is_free(ok) & ok.has("output_tokens"))
    if len(judged) < LEAST_ANSWERS:
        yield limited(name, None, f"fewer than {LEAST_ANSWERS} free answers may have {LEAST_ASKED} tokens or more")
        return
    calls = judged.equals("finish_reason", "tool_calls") | judged.equals("finish_reason", "function_call")
    tokens = judged.numbers("output_tokens")
    abrupt = (tokens <= ABRUPT_TOKENS) & ~judged.equals("finish_reason", "length") & ~calls
    text = f"{int(abrupt.sum())} of {quantity(len(judged), 'answer')} ended after {ABRUPT_TOKENS} tokens or less"
    yield limited(name, float(abrupt.mean()), text)


def early_first_tokens(evidence: Evidence) -> Iterator[Check]:
    """First tokens that came before anything was generated: from a proxy or a template, so that TTFT measures nothing.

    Evidence: the server's own time for the prompt (the first token cannot come in half of it), else the gaps: the second token came
    after three of the answer's long gaps, and later than half of TTFT beyond what prompts of others and a full decoding explain
    (`metrics.first_gaps`).
    """
    name, ok = "early_first_ratio", evidence.records.ok()
    judged = ok.where((ok.numbers("token_events") > LEAST_GAPS) & ok.has("ttft_ms"))
    if len(judged) < LEAST_ANSWERS:
        yield limited(name, None, f"fewer than {LEAST_ANSWERS} streamed answers have {LEAST_GAPS} gaps or more")
        return
    ttft_ms, prompt_ms = judged.numbers("ttft_ms"), judged.numbers("server_prompt_ms")
    gaps = first_gaps(judged, evidence.sent)
    early = np.where(np.isnan(prompt_ms), gaps.are_early(ttft_ms), ttft_ms < prompt_ms / 2)
    text = f"{int(early.sum())} of {quantity(len(judged), 'answer')} got their first token long before the others"
    if early.any():
        text += f" (after {np.median(ttft_ms[early]):.0f} ms; the next {np.median(gaps.gap_ms[early]):.0f} ms later)"
    yield limited(name, float(early.mean()), text)


def _is_free(ok: Records) -> NDArray[np.bool_]:
    """One bool per request: whether its answer was not forced into a form."""
    return np.asarray(~ok.has("answer_form") | ok.equals("answer_form", FREE), dtype=np.bool_)


def _asked_at_least(ok: Records, tokens: int) -> NDArray[np.bool_]:
    """One bool per request: whether its answer may have this many tokens."""
    asked = ok.numbers("max_tokens")
    return np.asarray(np.isnan(asked) | (asked == 0) | (asked >= tokens), dtype=np.bool_)
