"""ShareGPT conversations: first question, and the length of the first answer as the length to ask for.

Sampling follows `vllm bench serve`, so that the same file, seed and tokenizer give the same prompts: keep entries with two
turns or more, shuffle with the seed, then take in order what passes `valid`; too few are filled up by drawing
again, with the seed, from those found.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llama_load.bundled import bundled
from llama_load.errors import UsageError
from llama_load.workloads.counting import TokenCounter
from llama_load.workloads.prompt import Plan, PlanRequest, Prompt

MIN_TOKENS = 4
MAX_PROMPT_TOKENS = 1024
MAX_TOTAL_TOKENS = 2048
# Texts are counted in batches of this many conversations: a server's /tokenize answers several at a time.
COUNT_AHEAD = 32


class _Turn(msgspec.Struct):
    value: str | None = None


class _Entry(msgspec.Struct):
    id: str | int | None = None
    conversations: list[_Turn] | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """The first exchange of a conversation."""

    id: str
    prompt: str
    completion: str


def load(path: Path) -> tuple[list[Conversation], str]:
    """The conversations of a ShareGPT file that have two turns or more, in file order, and the file's SHA-256.

    Raises UsageError with a sentence when the file is missing, empty, no JSON, or laid out otherwise.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"there is no data set at {path}; give the path of a ShareGPT JSON file with --dataset-path") from None
    except OSError as error:
        raise UsageError(f"the data set {path} cannot be read: {error.strerror}") from None
    if not data.strip():
        raise UsageError(f"the data set {path} is empty")
    try:
        entries = _decode(data.removeprefix(b"\xef\xbb\xbf"))
    except msgspec.ValidationError as error:
        wanted = 'a list of {"id", "conversations": [{"from", "value"}, …]}'
        raise UsageError(f"the data set {path} is JSON, but not in ShareGPT's layout, {wanted}: {error}") from None
    except ValueError as error:
        raise UsageError(f"the data set {path} is not valid JSON in UTF-8: {error}") from None
    found = [
        Conversation(str(entry.id), entry.conversations[0].value or "", entry.conversations[1].value or "")
        for entry in entries
        if entry.conversations is not None and len(entry.conversations) >= 2
    ]
    if not found:
        raise UsageError(f"the data set {path} holds no conversation of two turns or more; is it in ShareGPT's layout?")
    return found, hashlib.sha256(data).hexdigest()


def _decode(data: bytes) -> list[_Entry]:
    try:
        return msgspec.json.decode(data, type=list[_Entry])
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # Half an emoji, escaped, is no Unicode; Python's json takes it (and so vLLM), and scraped dumps have it.
        text = json.dumps(json.loads(data), ensure_ascii=False).encode("utf-8", "replace")
        return msgspec.json.decode(text, type=list[_Entry])


def valid(prompt_tokens: int, output_tokens: int, *, output_given: bool) -> bool:
    """vLLM's rule: prompt of 4 to 1024 tokens, answer of 4 or more (unless its length is given), both at most 2048."""
    return (
        MIN_TOKENS <= prompt_tokens <= MAX_PROMPT_TOKENS
        and (output_given or output_tokens >= MIN_TOKENS)
        and prompt_tokens + output_tokens <= MAX_TOTAL_TOKENS
    )


class ShareGPT:
    """Chat as people do it: the conversations of a ShareGPT file, by default the sample that comes with llama-load."""

    name = "sharegpt"

    def plan(self, wanted: PlanRequest) -> Plan:
        """Choose the prompts of a run from the file. Raises UsageError when it cannot be read or no prompt qualifies."""
        path = wanted.dataset_path or bundled("datasets/sharegpt_sample.json")
        conversations, digest = load(path)
        random.Random(wanted.seed).shuffle(conversations)
        measured: list[Prompt] = []
        warmup: list[Prompt] = []
        too_long = 0
        for conversation, prompt_tokens, answer_tokens in _counted(conversations, wanted.counter):
            if len(measured) >= wanted.num_prompts and len(warmup) >= wanted.warmup:
                break
            output_tokens = answer_tokens if wanted.output_len is None else wanted.output_len
            if not valid(prompt_tokens, output_tokens, output_given=wanted.output_len is not None):
                continue
            if wanted.fits is not None and not wanted.fits(prompt_tokens, output_tokens):
                too_long += len(measured) < wanted.num_prompts
                continue
            prompt = Prompt(conversation.prompt, prompt_tokens, output_tokens, conversation.id)
            (measured if len(measured) < wanted.num_prompts else warmup).append(prompt)
        if not measured:
            raise UsageError(_none_left(path, len(conversations), too_long))
        distinct = len(measured)
        if wanted.fill and distinct < wanted.num_prompts:
            measured += random.Random(wanted.seed).choices(measured, k=wanted.num_prompts - distinct)
        about = {
            "dataset": {"path": str(path), "sha256": digest, "conversations": len(conversations)},
            "counted_by": wanted.counter.source,
            "distinct": distinct,
            "repeated": len(measured) - distinct,
            "replaced": too_long,
        }
        return Plan(measured, warmup + _made_up(wanted.warmup - len(warmup)), about)


def _counted(conversations: Sequence[Conversation], counter: TokenCounter) -> Iterator[tuple[Conversation, int, int]]:
    for start in range(0, len(conversations), COUNT_AHEAD):
        batch = conversations[start : start + COUNT_AHEAD]
        counts = counter.count([text for item in batch for text in (item.prompt, item.completion)])
        yield from zip(batch, counts[::2], counts[1::2], strict=True)


def _made_up(count: int) -> list[Prompt]:
    """Warm-up prompts for when the file has none to spare; a prompt that is measured must never warm the cache."""
    return [Prompt(f"Warm-up request {number}. Please count from one to forty.", None, 64) for number in range(1, count + 1)]


def _none_left(path: Path, conversations: int, too_long: int) -> str:
    if too_long:
        return (
            f"all {too_long} usable prompts of {path} are longer than a slot of the server; start it with a larger context "
            "or fewer slots, shorten the answers with --sharegpt-output-len, or send them anyway with --keep-long-prompts"
        )
    return (
        f"none of the {conversations} conversations of {path} has a prompt of {MIN_TOKENS} to {MAX_PROMPT_TOKENS} tokens and "
        f"an answer that together stay within {MAX_TOTAL_TOKENS} tokens"
    )
