"""ShareGPT conversations: real questions, with the recorded answers' lengths as output lengths.

Sampling follows `vllm bench serve`, so that the same file, seed and tokenizer give the same
prompts: keep entries with two turns or more, shuffle with the seed, take in order what passes
`valid`; if too few pass, draw repetitions from them with the seed. More than one turn selects the
same conversations, by their first exchange.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.data_files import (
    ASSISTANT,
    SYSTEM,
    USER,
    DataFile,
    Turn,
    alternating,
    messages,
)
from llama_load.loadgen.workloads.huggingface import HUB, DataSet
from llama_load.loadgen.workloads.line_fields import line_fields, message_fields
from llama_load.loadgen.workloads.prompt_plan import (
    DataFacts,
    DataReading,
    Plan,
    PlanRequest,
    chained,
)
from llama_load.loadgen.workloads.talk_prompts import Chat, TalkWriter
from llama_load.loadgen.workloads.talks import RecordedTurn, Talk
from llama_load.outside.foreign_text import printable
from llama_load.servers.prompt import Message, Prompt

MIN_TOKENS = 4
MAX_PROMPT_TOKENS = 1024
MAX_TOTAL_TOKENS = 2048
# Rows are shuffled within a buffer of this size, so the rest need not be downloaded (some 20 MB of
# ShareGPT).
ROWS_AT_A_TIME = 4096
COLUMNS = ("conversations", "messages", "conversation")
LEAST_TURNS = 2
# Of a line, under our names. What is not read of them is no part of a request (a count of turns,
# the first question once more); tools are refused where they are used.
_READ = (
    *("id", "messages", "tools", "tool_choice", "category", "expect", "reply"),
    *("prompt", "turns"),
)
FEW_TURNS = "with fewer than two turns"
KEEP = "--keep-long-prompts sends them"
LAYOUT = (
    'in ShareGPT\'s layout, a list of {"id", "conversations": [{"from", "value"}, …]} (or '
    '"messages": [{"role", "content"}, …])'
)


class _AnyTurn(msgspec.Struct):
    """A turn that is skipped: three times as fast as decoding it."""


class _Outline(msgspec.Struct):
    conversations: list[_AnyTurn] | None = None
    messages: list[_AnyTurn] | None = None
    conversation: list[_AnyTurn] | None = None

    @property
    def turns(self) -> int:
        lists = (self.conversations, self.messages, self.conversation)
        return next((len(turns) for turns in lists if turns is not None), 0)


_OBJECT: msgspec.json.Decoder[Mapping[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_OUTLINE = msgspec.json.Decoder(_Outline)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A conversation as it was read. `any_speaker`: it is in ShareGPT's column, of which vLLM takes
    the first two turns, whoever speaks."""

    id: str | None
    turns: list[Turn]
    tools: Any
    any_speaker: bool


class _Reader:
    """Reads entries; counts those that are left out, by reason."""

    def __init__(self, columns: Mapping[str, str] | None = None) -> None:
        self.fields = line_fields(columns)
        self.left_out: Counter[str] = Counter()
        self._messages = message_fields()

    def entry(self, given: Mapping[str, Any], where: str) -> _Entry:
        """UsageError: another layout, or something that is not understood."""
        line = self.fields.read(given, where)
        if isinstance(line.get("time"), str):
            del line["time"]  # a date describes a line
        for other in line:
            if other not in _READ:
                raise UsageError(
                    f"{where} has {other}, which sharegpt_chat.py does not send: use "
                    "locustfiles/conversations.py, or --columns messages=NAME to leave it out"
                )
        try:
            turns = [
                msgspec.convert(self._messages.read(turn, where), Turn)
                for turn in msgspec.convert(line.get("messages"), list[dict[str, Any]])
            ]
        except msgspec.ValidationError as error:
            raise UsageError(f"{where} is JSON, but not {LAYOUT}: {error}") from None
        name = line.get("id")
        return _Entry(
            None if name is None else str(name),
            turns,
            line.get("tools"),
            any_speaker="conversations" in given,
        )

    def talk(
        self, entry: _Entry, place: int, where: str, *, first_only: bool
    ) -> Talk | None:
        """The conversation in an entry; None if it has no answer. UsageError: it has tools, of
        which only texts would be sent."""
        first_two = first_only and entry.any_speaker
        uses_tools = entry.tools or any(turn.uses_tools for turn in entry.turns)
        if uses_tools and not first_two:
            raise UsageError(
                f"{where} uses tools, which sharegpt_chat.py cannot send: use "
                "locustfiles/conversations.py"
            )
        name = entry.id or str(place + 1)
        talk = _conversation(name, entry.turns, first_only, first_two)
        self.left_out["without an answer"] += talk is None
        return talk


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFacts(DataFacts):
    """A file of conversations."""

    conversations: int


class Conversations:
    """The entries of a file that have two turns or more, in file order, decoded on access.

    `sha256` is the file's. UsageError: the file is missing, empty, not JSON, or has another layout.
    """

    def __init__(self, path: Path, columns: Mapping[str, str] | None = None) -> None:
        self._file = DataFile(path, LAYOUT)
        self.sha256 = self._file.sha256
        self.reader = _Reader(columns)
        self._column = "" if not columns else next(iter(columns.values()))
        self._places = array("Q")
        for place in range(len(self._file)):
            if self._turns(place) >= LEAST_TURNS:
                self._places.append(place)
        self.reader.left_out[FEW_TURNS] = len(self._file) - len(self._places)
        if not self._places:
            raise UsageError(self._none_found(path))

    def __len__(self) -> int:
        return len(self._places)

    def read(self, number: int, *, first_only: bool) -> Talk | None:
        """A conversation by number, 0 … len-1; None if it has no answer. UsageError: another
        layout, or tools."""
        place = self._places[number]
        where = self._file.where(place)
        entry = self.reader.entry(self._file.decode(place, _OBJECT), where)
        return self.reader.talk(entry, place, where, first_only=first_only)

    def shuffled(self, seed: int, *, first_only: bool) -> Iterator[Talk]:
        """The conversations that have an answer, in the order of vLLM's shuffle. Raises as `read`
        does."""
        order = list(range(len(self)))
        random.Random(seed).shuffle(order)
        talks = (self.read(number, first_only=first_only) for number in order)
        return (talk for talk in talks if talk is not None)

    def _turns(self, place: int) -> int:
        if not self._column:
            return self._file.decode(place, _OUTLINE).turns
        turns = self._file.decode(place, _OBJECT).get(self._column)
        if not isinstance(turns, list):
            return 0
        return len(turns)

    def _none_found(self, path: Path) -> str:
        """Why there is no conversation, and which workload sends such a file."""
        from llama_load.loadgen.workloads.openai_messages import (
            talk_of,  # for this sentence
        )

        none = f"the data set {path} contains no conversation of two turns or more"
        if not len(self._file):
            return f"{none}; is it {LAYOUT}?"
        first = self._file.decode(0, _OBJECT)
        try:
            talk_of(first, "", self._file.where(0))
        except UsageError:
            names = ", ".join(printable(name, 60) for name in list(first)[:12])
            return f"{none}; is it {LAYOUT}? Its first line has {names or 'nothing'}"
        return (
            f"{none}, but prompts: send them with locustfiles/custom.py (-f custom) or "
            "conversations.py"
        )


def _conversation(
    name: str, turns: list[Turn], first_only: bool, first_two: bool
) -> Talk | None:
    """The conversation of two turns or more; None if it has no answer."""
    if first_two:
        question, answer = (turn.text for turn in turns[:2])
        return Talk(
            name,
            (),
            (RecordedTurn((Message(USER, question),), Message(ASSISTANT, answer)),),
        )
    alternate = list(alternating(messages(turns)))
    opening = (alternate.pop(0),) if alternate and alternate[0].role == SYSTEM else ()
    exchanged = list(
        alternating(message for message in alternate if message.role != SYSTEM)
    )
    if exchanged and exchanged[0].role == ASSISTANT:
        del exchanged[0]
    pairs = zip(exchanged[::2], exchanged[1::2], strict=False)
    recorded = tuple(RecordedTurn((question,), answer) for question, answer in pairs)
    return (
        Talk(name, opening, recorded[: 1 if first_only else None]) if recorded else None
    )


def why_left_out(
    prompt_tokens: int,
    output_tokens: int,
    *,
    output_given: bool,
    keeps_long: bool = False,
) -> str | None:
    """Why vLLM's rule leaves a conversation out: prompt of 4 to 1024 tokens, answer of 4 or more
    (unless its length is given), 2048 or less in all. `keeps_long`: no length is too long."""
    if prompt_tokens < MIN_TOKENS:
        return f"with a question of fewer than {MIN_TOKENS} tokens"
    if not output_given and output_tokens < MIN_TOKENS:
        return f"with an answer of fewer than {MIN_TOKENS} tokens"
    if keeps_long:
        return None
    if prompt_tokens > MAX_PROMPT_TOKENS:
        return f"with a question of more than {MAX_PROMPT_TOKENS:,} tokens ({KEEP})"
    if prompt_tokens + output_tokens > MAX_TOTAL_TOKENS:
        return f"with more than {MAX_TOTAL_TOKENS:,} tokens in all ({KEEP})"
    return None


def valid(prompt_tokens: int, output_tokens: int, *, output_given: bool) -> bool:
    """Whether vLLM's rule takes a conversation (see `why_left_out`)."""
    why = why_left_out(prompt_tokens, output_tokens, output_given=output_given)
    return why is None


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
        source = chosen(request)
        data = source.facts
        left_out = source.reader.left_out
        writer = TalkWriter(request)
        chats: list[Chat] = []
        warmup: list[Prompt] = []
        planned = seen = too_long = 0
        used: set[str] = set()
        for talk in writer.counted(source.talks, turns=1):
            seen += 1
            if why := _why_left_out(talk.turns[0], writer, request):
                left_out[why] += 1
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
            raise UsageError(_none_left(data.path, seen, too_long, answers=answers))
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
            reading=DataReading(
                left_out=dict(left_out),
                ignored=tuple(source.reader.fields.ignored),
                unread=tuple(source.reader.fields.unread),
            ),
        )


def _why_left_out(
    first: RecordedTurn, writer: TalkWriter, request: PlanRequest
) -> str | None:
    question, answer = (writer.tokens(message) for message in first.messages)
    return why_left_out(
        question,
        request.output_len or answer,
        output_given=request.output_len is not None,
        keeps_long=request.keeps_long,
    )


@dataclass(frozen=True, slots=True)
class Source:
    """A data set's conversations in the seed's order, and what reads them."""

    facts: DataFacts
    talks: Iterator[Talk]
    reader: _Reader


def chosen(request: PlanRequest) -> Source:
    """The conversations of a run's data set."""
    source = request.dataset_path
    first_only = request.traffic.turns == 1
    if source is not None and source.startswith(HUB):
        rows = DataSet(source)
        reader = _Reader()
        talks = _shuffled_rows(rows, request.seed, reader, first_only=first_only)
        return Source(rows.facts, talks, reader)
    path = bundled("datasets/sharegpt_sample.json") if source is None else Path(source)
    file = Conversations(path, request.traffic.columns)
    facts = ConversationFacts(
        path=str(path), sha256=file.sha256, conversations=len(file)
    )
    talks = file.shuffled(request.seed, first_only=first_only)
    return Source(facts, talks, file.reader)


def _shuffled_rows(
    data: DataSet, seed: int, reader: _Reader, *, first_only: bool
) -> Iterator[Talk]:
    column = data.first_of(COLUMNS)
    draw = random.Random(seed)
    rows = enumerate(data.rows([column, *({"id", "tools"} & set(data.columns))]))
    while block := list(islice(rows, ROWS_AT_A_TIME)):
        entries = []
        for place, row in block:
            where = f"row {place + 1} of {data.spec}"
            entry = reader.entry(row, where)
            is_long = len(entry.turns) >= LEAST_TURNS
            reader.left_out[FEW_TURNS] += not is_long
            if is_long:
                entries.append((place, entry, where))
        draw.shuffle(entries)
        for place, entry, where in entries:
            talk = reader.talk(entry, place, where, first_only=first_only)
            if talk is not None:
                yield talk


def _none_left(path: str, conversations: int, too_long: int, *, answers: str) -> str:
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
