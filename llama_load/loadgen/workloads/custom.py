"""Your own prompts: a JSONL file with one request per line, sent in file order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import tee
from typing import Any

import msgspec

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.data_files import DataFile
from llama_load.loadgen.workloads.huggingface import data_file
from llama_load.loadgen.workloads.line_fields import Fields, line_fields
from llama_load.loadgen.workloads.line_messages import ASKS, read_line
from llama_load.loadgen.workloads.openai_messages import talk_of_read
from llama_load.loadgen.workloads.prompt_plan import (
    ANSWER_TOKENS,
    DataFacts,
    DataReading,
    Plan,
    PlanRequest,
)
from llama_load.loadgen.workloads.talk_prompts import TalkWriter
from llama_load.loadgen.workloads.talks import Talk
from llama_load.outside.budget import Budget
from llama_load.outside.foreign_text import printable
from llama_load.servers.expect import Expect
from llama_load.servers.prompt import Message, Prompt

LAYOUT = (
    'a prompt, {"prompt": "…"}, {"messages": [{"role", "content"}, …]} or {"turns": ["…", …]}, '
    'with "output_tokens" (1 or more) '
    '"category" and "expect" if needed'
)
MOST_CATEGORY_CHARS = 60
LATER_TURNS = "later turns of conversations, which conversations.py sends"
# For all schemas of a file, whose lines are read three times: 100 s, or a thousand schemas of 2
# KiB.
MOST_STEPS_OF_A_FILE = 10_000_000


class _Expect(msgspec.Struct, forbid_unknown_fields=True):
    contains: str | None = None
    regex: str | None = None
    one_of: list[str] | None = None
    json_schema: object = None


class _Checks(msgspec.Struct):
    category: str | None = None
    expect: str | _Expect | None = None


_OBJECT: msgspec.json.Decoder[Mapping[str, Any]] = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFileFacts(DataFacts):
    """A file of prompts."""

    prompts: int


class Custom:
    """The prompts of a JSONL file, unchanged: `{"prompt": …}`, `{"messages": …}` or `{"turns": …}`,
    with `"output_tokens"`, `"category"` and `"expect"`.

    The answer's length is --sharegpt-output-len, else the line's `output_tokens`, else 128 tokens.
    Of `turns`, the user's texts in the layout of SPEED-Bench and Spec-Bench, the first is sent. A
    category is the name of the request in reports; --category sends only the lines of some. An
    answer that is not as `expect` says (a text that it must contain, or an object with `contains`,
    `regex`, `one_of` or `json_schema`) is a failure.
    """

    name = "custom"

    def __init__(self, sample: str = "") -> None:
        """`sample`: a bundled file, by its name in datasets/, that is sent without --dataset-path;
        "": a file must be given."""
        self._sample = sample

    def plan(self, request: PlanRequest) -> Plan:
        """Take the lines in order, warm-up prompts after the measured ones. UsageError names an
        invalid line."""
        if request.dataset_path is None and self._sample:
            request = replace(
                request, dataset_path=str(bundled(f"datasets/{self._sample}"))
            )
        if request.dataset_path is None:
            raise UsageError(
                f"custom.py needs a data file: give it with --dataset-path, each line {LAYOUT}"
            )
        path = request.dataset_path
        file = data_file(path, LAYOUT)
        if not len(file):
            raise UsageError(
                f"the data set {path} is empty; each line must be {LAYOUT}"
            )
        lines = _Lines(file, line_fields(request.traffic.columns))
        places = _chosen(lines, request)
        measured: list[Prompt] = []
        warmup: list[Prompt] = []
        used: set[tuple[str, tuple[Message, ...]]] = set()
        too_long = 0
        writer = TalkWriter(request)
        default_lengths = 0
        later_turns = 0
        for line, prompt in _counted(lines, places, writer):
            missing = len(measured) < request.num_prompts
            if request.fits is not None and not request.fits(
                prompt.prompt_tokens or 0, prompt.max_tokens or 0
            ):
                too_long += missing
            elif missing:
                measured.append(prompt)
                used.add((prompt.text, prompt.history))
                default_lengths += not line.has_length
                later_turns += line.later_turns
            elif (prompt.text, prompt.history) not in used:
                warmup.append(prompt)
            if len(measured) >= request.num_prompts and len(warmup) >= request.warmup:
                break
        if not measured:
            raise UsageError(
                f"all {too_long} prompts of {path} are longer than a slot of the server; start "
                "it with a larger context or fewer "
                "slots, or send them anyway with --keep-long-prompts"
            )
        data = PromptFileFacts(path=path, sha256=file.sha256, prompts=len(file))
        return request.plan(
            measured,
            warmup,
            data,
            replaced=too_long,
            shared_tokens=writer.shared_tokens,
            reading=DataReading(
                left_out={LATER_TURNS: later_turns},
                ignored=tuple(lines.fields.ignored),
                unread=tuple(lines.fields.unread),
                default_lengths=0 if request.sets_lengths else default_lengths,
            ),
        )


@dataclass(frozen=True, slots=True)
class _Line:
    """A request of a file; `later_turns` are those of its conversation that are not sent."""

    talk: Talk
    category: str | None
    expect: Expect | None
    has_length: bool
    later_turns: int


class _Lines:
    """The lines of a file, read on access."""

    def __init__(self, file: DataFile, fields: Fields) -> None:
        self.file = file
        self.fields = fields
        self._budget = Budget(MOST_STEPS_OF_A_FILE)

    def read(self, place: int) -> _Line:
        """UsageError names a line that has no question, or is not understood."""
        where = self.file.where(place)
        line = read_line(self.file.decode(place, _OBJECT), where, self.fields)
        talk = talk_of_read(line, "", where)
        later_turns = 0
        if any(ASKS in message for message in line["messages"]):
            later_turns = len(talk.turns) - 1
            talk = replace(talk, turns=talk.turns[:1])
        tokens = talk.turns[-1].output_tokens or talk.output_tokens
        checks = _checks(line, where)
        category = checks.category
        return _Line(
            replace(talk, output_tokens=tokens or ANSWER_TOKENS),
            printable(category, MOST_CATEGORY_CHARS) if category else None,
            _expect(checks.expect, where, self._budget),
            has_length=tokens is not None,
            later_turns=later_turns,
        )


def _chosen(lines: _Lines, request: PlanRequest) -> list[int]:
    """The lines of --category, or all. UsageError names a line that is no prompt, and the
    categories if one is unknown."""
    categories = [lines.read(place).category for place in range(len(lines.file))]
    unknown = [name for name in request.traffic.categories if name not in categories]
    if unknown:
        known = ", ".join(dict.fromkeys(filter(None, categories))) or "none"
        raise UsageError(
            f"--category: no line of {request.dataset_path} has the category {unknown[0]!r}; it "
            f"has {known}"
        )
    return [
        place
        for place, name in enumerate(categories)
        if not request.traffic.categories or name in request.traffic.categories
    ]


def _counted(
    lines: _Lines, places: list[int], writer: TalkWriter
) -> Iterator[tuple[_Line, Prompt]]:
    """The prompts with their token counts, counted in batches."""
    read, again = tee(lines.read(place) for place in places)
    talks = writer.counted(line.talk for line in read)
    for talk, line in zip(talks, again, strict=True):
        prompt = replace(writer.last(talk), task=line.category, expect=line.expect)
        yield line, prompt


def _checks(line: Mapping[str, Any], where: str) -> _Checks:
    try:
        return msgspec.convert(line, _Checks)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where} is JSON, but not {LAYOUT}: {error}") from None


def _expect(given: str | _Expect | None, where: str, budget: Budget) -> Expect | None:
    """What a line expects of its answer: a text alone is to be contained in it. UsageError names
    the line."""
    if given is None:
        return None
    if isinstance(given, str):
        expect = Expect(contains=given)
    else:
        schema = (
            None
            if given.json_schema is None
            else msgspec.json.encode(given.json_schema).decode()
        )
        expect = Expect(
            contains=given.contains,
            regex=given.regex,
            one_of=tuple(given.one_of or ()),
            json_schema=schema,
        )
    try:
        expect.check(budget)
    except UsageError as error:
        raise UsageError(f"{where} {error}") from None
    return expect
