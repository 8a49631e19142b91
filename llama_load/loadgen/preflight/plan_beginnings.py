"""Common beginnings of different prompts, found when a run is planned: the texts are known then,
and a server's cache may be silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise

from llama_load.run_folder.observed.common_beginnings import CommonBeginnings
from llama_load.servers.prompt import Prompt

# So many prompts are looked at, in the order of the plan: about 1 s for long ones that begin alike.
MOST_PROMPTS = 50_000
# Shorter beginnings are a word that prompts have in common by chance.
LEAST_CHARS = 8
CHARS_PER_TOKEN = 4.0
# A shared prefix may end within a word, and be tokenized otherwise than alone.
SLACK = 1.1


def common_beginnings(
    planned: Mapping[str, Sequence[Prompt]], shared_tokens: Mapping[str, int | None]
) -> CommonBeginnings:
    """What a cache can reuse of these prompts, which are given by workload. `shared_tokens`: by
    workload or task, shared by design (None: all).

    In the order of their texts each prompt is compared with the one before it. The sum of these
    common beginnings is what a cache that keeps everything reuses, in whatever order they are sent:
    all characters, less those of their prefix tree. "abc", "abd" and "xyz": 2 of 9. Source: J.
    Kärkkäinen, G. Manzini, S. Puglisi, "Permuted Longest-Common-Prefix Array", 2009.
    """
    common = total = sharing = mostly = count = 0
    for name, prompts in planned.items():
        texts = _texts_of_first_turns(prompts, name, shared_tokens)
        count += len(texts)
        total += sum(map(len, texts))
        for (before, _), (text, allowed) in pairwise(sorted(texts.items())):
            chars = _common_chars(before, text) - allowed
            if chars < LEAST_CHARS:
                continue
            common += chars
            sharing += 1
            mostly += chars > len(text) / 2
    if not total:
        return CommonBeginnings()
    return CommonBeginnings(count, common / total, mostly / count, sharing)


def _texts_of_first_turns(
    prompts: Sequence[Prompt], workload: str, shared_tokens: Mapping[str, int | None]
) -> dict[str, int]:
    """The texts of first turns, each with the characters at its beginning that its workload shares
    by design."""
    texts: dict[str, int] = {}
    for prompt in islice(prompts, MOST_PROMPTS):
        if (prompt.turn or 1) > 1 or prompt.inputs:
            continue
        tokens = shared_tokens.get(prompt.task or workload, 0)
        if tokens is None:
            continue
        text = _text_of_prompt(prompt)
        texts[text] = round(tokens * _chars_per_token(prompt, text) * SLACK)
    return texts


def _text_of_prompt(prompt: Prompt) -> str:
    if not prompt.history:
        return prompt.text

    texts = [message.text for message in prompt.history]
    texts.append(prompt.text)

    return "\n".join(texts)


def _chars_per_token(prompt: Prompt, text: str) -> float:
    if not prompt.prompt_tokens:
        return CHARS_PER_TOKEN
    return len(text) / prompt.prompt_tokens


def _common_chars(first: str, second: str) -> int:
    """The length of their common beginning, by bisection."""
    low = 0
    high = min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
