"""ShareGPT conversations: real questions, with the recorded answers' lengths as output lengths.

Sampling follows `vllm bench serve`, so that the same file, seed and tokenizer give the same prompts: keep entries with two
turns or more, shuffle with the seed, take in order what passes `valid`; if too few pass, draw repetitions from them with the
seed. More than one turn selects the same conversations, by their first exchange.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from llama_load.bundled import bundled
from llama_load.errors import UsageError
from llama_load.workloads.data_files import ASSISTANT, SYSTEM, USER, DataFile, Turn, alternating, joined, messages
from llama_load.workloads.facts import DataFacts, PlanFacts
from llama_load.workloads.fitting import BATCH, batches
from llama_load.workloads.huggingface import HUB, DataSet
from llama_load.workloads.prompt import Message, Plan, PlanRequest, Prompt
from llama_load.workloads.talk_prompts import TextCounts

MIN_TOKENS = 4
MAX_PROMPT_TOKENS = 1024
MAX_TOTAL_TOKENS = 2048
# Rows are shuffled within a buffer of this size, so the rest need not be downloaded (some 20 MB of ShareGPT).
ROWS_AT_A_TIME = 4096
COLUMNS = ("conversations", "messages")
LAYOUT = (
    'in ShareGPT\'s layout, a list of {"id", "conversations": [{"from", "value"}, …]} (or "messages": [{"role", "content"}, …])'
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
        return len((self.messages if self.conversations is None else self.conversations) or ())


_ENTRY = msgspec.json.Decoder(_Entry)
_OUTLINE = msgspec.json.Decoder(_Outline)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFacts(DataFacts):
    """A file of conversations."""

    conversations: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation: the system prompt, and one or more exchanges of (question, answer)."""

    id: str
    system: str | None
    exchanges: tuple[tuple[str, str], ...]

    @property
    def prompt(self) -> str:
        """The first question."""
        return self.exchanges[0][0]

    @property
    def completion(self) -> str:
        """The first answer."""
        return self.exchanges[0][1]


class Conversations:
    """The entries of a file that have two turns or more, in file order, decoded on access.

    `sha256` is the file's. UsageError: the file is missing, empty, not JSON, or has another layout.
    """

    def __init__(self, path: Path) -> None:
        self._file = DataFile(path, LAYOUT)
        self.sha256 = self._file.sha256
        outlines = (self._file.decode(place, _OUTLINE) for place in range(len(self._file)))
        self._places = array("Q", (place for place, outline in enumerate(outlines) if outline.turns >= 2))
        if not self._places:
            raise UsageError(f"the data set {path} contains no conversation of two turns or more; is it {LAYOUT}?")

    def __len__(self) -> int:
        return len(self._places)

    def read(self, number: int, *, first_only: bool) -> Conversation | None:
        """A conversation by number, 0 … len-1; None if it has no answer. UsageError: another layout, or tools."""
        place = self._places[number]
        entry = self._file.decode(place, _ENTRY)
        _refuse_tools(entry, self._file.where(place), first_only=first_only)
        return _conversation(entry, place, first_only=first_only)

    def shuffled(self, seed: int, *, first_only: bool) -> Iterator[Conversation]:
        """The conversations that have an answer, in the order of vLLM's shuffle. Raises as `read` does."""
        order = list(range(len(self)))
        random.Random(seed).shuffle(order)
        found = (self.read(number, first_only=first_only) for number in order)
        return (conversation for conversation in found if conversation is not None)


def _refuse_tools(entry: _Entry, where: str, *, first_only: bool) -> None:
    """UsageError: the conversation has tools, of which only texts would be sent. (vLLM's rule takes any first two turns.)"""
    if first_only and entry.conversations is not None:
        return
    if entry.tools or any(turn.uses_tools for turn in _turns(entry)):
        raise UsageError(f"{where} uses tools, which sharegpt_chat.py cannot send: use locustfiles/conversations.py")


def _turns(entry: _Entry) -> list[Turn]:
    return (entry.messages if entry.conversations is None else entry.conversations) or []


def _conversation(entry: _Entry, place: int, *, first_only: bool) -> Conversation | None:
    """The conversation in an entry of two turns or more; None if it has no answer."""
    name = str(place + 1) if entry.id is None else str(entry.id)
    if first_only and entry.conversations is not None:
        # Like vLLM: the first two turns, no matter who speaks.
        question, answer = (turn.text for turn in entry.conversations[:2])
        return Conversation(name, None, ((question, answer),))
    said = list(alternating(messages(_turns(entry))))
    system = said.pop(0).text if said and said[0].role == SYSTEM else None
    talk = list(alternating(message for message in said if message.role != SYSTEM))
    if talk and talk[0].role == ASSISTANT:
        del talk[0]
    exchanges = tuple((user.text, assistant.text) for user, assistant in zip(talk[::2], talk[1::2], strict=False))
    return Conversation(name, system, exchanges[: 1 if first_only else None]) if exchanges else None


def valid(prompt_tokens: int, output_tokens: int, *, output_given: bool) -> bool:
    """vLLM's rule: prompt of 4 to 1024 tokens, answer of 4 or more (unless its length is given), 2048 or less in all."""
    return (
        MIN_TOKENS <= prompt_tokens <= MAX_PROMPT_TOKENS
        and (output_given or output_tokens >= MIN_TOKENS)
        and prompt_tokens + output_tokens <= MAX_TOTAL_TOKENS
    )


class ShareGPT:
    """Chat with real questions: the conversations of a ShareGPT file, by default the sample included with llama-load.

    Sends each conversation's first question; with `--turns`, further ones with their history.
    """

    name = "sharegpt"

    def plan(self, request: PlanRequest) -> Plan:
        """Choose the prompts of a run. UsageError: the data cannot be read, or no prompt qualifies.

        The requests of a conversation are consecutive; the last conversation is cut at `num_prompts`.
        """
        data, conversations = chosen(request)
        writer = _Writer(request)
        chats: list[list[Prompt]] = []
        warmup: list[Prompt] = []
        planned = 0
        seen = too_long = shortened = 0
        used: set[str] = set()
        for conversation in writer.first_counted(conversations):
            seen += 1
            if not writer.qualifies(conversation):
                continue
            missing = not request.is_enough(planned, len(chats))
            most = len(conversation.exchanges) if request.num_conversations is not None else request.num_prompts - planned
            turns = min(most, request.traffic.turns or most) if missing else 1
            chat = writer.prompts(conversation, turns)
            if not chat:
                too_long += missing
            elif missing:
                chats.append(chat)
                used.add(chat[0].text)
                planned += len(chat)
                shortened += len(chat) < min(turns, len(conversation.exchanges))
            elif conversation.prompt not in used:
                warmup.append(chat[0])
            if request.is_enough(planned, len(chats)) and len(warmup) >= request.warmup:
                break
        if not chats:
            raise UsageError(
                _none_left(data.path, seen, too_long, answers="--max-tokens" if request.answer_len else "--output-len")
            )
        measured = [prompt for chat in chats for prompt in chat]
        distinct = len(measured)
        draw = random.Random(request.seed)
        count = len(chats)
        while request.fill and not request.is_enough(len(measured), count):
            chat = draw.choices(chats)[0]
            measured += _first_turns(chat, len(chat) if request.num_conversations else request.num_prompts - len(measured))
            count += 1
        return Plan(
            measured,
            warmup + made_up(request.warmup - len(warmup)),
            PlanFacts(
                dataset=data,
                counted_by=request.counter.source,
                distinct=distinct,
                repeated=len(measured) - distinct,
                replaced=too_long,
                shortened=shortened,
                shared_tokens=writer.shared_tokens(),
            ),
        )


def chosen(request: PlanRequest) -> tuple[DataFacts, Iterator[Conversation]]:
    """The conversations' source, and the conversations in the seed's order."""
    source = request.dataset_path
    first_only = request.traffic.turns == 1
    if source is not None and (source.startswith(HUB) or source.endswith(".parquet")):
        rows = DataSet(source)
        return rows.facts, _shuffled_rows(rows, request.seed, first_only=first_only)
    path = bundled("datasets/sharegpt_sample.json") if source is None else Path(source)
    file = Conversations(path)
    facts = ConversationFacts(path=str(path), sha256=file.sha256, conversations=len(file))
    return facts, file.shuffled(request.seed, first_only=first_only)


def _shuffled_rows(data: DataSet, seed: int, *, first_only: bool) -> Iterator[Conversation]:
    column = data.first_of(COLUMNS)
    draw = random.Random(seed)
    rows = enumerate(data.rows([column, *({"id"} & set(data.columns))]))
    while block := list(islice(rows, ROWS_AT_A_TIME)):
        entries = [(place, _entry(row, data.spec, place)) for place, row in block]
        for place, entry in entries:
            _refuse_tools(entry, f"row {place + 1} of {data.spec}", first_only=first_only)
        entries = [(place, entry) for place, entry in entries if len(_turns(entry)) >= 2]
        draw.shuffle(entries)
        for place, entry in entries:
            if (conversation := _conversation(entry, place, first_only=first_only)) is not None:
                yield conversation


def _entry(row: dict[str, Any], spec: str, place: int) -> _Entry:
    try:
        return msgspec.convert(row, _Entry)
    except msgspec.ValidationError as error:
        raise UsageError(f"row {place + 1} of {spec} is not {LAYOUT}: {error}") from None


class _Writer:
    """Makes prompts from conversations; counts every text once."""

    def __init__(self, request: PlanRequest) -> None:
        self._request = request
        self._counts = TextCounts(request.counter)

    def first_counted(self, conversations: Iterator[Conversation]) -> Iterator[Conversation]:
        """The conversations, with system prompts and first exchanges counted in batches."""
        # A short run does not wait for the tokens of conversations that it does not send.
        needed = max(1, self._request.num_prompts) + self._request.warmup
        for batch in batches(conversations, min(needed, BATCH)):
            self._counts.ask([text for item in batch for text in (*item.exchanges[0], self._system(item))])
            yield from batch

    def qualifies(self, conversation: Conversation) -> bool:
        question, answer = conversation.exchanges[0]
        return valid(self._counts[question], self._output(answer), output_given=self._request.output_len is not None)

    def prompts(self, conversation: Conversation, turns: int) -> list[Prompt]:
        """The requests of the first turns that fit the server."""
        exchanges = conversation.exchanges[:turns]
        self._counts.ask([text for exchange in exchanges for text in exchange])
        system = self._system(conversation)
        history: tuple[Message, ...] = (Message(SYSTEM, system),) if system else ()
        tokens = self._counts[system]
        chat: list[Prompt] = []
        for question, answer in exchanges:
            tokens += self._counts[question]
            output = self._output(answer)
            if not output or not (self._request.fits is None or self._request.fits(tokens, output)):
                break
            chat.append(Prompt(question, tokens, output, conversation.id, len(chat) + 1, history, answer))
            history += (Message(USER, question), Message(ASSISTANT, answer))
            tokens += self._said(answer) + self._request.exchange_tokens
        return _first_turns(chat, turns)

    def shared_tokens(self) -> int:
        """The tokens of --system-prompt, with which every prompt begins."""
        text = self._request.traffic.system_prompt or ""
        self._counts.ask([text])
        return self._counts[text]

    def _system(self, conversation: Conversation) -> str:
        return joined(self._request.traffic.system_prompt, conversation.system) or ""

    def _said(self, answer: str) -> int:
        """Tokens of an answer in the history: the length requested, or the recorded one."""
        if self._request.traffic.generated_history:
            return self._request.answer_len or self._output(answer)
        return self._counts[answer]

    def _output(self, answer: str) -> int:
        return self._counts[answer] if self._request.output_len is None else self._request.output_len


def _first_turns(chat: list[Prompt], count: int) -> list[Prompt]:
    """The first requests of a conversation, each with the number of those that follow."""
    kept = chat[:count]
    return [replace(prompt, more=len(kept) - 1 - place, turns=len(kept)) for place, prompt in enumerate(kept)]


def made_up(count: int) -> list[Prompt]:
    """Warm-up prompts for data that has none to spare; a measured prompt must never warm the cache."""
    return [Prompt(f"Warm-up request {number}. Please count from one to forty.", None, 64) for number in range(1, count + 1)]


def _none_left(path: str, conversations: int, too_long: int, *, answers: str) -> str:
    """Why no prompt can be sent; `answers` is the flag that sets answer lengths."""
    if too_long:
        return (
            f"all {too_long} usable prompts of {path} are longer than a slot of the server; start it with a larger context "
            f"or fewer slots, ask for shorter answers with {answers}, or send them anyway with --keep-long-prompts"
        )
    return (
        f"none of the {conversations} conversations of {path} has a prompt of {MIN_TOKENS} to {MAX_PROMPT_TOKENS} tokens and "
        f"an answer that together stay within {MAX_TOTAL_TOKENS} tokens"
    )
