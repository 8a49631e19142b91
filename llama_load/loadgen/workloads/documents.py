"""Long documents with a question at the end: the traffic of people who paste a file and ask about
it."""

from __future__ import annotations

import random
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.prompt_plan import (
    ANSWER_TOKENS,
    DataFacts,
    Plan,
    PlanRequest,
)
from llama_load.loadgen.workloads.text_files import TextFile, files_digest, text_files
from llama_load.run_folder.vocabulary.document_caches import AS_IS, DIFFERENT, SHARED
from llama_load.servers.counting import EstimatedCounter, TokenCounter, counted, settled
from llama_load.servers.prompt import Prompt

# The default document length: a source file of about 11,000 tokens.
DOCUMENT_TOKENS = 11_000
# Plans stay in memory: 40 million tokens are about 160 MB of text. Longer plans repeat documents.
MOST_TOKENS = 40_000_000
# The shortest document worth a question.
LEAST_TOKENS = 16
# No text has more characters per token: this much of a file is enough to cut from.
MOST_CHARS_PER_TOKEN = 16
# Cuts are tried until the count is at most half a percent below the target; usually two or three
# tries.
TRIES = 8

QUESTIONS = (
    "Summarise the document above in five sentences.",
    "What is the main purpose of the text above, and for whom was it written?",
    "List the three most important statements of the document above and say why each one matters.",
    "Which part of the document above is the hardest to understand? Explain it in simple words.",
    "What does the document above leave open? Name two questions that a careful reader would ask.",
    "Write a title and a short table of contents for the document above.",
    "Find a claim in the document above that could be checked by an experiment, and describe "
    "that experiment.",
    "Explain to a new colleague what they have to know from the document above before they start "
    "to work.",
)
CHINESE_QUESTIONS = (
    "请用五句话概括上面的文档。",
    "上面这篇文章的主要目的是什么？它是写给谁看的？",
    "请列出上面文档中最重要的三个观点，并说明各自为什么重要。",
    "上面文档中哪一部分最难理解？请用简单的话解释。",
    "上面的文档还有哪些问题没有说清楚？请提出细心的读者会问的两个问题。",
    "请为上面的文档写一个标题和一份简短的目录。",
    "请在上面的文档中找出一个可以用实验验证的说法，并描述这个实验。",
    "请向一位新同事说明，开始工作之前必须从上面的文档中了解哪些内容。",
)
_HAN = re.compile(r"[\u4e00-\u9fff]")
_LATIN_WORD = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class _Frame:
    """The text around a document in one prompt."""

    before: str
    question: str

    def around(self, document: str) -> str:
        return f"{self.before}{document.rstrip()}\n\n{self.question}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentFacts(DataFacts):
    """Text files, and how many tokens of each go into a prompt."""

    files: int
    document_tokens: int
    cache: str


class Documents:
    """Questions about long documents: a file, the files of a folder, or by default the text
    included with llama-load.

    Each document is cut or repeated to `document_tokens` tokens and ends with a question.
    `document_cache` sets what a server's prefix cache can reuse. "different": nothing, every prompt
    begins with random text. "shared": the document, the same one begins all prompts, warm-up
    included, and each has another question. "as-is": nothing is added, so a document and question
    may repeat. Documents are cut to a slot's size where the server reports it.
    """

    name = "document"

    def plan(self, request: PlanRequest) -> Plan:
        """Choose the documents and questions of a run. UsageError: no text, or a slot too small for
        any document."""
        traffic = request.traffic
        cache = request.traffic.document_cache
        path = traffic.document or bundled("datasets/sample_document.md")
        answer = request.output_len or ANSWER_TOKENS
        tokens = traffic.document_tokens or DOCUMENT_TOKENS
        room = request.room(answer)
        at_most = max(
            1, MOST_TOKENS // (tokens if room is None else max(1, min(tokens, room)))
        )
        distinct = min(request.num_prompts, at_most)
        files = list(
            islice(text_files(path, request.seed), 1 if cache == SHARED else distinct)
        )
        questions = [_questions(file.text, traffic.question) for file in files]
        if cache == AS_IS:
            distinct = min(distinct, sum(map(len, questions)))
        frames = [
            _frame(
                place,
                questions,
                f"{request.seed}{request.nonce}",
                cache,
                warmup=place >= distinct,
            )
            for place in range(distinct + request.warmup)
        ]
        frame_tokens = dict(
            counted(
                dict.fromkeys(frame.around("") for frame in frames), request.counter
            )
        )
        longest = max(frames, key=lambda frame: frame_tokens[frame.around("")])
        most_around = frame_tokens[longest.around("")]
        most = tokens + most_around
        if room is not None and room < most:
            if room < most_around + min(tokens, LEAST_TOKENS):
                raise UsageError(
                    f"a slot has room for {room} prompt tokens with an answer of {answer}, too "
                    "few for a document with its "
                    "question; start the server with a larger context or fewer slots"
                )
            most = room
        documents = _sized(files, longest, most, most_around, request.counter)
        prompts = []
        for place, frame in enumerate(frames):
            document, with_longest = documents[place % len(documents)]
            prompt_tokens = with_longest - most_around + frame_tokens[frame.around("")]
            prompts.append(
                Prompt(
                    frame.around(document),
                    prompt_tokens,
                    answer,
                    is_new=cache == DIFFERENT,
                )
            )
        measured = prompts[:distinct]
        warmup = prompts[distinct:]
        if request.fill:
            # In turn, not drawn: no document repeats before all others were used.
            measured = [
                measured[place % distinct] for place in range(request.num_prompts)
            ]
        document_tokens = most - most_around
        texts = DocumentFacts(
            path=str(path),
            sha256=files_digest([file.sha256 for file in files]),
            files=len(files),
            document_tokens=document_tokens,
            cache=cache,
        )
        shared = document_tokens if cache == SHARED else 0
        plan = request.plan(
            measured, warmup, texts, distinct=distinct, shared_tokens=shared
        )
        return replace(
            plan,
            facts=replace(
                plan.facts,
                cut=len(measured) if document_tokens < tokens else 0,
                cut_from=tokens,
            ),
        )


def _questions(text: str, question: str | None) -> Sequence[str]:
    """The questions about a text: the user's, else the built-in ones in its language."""
    if question:
        return (question,)
    start = text[:20_000]
    return (
        CHINESE_QUESTIONS
        if len(_HAN.findall(start)) > len(_LATIN_WORD.findall(start))
        else QUESTIONS
    )


def _frame(
    place: int,
    by_document: Sequence[Sequence[str]],
    seed: str,
    cache: str,
    *,
    warmup: bool,
) -> _Frame:
    """Each document gets its first question, then each gets its second, and so on."""
    questions = by_document[place % len(by_document)]
    number = place // len(by_document)
    question = questions[number % len(questions)]
    if cache == SHARED:
        return _Frame(
            "", question if number < len(questions) else f"({number + 1}) {question}"
        )
    if cache == AS_IS and not warmup:
        return _Frame("", question)
    return _Frame(
        f"{random.Random(f'document {seed} {place}').getrandbits(128):032x}\n", question
    )


def _sized(
    files: Sequence[TextFile],
    frame: _Frame,
    most: int,
    around: int,
    counter: TokenCounter,
) -> list[tuple[str, int]]:
    """As much of each file, repeated if short, as makes `most` tokens in this frame; and that
    number of tokens."""
    texts = [
        file.text[: most * MOST_CHARS_PER_TOKEN].strip() + "\n\n" for file in files
    ]
    return settled([_cutting(text, frame, most, around) for text in texts], counter)


def _cutting(
    text: str, frame: _Frame, most: int, around: int
) -> Generator[str, int, tuple[str, int]]:
    aim = most - most // 400
    enough = most - most // 200
    sample = text[:20_000]
    chars = max(
        1, round((most - around) * len(sample) / EstimatedCounter().count([sample])[0])
    )
    fitting = 0
    tokens_of_fitting = around
    too_many = None
    for _ in range(TRIES):
        tokens = yield frame.around(_repeated(text, chars))
        if tokens <= most:
            fitting = chars
            tokens_of_fitting = tokens
            if tokens >= enough:
                break
        else:
            too_many = chars
        chars += round((aim - tokens) * chars / max(1, tokens - around))
        chars = max(chars, fitting + 1)
        if too_many is not None:
            chars = min(chars, too_many - 1)
            if chars <= fitting:
                break
    return _repeated(text, fitting), tokens_of_fitting


def _repeated(text: str, chars: int) -> str:
    return (text * -(-chars // len(text)))[:chars]
