"""ShareGPT conversations: real questions, with the recorded answers' lengths as output lengths.

Sampling follows `vllm bench serve`, so that the same file, seed and tokenizer give the same
prompts: keep entries with two turns or more, shuffle with the seed, take in order what passes
`valid`; if too few pass, draw repetitions from them with the seed. More than one turn selects the
same conversations, by their first exchange.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from llama_load.bundled import bundled
from llama_load.errors import UsageError
from llama_load.workloads.data_files import (
    ASSISTANT,
    SYSTEM,
    USER,
    DataFile,
    Turn,
    alternating,
    messages,
)
from llama_load.workloads.huggingface import HUB, DataSet
from llama_load.workloads.prompt import (
    DataFacts,
    Message,
    Plan,
    PlanRequest,
    Prompt,
    chained,
)
from llama_load.workloads.talk_prompts import Chat, TalkWriter
from llama_load.workloads.talks import RecordedTurn, Talk

MIN_TOKENS = 4
MAX_PROMPT_TOKENS = 1024
MAX_TOTAL_TOKENS = 2048
# Rows are shuffled within a buffer of this size, so the rest need not be downloaded (some 20 MB of
# ShareGPT).
ROWS_AT_A_TIME = 4096
COLUMNS = ("conversations", "messages")
LAYOUT = (
    'in ShareGPT\'s layout, a list of {"id", "conversations": [{"from", "value"}, …]} (or '
    '"messages": [{"role", "content"}, …])'
)


class _Entry(msgspec.Struct):
    id: str | int | None = None
    conversations: list[Turn] | None = None
    messages: list[Turn] | None = None
    tools: Any = None


class _AnyTurn(msgspec.Struct):
    """A turn that is skipped: three times as fast as decoding it."""


class _Outline(msgspec.Struct):
    id: str | int | None = None
    conversations: list[_AnyTurn] | None = None
    messages: list[_AnyTurn] | None = None

    @property
    def turns(self) -> int:
        return len(
            (self.messages if self.conversations is None else self.conversations) or ()
        )


_ENTRY = msgspec.json.Decoder(_Entry)
_OUTLINE = msgspec.json.Decoder(_Outline)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFacts(DataFacts):
    """A file of conversations."""

    conversations: int


class Conversations:
    """The entries of a file that have two turns or more, in file order, decoded on access.

    `sha256` is the file's. UsageError: the file is missing, empty, not JSON, or has another layout.
    """

    def __init__(self, path: Path) -> None:
        self._file = DataFile(path, LAYOUT)
        self.sha256 = self._file.sha256
        outlines = (
            self._file.decode(place, _OUTLINE) for place in range(len(self._file))
        )
        self._places = array(
            "Q", (place for place, outline in enumerate(outlines) if outline.turns >= 2)
        )
        if not self._places:
            raise UsageError(
                f"the data set {path} contains no conversation of two turns or more; is it "
                f"{LAYOUT}?"
            )

    def __len__(self) -> int:
        return len(self._places)

    def read(self, number: int, *, first_only: bool) -> Talk | None:
        """A conversation by number, 0 … len-1; None if it has no answer. UsageError: another
        layout, or tools."""
        place = self._places[number]
        entry = self._file.decode(place, _ENTRY)
        _refuse_tools(
            entry,
            self._file.where(place),
            first_only=first_only,
        )
        return _conversation(entry, place, first_only=first_only)

    def shuffled(self, seed: int, *, first_only: bool) -> Iterator[Talk]:
        """The conversations that have an answer, in the order of vLLM's shuffle. Raises as `read`
        does."""
        order = list(range(len(self)))
        random.Random(seed).shuffle(order)
        talks = (self.read(number, first_only=first_only) for number in order)
        return (talk for talk in talks if talk is not None)


def _refuse_tools(entry: _Entry, where: str, *, first_only: bool) -> None:
    """UsageError: the conversation has tools, of which only texts would be sent. (vLLM's rule takes
    any first two turns.)"""
    if first_only and entry.conversations is not None:
        return
    if entry.tools or any(turn.uses_tools for turn in _turns(entry)):
        raise UsageError(
            f"{where} uses tools, which sharegpt_chat.py cannot send: use "
            "locustfiles/conversations.py"
        )


def _turns(entry: _Entry) -> list[Turn]:
    return (
        entry.messages if entry.conversations is None else entry.conversations
    ) or []


def _conversation(entry: _Entry, place: int, *, first_only: bool) -> Talk | None:
    """The conversation in an entry of two turns or more; None if it has no answer."""
    name = str(place + 1) if entry.id is None else str(entry.id)
    if first_only and entry.conversations is not None:
        # Like vLLM: the first two turns, no matter who speaks.
        question, answer = (turn.text for turn in entry.conversations[:2])
        return Talk(
            name,
            (),
            (RecordedTurn((Message(USER, question),), Message(ASSISTANT, answer)),),
        )
    alternate = list(alternating(messages(_turns(entry))))
    opening = (alternate.pop(0),) if alternate and alternate[0].role == SYSTEM else ()
    exchanged = list(
        alternating(message for message in alternate if message.role != SYSTEM)
    )
    if exchanged and exchanged[0].role == ASSISTANT:
        del exchanged[0]
    pairs = zip(
        exchanged[::2],
        exchanged[1::2],
        strict=False,
    )
    turns = tuple(RecordedTurn((question,), answer) for question, answer in pairs)
    return Talk(name, opening, turns[: 1 if first_only else None]) if turns else None


def valid(prompt_tokens: int, output_tokens: int, *, output_given: bool) -> bool:
    """vLLM's rule: prompt of 4 to 1024 tokens, answer of 4 or more (unless its length is given),
    2048 or less in all."""
    return (
        MIN_TOKENS <= prompt_tokens <= MAX_PROMPT_TOKENS
        and (output_given or output_tokens >= MIN_TOKENS)
        and prompt_tokens + output_tokens <= MAX_TOTAL_TOKENS
    )


class ShareGPT:
    """Chat with real questions: the conversations of a ShareGPT file, by default the sample
    included with llama-load.

    Sends each conversation's first question; with `--turns`, further ones with their history.
    """

    name = "sharegpt"

    def plan(self, request: PlanRequest) -> Plan:
        """Choose the prompts of a run. UsageError: the data cannot be read, or no prompt qualifies.

        The requests of a conversation are consecutive; the last conversation is cut at
        `num_prompts`.
        """
        data, talks = chosen(request)
        writer = TalkWriter(request)
        chats: list[Chat] = []
        warmup: list[Prompt] = []
        planned = seen = too_long = 0
        used: set[str] = set()
        for talk in writer.counted(talks, turns=1):
            seen += 1
            if not _qualifies(talk.turns[0], writer, request.output_len):
                continue
            missing = not request.is_enough(planned, len(chats))
            most = (
                len(talk.turns)
                if request.num_conversations is not None
                else request.num_prompts - planned
            )
            chat = writer.chat(
                talk, min(most, request.traffic.turns or most) if missing else 1
            )
            if not chat.prompts:
                too_long += missing
            elif missing:
                chats.append(chat)
                used.add(chat.prompts[0].text)
                planned += len(chat.prompts)
            elif chat.prompts[0].text not in used:
                warmup += chat.prompts
            if request.is_enough(planned, len(chats)) and len(warmup) >= request.warmup:
                break
        if not chats:
            answers = "--max-tokens" if request.answer_len else "--output-len"
            raise UsageError(
                _none_left(
                    data.path,
                    seen,
                    too_long,
                    answers=answers,
                )
            )
        measured = [prompt for chat in chats for prompt in chat.prompts]
        draw = random.Random(request.seed)
        count = len(chats)
        while request.fill and not request.is_enough(len(measured), count):
            turns = draw.choices(chats)[0].prompts
            measured += (
                turns
                if request.num_conversations
                else chained(turns[: request.num_prompts - len(measured)])
            )
            count += 1
        return request.plan(
            measured,
            warmup,
            data,
            distinct=planned,
            replaced=too_long,
            shortened=sum(chat.missing > 0 for chat in chats),
            shared_tokens=writer.shared_tokens,
        )


def _qualifies(first: RecordedTurn, writer: TalkWriter, output_len: int | None) -> bool:
    question, answer = (writer.tokens(message) for message in first.messages)
    return valid(
        question,
        output_len or answer,
        output_given=output_len is not None,
    )


def chosen(request: PlanRequest) -> tuple[DataFacts, Iterator[Talk]]:
    """The conversations' source, and the conversations in the seed's order."""
    source = request.dataset_path
    first_only = request.traffic.turns == 1
    if source is not None and (source.startswith(HUB) or source.endswith(".parquet")):
        rows = DataSet(source)
        return rows.facts, _shuffled_rows(
            rows,
            request.seed,
            first_only=first_only,
        )
    path = bundled("datasets/sharegpt_sample.json") if source is None else Path(source)
    file = Conversations(path)
    facts = ConversationFacts(
        path=str(path), sha256=file.sha256, conversations=len(file)
    )
    return facts, file.shuffled(request.seed, first_only=first_only)


def _shuffled_rows(data: DataSet, seed: int, *, first_only: bool) -> Iterator[Talk]:
    column = data.first_of(COLUMNS)
    draw = random.Random(seed)
    rows = enumerate(data.rows([column, *({"id"} & set(data.columns))]))
    while block := list(islice(rows, ROWS_AT_A_TIME)):
        entries = [(place, _entry(row, data.spec, place)) for place, row in block]
        for place, entry in entries:
            _refuse_tools(
                entry, f"row {place + 1} of {data.spec}", first_only=first_only
            )
        entries = [
            (place, entry) for place, entry in entries if len(_turns(entry)) >= 2
        ]
        draw.shuffle(entries)
        for place, entry in entries:
            if (talk := _conversation(entry, place, first_only=first_only)) is not None:
                yield talk


def _entry(row: dict[str, Any], spec: str, place: int) -> _Entry:
    try:
        return msgspec.convert(row, _Entry)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"row {place + 1} of {spec} is not {LAYOUT}: {error}"
        ) from None


def _none_left(
    path: str,
    conversations: int,
    too_long: int,
    *,
    answers: str,
) -> str:
    """Why no prompt can be sent; `answers` is the flag that sets answer lengths."""
    if too_long:
        return (
            f"all {too_long} usable prompts of {path} are longer than a slot of the server; "
            "start it with a larger context "
            f"or fewer slots, ask for shorter answers with {answers}, or send them anyway with "
            "--keep-long-prompts"
        )
    return (
        f"none of the {conversations} conversations of {path} has a prompt of {MIN_TOKENS} to "
        f"{MAX_PROMPT_TOKENS} tokens and "
        f"an answer that together stay within {MAX_TOTAL_TOKENS} tokens"
    )
