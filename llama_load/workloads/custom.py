"""Your own prompts: a JSONL file with one request per line, sent in file order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import tee
from pathlib import Path
from typing import Annotated, Any

import msgspec

from llama_load.budget import Budget
from llama_load.bundled import bundled
from llama_load.errors import UsageError
from llama_load.foreign_text import printable
from llama_load.workloads.data_files import USER, DataFile
from llama_load.workloads.expect import Expect
from llama_load.workloads.huggingface import HUB
from llama_load.workloads.openai_messages import talk_of
from llama_load.workloads.prompt import (
    ANSWER_TOKENS,
    DataFacts,
    Message,
    Plan,
    PlanRequest,
    Prompt,
)
from llama_load.workloads.talk_prompts import TalkWriter
from llama_load.workloads.talks import RecordedTurn, Talk

LAYOUT = (
    'a prompt, {"prompt": "…"}, {"messages": [{"role", "content"}, …]} or {"turns": ["…", …]}, '
    'with "output_tokens" (1 or more) '
    '"category" and "expect" if needed'
)
MOST_CATEGORY_CHARS = 60
# For all schemas of a file, whose lines are read three times: 100 s, or a thousand schemas of 2
# KiB.
MOST_STEPS_OF_A_FILE = 10_000_000


class _Expect(msgspec.Struct, forbid_unknown_fields=True):
    contains: str | None = None
    regex: str | None = None
    one_of: list[str] | None = None
    json_schema: object = None


class _Line(msgspec.Struct):
    prompt: str | None = None
    turns: list[str] | None = None
    category: str | None = None
    messages: Any = None
    output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    expect: str | _Expect | None = None


_LINE = msgspec.json.Decoder(_Line)
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
                f"custom.py needs a JSONL file: give it with --dataset-path, each line {LAYOUT}"
            )
        if request.dataset_path.startswith(HUB):
            raise UsageError(
                "custom.py reads a JSON Lines file; use sharegpt_chat.py for a Hugging Face data "
                "set"
            )
        path = Path(request.dataset_path)
        file = DataFile(path, LAYOUT)
        if not len(file):
            raise UsageError(
                f"the data set {path} is empty; each line must be {LAYOUT}"
            )
        budget = Budget(MOST_STEPS_OF_A_FILE)
        places = _chosen(file, request, budget)
        measured: list[Prompt] = []
        warmup: list[Prompt] = []
        used: set[tuple[str, tuple[Message, ...]]] = set()
        too_long = 0
        writer = TalkWriter(request)
        for prompt in _counted(file, places, writer, budget):
            missing = len(measured) < request.num_prompts
            if request.fits is not None and not request.fits(
                prompt.prompt_tokens or 0, prompt.max_tokens or 0
            ):
                too_long += missing
            elif missing:
                measured.append(prompt)
                used.add((prompt.text, prompt.history))
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
        data = PromptFileFacts(
            path=str(path),
            sha256=file.sha256,
            prompts=len(file),
        )
        return request.plan(
            measured,
            warmup,
            data,
            replaced=too_long,
            shared_tokens=writer.shared_tokens,
        )


def _chosen(file: DataFile, request: PlanRequest, budget: Budget) -> list[int]:
    """The lines of --category, or all. UsageError names a line that is no prompt, and the
    categories if one is unknown."""
    categories = [_read_line(file, place, budget)[1] for place in range(len(file))]
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
    file: DataFile, places: list[int], writer: TalkWriter, budget: Budget
) -> Iterator[Prompt]:
    """The prompts with their token counts, counted in batches."""
    lines, again = tee(_read_line(file, place, budget) for place in places)
    for talk, (_, category, expect) in zip(
        writer.counted(talk for talk, *_ in lines), again, strict=True
    ):
        yield replace(
            writer.last(talk),
            task=category,
            expect=expect,
        )


def _read_line(
    file: DataFile, place: int, budget: Budget
) -> tuple[Talk, str | None, Expect | None]:
    """The conversation in a line, its category, and what it expects of its answer. UsageError names
    the line if it has no question, or one that is not understood."""
    line = file.decode(place, _LINE)
    where = file.where(place)
    if line.messages is not None:
        talk = talk_of(file.decode(place, _OBJECT), "", where)
    else:
        text = line.prompt or next(iter(line.turns or []), "")
        if not text.strip():
            raise UsageError(f"{where} has no question; it must be {LAYOUT}")
        talk = Talk("", (), (RecordedTurn((Message(USER, text),), None),))
    category = printable(line.category, MOST_CATEGORY_CHARS) if line.category else None
    return (
        replace(talk, output_tokens=line.output_tokens or ANSWER_TOKENS),
        category,
        _expect(line.expect, where, budget),
    )


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
