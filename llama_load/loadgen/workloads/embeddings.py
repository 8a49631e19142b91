"""Inputs of embeddings and rerank requests: batches of passages from text files, or of questions
from ShareGPT conversations."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.prompt_plan import DataFacts, Plan, PlanRequest
from llama_load.loadgen.workloads.sharegpt import chosen
from llama_load.loadgen.workloads.text_files import files_digest, text_files
from llama_load.servers.counting import CHARS_PER_TOKEN, counted
from llama_load.servers.prompt import Prompt

# Retrieval systems cut documents into passages of about this length; many embedding models take at
# most 512 tokens.
PASSAGE_TOKENS = 128
_SENTENCE_ENDS = ("\n", ". ", "! ", "? ", "。", "！", "？")
_WORD_ENDS = (" ", "\t", "，")
# Passages counted per file to learn its characters per token.
_SAMPLE_PASSAGES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFacts(DataFacts):
    """Texts to embed or rank: the number of different ones, and how many per request."""

    texts: int
    batch_size: int


class TextBatches:
    """Batches of texts to embed: passages of a file or folder (`document`), else first questions of
    a ShareGPT file.

    The default is the questions of the sample included with llama-load. Passages have about
    `input_len` tokens and end with a sentence or word. Batches repeat only after every text was
    used once.
    """

    name = "embeddings"
    # texts at the start of a batch that are not its inputs: 0 or 1
    queries: ClassVar[int] = 0

    def plan(self, request: PlanRequest) -> Plan:
        """Choose the batches of a run. UsageError: the data cannot be read or has too few texts for
        one batch."""
        size = request.traffic.batch_size
        if (folder := request.traffic.document) is None:
            path, texts, digests = _questions_of_data(request)
        else:
            path = str(folder)
            digests = list[str]()
            texts = _passages(folder, request, digests)
        prompts: list[Prompt] = []
        batch: list[tuple[str, int]] = []
        too_long = usable = 0
        for text, tokens in counted(_without_repeats(texts), request.counter):
            # A query and a document share a slot.
            if request.fits is not None and not request.fits(
                (1 + self.queries) * tokens, 0
            ):
                too_long += 1
                continue
            usable += 1
            batch.append((text, tokens))
            if len(batch) < self.queries + size:
                continue
            prompts.append(self._prompt(batch))
            batch = []
            if len(prompts) == request.num_prompts + request.warmup:
                break
        if not prompts:
            raise UsageError(_too_few(path, usable, too_long, size, self.queries))
        measured = prompts[: request.num_prompts]
        warmup = prompts[request.num_prompts :]
        data = TextFacts(
            path=path, sha256=files_digest(digests), texts=usable, batch_size=size
        )
        warmup += self._made_up(request.warmup - len(warmup), size)
        return request.plan(measured, warmup, data, replaced=too_long)

    def _prompt(self, batch: Sequence[tuple[str, int]]) -> Prompt:
        texts, tokens = zip(*batch, strict=True)
        queries = self.queries
        # The server computes each document with the query before it.
        documents = tuple(texts[queries:])
        total = sum(tokens[queries:]) + sum(tokens[:queries]) * len(documents)
        return Prompt("".join(texts[:queries]), total, inputs=documents)

    def _made_up(self, count: int, size: int) -> list[Prompt]:
        """Warm-up batches for data that has none to spare."""
        prompts = []
        for number in range(count):
            query = f"Warm-up query {number}" if self.queries else ""
            texts = tuple(f"Warm-up text {number}.{part}" for part in range(size))
            prompts.append(Prompt(query, inputs=texts))
        return prompts


class Queries(TextBatches):
    """Queries, each with `--batch-size` documents to be ranked for it, drawn like the texts of
    `TextBatches`."""

    name = "rerank"
    queries = 1


def _questions_of_data(request: PlanRequest) -> tuple[str, Iterator[str], list[str]]:
    """The path of the data, the first questions of its conversations, and the SHA-256 of the
    file."""
    source = chosen(request)
    data = source.facts
    questions = (talk.turns[0].added[0].text for talk in source.talks)
    return data.path, filter(str.strip, questions), [str(data.sha256 or None)]


def _passages(path: Path, request: PlanRequest, digests: list[str]) -> Iterator[str]:
    """The passages of the files at a path; adds the SHA-256 of each file that is read to
    `digests`."""
    draw = random.Random(request.seed)
    target = request.traffic.input_len or PASSAGE_TOKENS
    for file in text_files(path, request.seed):
        digests.append(file.sha256)
        sample = file.text[: round(_SAMPLE_PASSAGES * target * CHARS_PER_TOKEN)]
        tokens = request.counter.count([sample])[0]
        pieces = list(
            passages(file.text, max(1, round(target * len(sample) / max(1, tokens))))
        )
        draw.shuffle(pieces)
        yield from pieces


def _end_of_passage(piece: str, chars: int) -> int:
    """Where a piece of so many characters is cut in its last third: at a sentence's end if there is
    one, else at a word's, else at the limit."""
    for marks in (_SENTENCE_ENDS, _WORD_ENDS):
        end = max(piece.rfind(mark, 2 * chars // 3) for mark in marks)
        if end >= 0:
            return end + 1
    return chars


def passages(text: str, chars: int) -> Iterator[str]:
    """A text in pieces of at most `chars` characters, stripped, each cut after a sentence or
    word."""
    start = 0
    while start < len(text):
        piece = text[start : start + chars]
        if start + chars < len(text):
            piece = piece[: _end_of_passage(piece, chars)]
        start += len(piece)
        if piece.strip():
            yield piece.strip()


def _without_repeats(texts: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for text in texts:
        if text not in seen:
            seen.add(text)
            yield text


def _too_few(path: str, usable: int, too_long: int, size: int, queries: int) -> str:
    if too_long and not usable:
        slot = "half a slot" if queries else "a slot"
        return (
            f"all {too_long} texts of {path} are longer than {slot} of the server; start it with "
            "a larger context, or give "
            "shorter texts"
        )
    batch = f"a batch of {size}{' and a query' if queries else ''}"
    return (
        f"{path} has {usable} different usable texts, too few for {batch}; lower --batch-size "
        "or give more"
    )
